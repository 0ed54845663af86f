// Package compose puts a runtime together: the store, the loop, the tools, the provider's clients and the API, each
// from its adapter, as the settings say.
package compose

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"condensate.dev/cnd/adapters/follow"
	"condensate.dev/cnd/adapters/guard"
	"condensate.dev/cnd/adapters/httpapi"
	"condensate.dev/cnd/adapters/notes"
	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/adapters/shelltools"
	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/policy"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/internal/config"
	"condensate.dev/cnd/tools/internal/logging"
)

// Names in the folders of the configuration and the data.
const (
	recordKeyFile = "record.key"
	callsFolder   = "calls"
)

// IsolationNone says that agents run as the user with nothing between them and the user's files.
const IsolationNone = "none"

// Parts are what a runtime is made from.
type Parts struct {
	Settings   Settings
	Dirs       config.Dirs
	Credential Credential
	Version    string
	Log        *slog.Logger
	// Fatal is called at most once when the record can no longer be written: the process must end.
	Fatal func(error)
}

// Runtime is an open runtime.
type Runtime struct {
	parts    Parts
	key      string // bearer key of the API
	store    *pebblestore.Store
	heads    *notes.Heads
	guard    *guard.Guard
	accounts accounts
	hub      *follow.Hub
	host     *loop.Host
	troubles *troubles
	maker    threadMaker

	closing    atomic.Bool
	recovering sync.WaitGroup
}

// Open opens everything that a runtime stands on. It starts no work; see [Runtime.Start].
func Open(p Parts) (*Runtime, error) {
	key, err := apiKey(filepath.Join(p.Dirs.Config, client.KeyFile))
	if err != nil {
		return nil, fmt.Errorf("key of the API: %w", err)
	}
	signer, err := notes.LoadOrCreateKey(filepath.Join(p.Dirs.Config, recordKeyFile), rand.Reader)
	if err != nil {
		return nil, err
	}
	store, err := pebblestore.Open(filepath.Join(p.Dirs.Data, config.StoreFolder), pebblestore.Options{
		Project: project, MinFree: uint64(p.Settings.MinFreeMiB) << 20, OnFatal: p.Fatal, Logger: p.Log,
	})
	if err != nil {
		return nil, err
	}
	r := &Runtime{parts: p, key: key, store: store}
	if err := r.open(signer); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return r, nil
}

// apiKey returns the bearer key in the file at path, which it makes when there is none. White space around it is
// nobody's part of the key.
func apiKey(path string) (string, error) {
	text, err := createOnce(path, newKey)
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", fmt.Errorf("%s is empty; remove it to have a new key made: %w", path, config.ErrConfig)
	}
	return key, nil
}

// newKey returns a new bearer key as the line of its file.
func newKey() ([]byte, error) {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return append(hex.AppendEncode(nil, b[:]), '\n'), nil
}

// open makes what stands on the store.
func (r *Runtime) open(signer *notes.Key) error {
	p := r.parts
	var err error
	r.heads, err = notes.OpenHeads(filepath.Join(p.Dirs.Data, config.HeadsFile), signer, hashAt(r.store), func(err error) {
		p.Log.Error("a head is not signed", slog.Any(logging.KeyErr, err))
	})
	if err != nil {
		return err
	}
	if r.guard, err = guard.New(filepath.Join(p.Dirs.Data, callsFolder)); err != nil {
		return errors.Join(err, r.heads.Close())
	}
	own, err := linkFree(p.Dirs.Config, p.Dirs.Data)
	if err != nil {
		return errors.Join(err, r.heads.Close())
	}
	tools := shelltools.New(shelltools.Options{Commands: r.guard, Closed: own})
	owner, err := policy.NewOwner(p.Settings.Rules, own...)
	if err != nil {
		return errors.Join(err, r.heads.Close())
	}
	r.accounts = newAccounts(p.Settings.SimAddr, p.Credential)
	r.hub = follow.NewHub(r.store, follow.Options{})
	r.troubles = newTroubles(p.Log)
	r.host = loop.NewHost(loop.Ports{
		Store: r.store, Model: r.accounts, Tools: tools, Policy: owner, Now: time.Now, Entropy: rand.Reader,
		Follower: watched{signing{r.hub, r.heads}, r.troubles}, Ready: r.store.Ready,
	}, loop.Options{Version: p.Version, Report: r.troubles.report})
	r.maker = threadMaker{
		settings: p.Settings, accounts: r.accounts, tools: tools.Specs(), headKey: signer.VerifierKey(), isolation: IsolationNone,
	}
	r.checkHeads()
	return nil
}

// checkHeads compares every thread with what was signed of it last. One that differs was changed outside the runtime,
// or the disk lost what it had acknowledged: it is shown as broken and neither continued nor signed.
func (r *Runtime) checkHeads() {
	for p, err := range r.store.Projections(context.Background()) {
		if err != nil || p.Foreign {
			continue
		}
		if err := r.heads.Check(p.Thread); err != nil {
			r.troubles.report(p.Thread, err)
		}
	}
}

// Handler returns the API as it is served at addr.
func (r *Runtime) Handler(addr string) http.Handler {
	records := records{r.store, r.heads}
	return httpapi.New(httpapi.Options{
		Host: commands{r.host, r.store, r.troubles}, Store: r.store, Threads: threads{r.store, r.troubles}, Follow: r.hub,
		NewThread: r.maker.make,
		Export:    records.export,
		Import:    records.importRecord,
		Reindex:   r.reindex,
		Health:    r.health,
		Key:       r.key, Addr: addr, Hosts: r.parts.Settings.Hosts, Logger: r.parts.Log,
	})
}

func (r *Runtime) reindex(ctx context.Context) (int, error) {
	if err := r.store.Reindex(ctx); err != nil {
		return 0, err
	}
	n := 0
	for _, err := range r.store.Threads(ctx) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

func (r *Runtime) health(context.Context) httpapi.Health {
	h := httpapi.Health{Ready: true, Version: r.parts.Version, Isolation: IsolationNone}
	err := r.store.Ready()
	if err == nil {
		err = r.heads.Err()
	}
	if r.closing.Load() {
		err = loop.ErrClosed
	}
	if err != nil {
		h.Ready, h.Reason = false, fmt.Sprintf("%s: %s", fault.Find(err).Code, err)
	}
	return h
}

// Start goes on, in the background until ctx is done, with everything that a dead runtime left: it ends what still runs
// of its commands, continues its turns and signs the heads that it did not. Trouble with one thread is logged and stops
// no other.
func (r *Runtime) Start(ctx context.Context) {
	r.recovering.Go(func() { r.recover(ctx) })
}

func (r *Runtime) recover(ctx context.Context) {
	log := r.parts.Log
	var busy []record.ThreadID
	for p, err := range r.store.Projections(ctx) {
		if err != nil {
			log.ErrorContext(ctx, "threads cannot be listed", slog.Any(logging.KeyErr, err))
			break
		}
		s, err := summary(p)
		switch {
		case p.Foreign, r.troubles.find(p.Thread) != nil:
		case err != nil || s.State != thread.StateIdle || s.Queued > 0:
			busy = append(busy, p.Thread)
		default:
			r.signHead(ctx, p.Thread)
		}
	}
	if err := r.host.Recover(ctx, busy); err != nil && ctx.Err() == nil {
		log.ErrorContext(ctx, "not every thread could be recovered", slog.Any(logging.KeyErr, err))
	}
	if err := r.guard.Sweep(ctx); err != nil && ctx.Err() == nil {
		log.ErrorContext(ctx, "commands of a dead runtime may still run", slog.Any(logging.KeyErr, err))
	}
	log.InfoContext(ctx, "recovered", slog.Int(logging.KeyCount, len(busy)))
}

// signHead has the head of an idle thread signed, unless it is the one that was signed last.
func (r *Runtime) signHead(ctx context.Context, id record.ThreadID) {
	at, err := r.store.Head(ctx, id)
	if err != nil {
		return // its own readers will be told
	}
	if newest, err := r.heads.Newest(id); err == nil && (newest == nil || newest.Place() != at) {
		r.heads.Add(id, at)
	}
}

// Stop drains: streams end, no new work starts, running work gets its grace. It returns when nothing runs any more, or
// with the context's error.
func (r *Runtime) Stop(ctx context.Context) error {
	r.closing.Store(true)
	r.hub.Close()
	err := r.host.Close(ctx)
	r.recovering.Wait()
	return err
}

// Close closes what is open, in the order opposite to opening. Stop comes before.
func (r *Runtime) Close() error {
	r.recovering.Wait()
	err := r.heads.Close()
	r.accounts.close()
	return errors.Join(err, r.store.Close())
}

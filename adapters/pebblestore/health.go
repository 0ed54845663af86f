package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

// retryPause is how long Pebble is held after an error of its background work: it tries a failed flush again at once
// and for ever, and would keep a core busy for as long as the disk is full.
const retryPause = 100 * time.Millisecond

// health remembers the first failure of a store. It never forgets: a disk that failed once has to be verified by
// opening the store again.
type health struct {
	log     *slog.Logger
	onFatal func(error) // may be nil

	failed chan struct{} // closed with the first failure
	dead   chan struct{} // closed with the first fatal one

	mu    sync.Mutex // guards what follows
	first error      // the first failure; nil while the store is well
}

func newHealth(log *slog.Logger, onFatal func(error)) *health {
	return &health{log: log, onFatal: onFatal, failed: make(chan struct{}), dead: make(chan struct{})}
}

// cause returns the first failure, or nil while the store is well.
func (h *health) cause() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.first
}

// failure returns the first failure as an error wrapping record.ErrReadOnly, or nil while the store is well.
func (h *health) failure() error {
	select {
	case <-h.failed:
		return fmt.Errorf("%w: %w", record.ErrReadOnly, h.cause())
	default:
		return nil
	}
}

func (h *health) isDead() bool {
	select {
	case <-h.dead:
		return true
	default:
		return false
	}
}

// latch ends all writing because of cause.
func (h *health) latch(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latchLocked(cause)
}

func (h *health) latchLocked(cause error) {
	if h.first != nil {
		return
	}
	h.first = cause
	close(h.failed)
	h.log.LogAttrs(context.Background(), slog.LevelError, "store takes no more writes", slog.Any("err", cause))
}

// die ends all writing and asks for the end of the process.
func (h *health) die(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latchLocked(cause)
	if h.isDead() {
		return
	}
	close(h.dead)
	if h.onFatal != nil {
		go h.onFatal(fmt.Errorf("%w: %w", record.ErrReadOnly, cause))
	}
}

// guard runs call and then over with its error, also when Pebble ended the goroutine (see logger.Fatalf) or panicked. In a
// store that died, call may never return.
func (h *health) guard(call func() error, over func(error)) {
	var err error
	returned := false
	defer func() {
		if r := recover(); r != nil {
			h.die(fatal{text: fmt.Sprintf("pebble panicked: %v", r), cause: firstError(r)})
		}
		if !returned {
			err = h.failure()
		}
		over(err)
	}()
	err = call()
	returned = true
}

// listener is how Pebble tells of failures that no caller waits for.
func (h *health) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			h.latch(err)
			time.Sleep(retryPause)
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			h.latch(fmt.Errorf("%s: %w: %w", info.Path, record.ErrDamaged, info.Details))
		},
	}
}

// logger sends Pebble's messages to slog. Pebble's own logger would end the process.
type logger struct{ health *health }

var _ pebble.Logger = logger{}

func (l logger) Infof(format string, args ...any) {
	if l.health.log.Enabled(context.Background(), slog.LevelDebug) {
		l.write(slog.LevelDebug, format, args)
	}
}

func (l logger) Errorf(format string, args ...any) { l.write(slog.LevelWarn, format, args) }

// Fatalf ends the goroutine, not the process: Pebble calls it when the manifest could not be written and must not go on.
// Deferred unlocks run, so that reading still works while the process comes to its end.
func (l logger) Fatalf(format string, args ...any) {
	l.health.die(fatal{text: fmt.Sprintf(format, args...), cause: firstError(args...)})
	runtime.Goexit()
}

func (l logger) write(level slog.Level, format string, args []any) {
	l.health.log.LogAttrs(context.Background(), level, "pebble", slog.String("text", fmt.Sprintf(format, args...)))
}

// fatal is a failure that Pebble tells of as a text, with the error that is part of it.
type fatal struct {
	text  string
	cause error // nil when there is none
}

func (f fatal) Error() string { return f.text }
func (f fatal) Unwrap() error { return f.cause }

func firstError(args ...any) error {
	for _, a := range args {
		if err, ok := a.(error); ok {
			return err
		}
	}
	return nil
}

// classify gives an error of Pebble or of the operating system its class; a classified one stays as it is.
func classify(err error) error {
	var known *fault.Error
	switch {
	case errors.As(err, &known):
		return err
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%w: %w", record.ErrDamaged, err)
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", ErrDiskLow, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", errPermission, err)
	default:
		return fmt.Errorf("%w: %w", ErrIO, err)
	}
}

// errPermission: the folder belongs to somebody else.
var errPermission = fault.New(fault.Config, "store-permission", "no permission to use the store's folder")

// gate counts the users of a store, so that it is closed after the last one left.
type gate struct {
	mu    sync.Mutex // guards what follows
	users int
	empty chan struct{} // made by shut; closed when no user is left
}

// enter returns ErrClosed after shut.
func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.empty != nil {
		return ErrClosed
	}
	g.users++
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users--; g.users == 0 && g.empty != nil {
		close(g.empty)
	}
}

// closing says whether shut was called.
func (g *gate) closing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.empty != nil
}

// shut lets nobody in any more and returns a channel that is closed when everybody left.
func (g *gate) shut() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.empty == nil {
		g.empty = make(chan struct{})
		if g.users == 0 {
			close(g.empty)
		}
	}
	return g.empty
}

package client_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/follow"
	"condensate.dev/cnd/adapters/httpapi"
	"condensate.dev/cnd/adapters/memstore"
	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

const testKey = "a key"

// runtime is the real API and hub over a store in memory and a host that only writes messages down. It can be stopped
// and started again, as a process can.
type runtime struct {
	store *memstore.Store
	ready bool

	mu      sync.Mutex // guards the appends
	ids     []record.ThreadID
	hub     *follow.Hub
	server  *http.Server
	addr    string
	stopped chan struct{}
}

func newRuntime() *runtime {
	return &runtime{store: memstore.New(), ready: true, addr: "127.0.0.1:0"}
}

func startRuntime(t *testing.T) *runtime {
	t.Helper()
	r := newRuntime()
	require.NoError(t, r.start())
	t.Cleanup(r.stop)
	return r
}

func (r *runtime) start() error {
	listener, err := net.Listen("tcp", r.addr)
	if err != nil {
		return err
	}
	r.addr = listener.Addr().String()
	r.mu.Lock()
	r.hub = follow.NewHub(r.store, follow.Options{Heartbeat: 20 * time.Millisecond})
	r.mu.Unlock()
	handler := httpapi.New(httpapi.Options{
		Host: r, Store: r.store, Threads: r, Follow: r.hub, Key: testKey, Addr: r.addr,
		NewThread: func(_ context.Context, n httpapi.ThreadRequest) (loop.NewThread, error) {
			return loop.NewThread{ID: n.ID, Created: thread.Created{Title: n.Title, Cwd: n.Cwd, Engine: "loop", HeadKey: "k"}}, nil
		},
		Export: r.export, Import: r.importRecord,
		Reindex: func(context.Context) (int, error) { return len(r.ids), nil },
		Health: func(context.Context) httpapi.Health {
			return httpapi.Health{Ready: r.ready, Version: "v0.1.0", Isolation: "none"}
		},
	})
	r.server = &http.Server{Handler: handler}
	r.stopped = make(chan struct{})
	go func(server *http.Server, stopped chan struct{}) {
		defer close(stopped)
		server.Serve(listener)
	}(r.server, r.stopped)
	return nil
}

func (r *runtime) stop() {
	r.hub.Close()
	r.server.Close()
	<-r.stopped
}

// client returns a client that knows the address, and closes its idle connections at the end.
func (r *runtime) client(t *testing.T) *client.Client {
	c := client.New(r.addr, testKey)
	t.Cleanup(c.CloseIdle)
	return c
}

func (r *runtime) append(id record.ThreadID, kind record.Kind, body any) (record.Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	head, err := r.store.Head(context.Background(), id)
	if kind == record.ThreadCreated {
		head, err = record.Head{}, nil
	}
	if err != nil {
		return record.Entry{}, err
	}
	e, err := record.Seal(id, head, record.Salt{}, record.Draft{Time: time.Unix(1e9, 0), Kind: kind, Body: thread.Encode(body)})
	if err != nil {
		return record.Entry{}, err
	}
	if _, err := r.store.Append(context.Background(), id, head, e); err != nil {
		return record.Entry{}, err
	}
	r.hub.Appended(id, []record.Entry{e})
	return e, nil
}

// note appends an entry with some text.
func (r *runtime) note(t *testing.T, id record.ThreadID, text string) {
	t.Helper()
	_, err := r.append(id, record.NoteInjected, thread.NoteInjected{Text: text})
	require.NoError(t, err)
}

func (r *runtime) lines(t *testing.T, id record.ThreadID) (lines []string) {
	t.Helper()
	for e, err := range r.store.Entries(context.Background(), id, 0) {
		require.NoError(t, err)
		lines = append(lines, string(e.Line))
	}
	return lines
}

func (r *runtime) Create(_ context.Context, n loop.NewThread) (record.ThreadID, error) {
	_, err := r.append(n.ID, record.ThreadCreated, n.Created)
	r.ids = append(r.ids, n.ID)
	return n.ID, err
}

func (r *runtime) Submit(_ context.Context, id record.ThreadID, m loop.Message) (loop.Receipt, error) {
	e, err := r.append(id, record.MessageAccepted, thread.MessageAccepted{ID: m.ID, Mode: m.Mode, By: m.By, Content: m.Content})
	return loop.Receipt{Seq: e.Seq, State: loop.ReceiptAccepted}, err
}

func (r *runtime) Interrupt(_ context.Context, id record.ThreadID, by, command string) (loop.Receipt, error) {
	return loop.Receipt{}, fault.WithHint(fmt.Errorf("interrupt %s by %s: %w", command, by, errNotRunning), "cnd-runtime thread show "+string(id))
}

var errNotRunning = fault.New(fault.Conflict, "not-running", "no turn is running")

func (r *runtime) Resume(context.Context, record.ThreadID) (loop.Receipt, error) {
	return loop.Receipt{Seq: 3, State: loop.ReceiptDuplicate}, nil
}

func (r *runtime) Answer(_ context.Context, id record.ThreadID, a thread.ApprovalAnswered) (loop.Receipt, error) {
	e, err := r.append(id, record.ApprovalAnswered, a)
	return loop.Receipt{Seq: e.Seq, State: loop.ReceiptAccepted}, err
}

func (r *runtime) Summaries(_ context.Context, after record.ThreadID) iter.Seq2[thread.Summary, error] {
	return func(yield func(thread.Summary, error) bool) {
		for _, id := range slices.Sorted(slices.Values(r.ids)) {
			if id > after && !yield(thread.Summary{ID: id}, nil) {
				return
			}
		}
	}
}

func (r *runtime) Summary(ctx context.Context, id record.ThreadID) (s thread.Summary, err error) {
	for e, err := range r.store.Entries(ctx, id, 0) {
		if err != nil {
			return s, err
		}
		s = thread.Summarize(s, e)
	}
	return s, nil
}

func (r *runtime) export(ctx context.Context, id record.ThreadID, w io.Writer) error {
	for e, err := range r.store.Entries(ctx, id, 0) {
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\n", e.Line)
	}
	return nil
}

func (r *runtime) importRecord(_ context.Context, in io.Reader) (httpapi.Imported, error) {
	buffered := bufio.NewReader(in)
	if first, err := buffered.Peek(1); err != nil || first[0] != '{' {
		return httpapi.Imported{}, fault.New(fault.Invalid, "invalid-entry", "line 1 is no entry")
	}
	text, err := io.ReadAll(buffered)
	if err != nil {
		return httpapi.Imported{}, err
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	e, err := record.Parse(lines[len(lines)-1])
	return httpapi.Imported{Thread: e.Thread, Head: e.Head()}, err
}

// folders writes the files through which Open finds the runtime.
func (r *runtime) folders(t *testing.T) (configDir, dataDir string) {
	t.Helper()
	configDir, dataDir = t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(configDir, client.KeyFile), []byte(testKey+"\n"), 0o600))
	r.publish(t, dataDir)
	return configDir, dataDir
}

func (r *runtime) publish(t *testing.T, dataDir string) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"addr": r.addr, "pid": 1})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dataDir, client.AddressFile), text, 0o600))
}

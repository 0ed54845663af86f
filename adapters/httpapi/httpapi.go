// Package httpapi serves the runtime's API over HTTP (docs/API.md): it authenticates, decodes strictly, calls the loop
// and the store, and translates faults into statuses by one complete table.
//
// Nothing local is trusted because it is local: every route but GET /health needs the bearer key, and every request an
// exact Host and no foreign Origin. Bodies are JSON of a closed form: an unknown, repeated or wrong field is refused by
// its name. The package holds no state; streams of a thread are served by the [Follow] that it is given.
package httpapi

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"time"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// Times of bodies, in both directions. A client that is slower loses its connection. The times and limits of headers
// and idle connections are the server's.
const (
	// BodyTimeout bounds the time in which a JSON body must arrive.
	BodyTimeout = 30 * time.Second
	// StallTimeout bounds the silence within a streamed body and the writing of an answer.
	StallTimeout = 30 * time.Second
)

// Host is the part of the loop that the API drives. See [loop.Host] for the contracts.
type Host interface {
	Create(ctx context.Context, n loop.NewThread) (record.ThreadID, error)
	Submit(ctx context.Context, id record.ThreadID, m loop.Message) (loop.Receipt, error)
	Interrupt(ctx context.Context, id record.ThreadID, by, command string) (loop.Receipt, error)
	Resume(ctx context.Context, id record.ThreadID) (loop.Receipt, error)
	Answer(ctx context.Context, id record.ThreadID, a thread.ApprovalAnswered) (loop.Receipt, error)
}

var _ Host = (*loop.Host)(nil)

// Threads is the list of threads, a projection of the records.
type Threads interface {
	// Summaries yields the threads whose id is greater than after, in the order of ids (which is that of creation).
	Summaries(ctx context.Context, after record.ThreadID) iter.Seq2[thread.Summary, error]
	// Summary returns one thread, or an error wrapping record.ErrNotFound.
	Summary(ctx context.Context, id record.ThreadID) (thread.Summary, error)
}

// Follow serves the stream of one thread as WebSocket or SSE until the client or the server ends it.
type Follow interface {
	// Serve returns an error only when nothing was written to w.
	Serve(w http.ResponseWriter, r *http.Request, id record.ThreadID) error
}

// ThreadRequest is what a client decides of a new thread; the owner's configuration decides the rest.
type ThreadRequest struct {
	ID      record.ThreadID // "" to have one made
	Title   string
	Cwd     string // absolute path
	Model   string // "" for the configured one
	Account string // "" for the configured one
	Allow   []string
	Resume  string // "auto", "ask" or "" for the default
}

// Imported is what an import stored.
type Imported struct {
	Thread record.ThreadID
	Head   record.Head
}

// Health is the public state of the runtime. It holds no secrets and nothing of any thread.
type Health struct {
	Ready     bool   `json:"ready"`
	Version   string `json:"version"`
	Isolation string `json:"isolation"` // "user", "sandbox" or "none"
	// Reason says why the runtime is not ready, as "code: sentence"; "" when it is.
	Reason string `json:"reason,omitempty"`
}

// Options are what the API stands on. All fields but Hosts and Logger are needed.
type Options struct {
	Host    Host
	Store   record.Store
	Threads Threads
	Follow  Follow
	// NewThread completes a client's request by the owner's configuration.
	NewThread func(ctx context.Context, r ThreadRequest) (loop.NewThread, error)
	// Export writes the thread's export. It returns unknown threads before the first byte.
	Export func(ctx context.Context, id record.ThreadID, w io.Writer) error
	// Import stores a verified export, all of it or nothing.
	Import func(ctx context.Context, r io.Reader) (Imported, error)
	// Reindex rebuilds all projections from the records and returns of how many threads.
	Reindex func(ctx context.Context) (threads int, err error)
	Health  func(ctx context.Context) Health

	// Key is the owner's bearer key. Only its hash is kept.
	Key string
	// Addr is the address that the server listens on, "127.0.0.1:4785". Requests must name it, or localhost or
	// 127.0.0.1 with its port, as their Host; Hosts allows more names ("host:port").
	Addr  string
	Hosts []string

	// Logger hears of failures that are ours; nil drops them.
	Logger *slog.Logger
}

// New returns the API's handler. It panics when Key or Addr is empty or Addr has no port: such a server would let
// everybody in or nobody.
func New(o Options) http.Handler {
	_, port, err := net.SplitHostPort(o.Addr)
	if err != nil || o.Key == "" {
		panic("httpapi: a key and an address with a port are needed")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &api{Options: o, gate: newGate(o.Key, append([]string{
		o.Addr, net.JoinHostPort("localhost", port), net.JoinHostPort("127.0.0.1", port),
	}, o.Hosts...))}
	a.Key = ""
	return a.handler()
}

// api is the handler's state: its options, and the gate in front.
type api struct {
	Options
	gate *gate
}

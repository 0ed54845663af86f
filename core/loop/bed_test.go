package loop

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/memstore"
	"condensate.dev/cnd/core/policy"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// bed is a host over fakes whose behaviour a test sets.
type bed struct {
	*Host
	t     *testing.T
	store *memstore.Store
	heard *listener

	mu      sync.Mutex
	reports []error

	send   func(ctx context.Context, r Request, deltas func(kind, text string)) (Answer, error)
	plan   func(c Call) (Plan, error)
	tool   func(ctx context.Context, c Call) Outcome
	find   func(c Call) Outcome
	decide func(e policy.Event) (policy.Decision, error)
	ready  func() error
	open   openBuilder
}

// newBed returns a bed whose model says "hello" and whose tools are allowed and say "ok".
func newBed(t *testing.T) *bed {
	b := &bed{t: t, store: memstore.New(), heard: &listener{}}
	b.send = func(context.Context, Request, func(kind, text string)) (Answer, error) { return says("hello"), nil }
	b.plan = func(Call) (Plan, error) { return Plan{Replay: thread.ReplayUnsafe}, nil }
	b.tool = func(context.Context, Call) Outcome { return Outcome{Result: &Result{Content: text("ok")}} }
	b.find = func(Call) Outcome { return Outcome{NotDone: true} }
	b.decide = func(policy.Event) (policy.Decision, error) {
		return policy.Decision{Verdict: policy.Allow, Rule: "all", Reason: "because"}, nil
	}
	b.ready = func() error { return nil }
	b.start()
	return b
}

// start begins a runtime on the bed's store.
func (b *bed) start() {
	b.Host = NewHost(Ports{
		Store: b.store, Model: fakes{b}, Tools: fakes{b}, Policy: fakes{b}, Follower: b.heard, Now: time.Now, Entropy: rand.Reader,
		Ready: func() error { return b.ready() },
	}, Options{Version: "test", Grace: time.Second, open: b.open, Report: func(_ record.ThreadID, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reports = append(b.reports, err)
	}})
}

// fakes are the bed as the host sees it.
type fakes struct{ b *bed }

func (f fakes) Send(ctx context.Context, r Request, deltas func(kind, text string)) (Answer, error) {
	return f.b.send(ctx, r, deltas)
}

func (f fakes) Specs() []thread.ToolSpec { return nil }

func (f fakes) Plan(_ context.Context, c Call) (Plan, error) { return f.b.plan(c) }

func (f fakes) Run(ctx context.Context, c Call, _ Plan, progress func(string)) Outcome {
	progress("out of " + c.ID)
	return f.b.tool(ctx, c)
}

func (f fakes) Recover(_ context.Context, c Call, _ thread.ToolStarted) Outcome { return f.b.find(c) }

func (f fakes) Decide(_ context.Context, e policy.Event) (policy.Decision, error) {
	return f.b.decide(e)
}

// create makes a thread.
func (b *bed) create(mode string) record.ThreadID {
	b.t.Helper()
	id, err := b.Create(b.t.Context(), NewThread{
		Created: thread.Created{Cwd: "/work", Resume: mode, Allow: []string{"bash"}}, Epoch: simEpoch(),
	})
	require.NoError(b.t, err)
	return id
}

func (b *bed) submit(id record.ThreadID, what string) Receipt {
	b.t.Helper()
	r, err := b.Submit(b.t.Context(), id, Message{Content: text(what)})
	require.NoError(b.t, err)
	return r
}

func (b *bed) close() {
	b.t.Helper()
	require.NoError(b.t, b.Close(b.t.Context()))
}

// entries returns the thread's entries of a kind, of every kind for "".
func (b *bed) entries(id record.ThreadID, kind record.Kind) []record.Entry {
	b.t.Helper()
	var all []record.Entry
	for e, err := range b.store.Entries(context.Background(), id, 0) {
		require.NoError(b.t, err)
		if kind == "" || e.Kind == kind {
			all = append(all, e)
		}
	}
	return all
}

// kinds returns the kinds of the thread's entries after the first three, which make it.
func (b *bed) kinds(id record.ThreadID) string {
	var kinds []string
	for _, e := range b.entries(id, "")[3:] {
		kinds = append(kinds, string(e.Kind))
	}
	return strings.Join(kinds, " ")
}

// one returns the body of the only entry of a kind.
func one[T any](b *bed, id record.ThreadID, kind record.Kind) T {
	b.t.Helper()
	all := b.entries(id, kind)
	require.Len(b.t, all, 1, "%s in %s", kind, b.kinds(id))
	return must[T](all[0])
}

func (b *bed) reported() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.reports)
}

// says is an answer that ends the turn.
func says(what string) Answer {
	native, _ := json.Marshal(map[string]string{"type": "text", "text": what})
	return Answer{Native: []json.RawMessage{native}, View: text(what), StopReason: "end_turn"}
}

// calls is an answer that calls a tool n times.
func calls(name string, n int) Answer {
	a := Answer{StopReason: "tool_use"}
	for i := range n {
		a.Native = append(a.Native, json.RawMessage(fmt.Sprintf(`{"type":"tool_use","id":"call_%d","name":%q,"input":{"n":%d}}`, i, name, i)))
		a.View = append(a.View, thread.Block{Type: thread.BlockToolCall, Name: name, Input: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))})
	}
	return a
}

// first answers the first request with a and every later one with "done".
func first(a Answer) func(context.Context, Request, func(kind, text string)) (Answer, error) {
	var sent atomic.Int32
	return func(context.Context, Request, func(kind, text string)) (Answer, error) {
		if sent.Add(1) == 1 {
			return a, nil
		}
		return says("done"), nil
	}
}

// failing answers with the errors one after the other, then with "done".
func failing(errs ...*ModelError) func(context.Context, Request, func(kind, text string)) (Answer, error) {
	var sent atomic.Int32
	return func(context.Context, Request, func(kind, text string)) (Answer, error) {
		if n := int(sent.Add(1)); n <= len(errs) {
			return Answer{}, errs[n-1]
		}
		return says("done"), nil
	}
}

// listener notes what a follower hears.
type listener struct {
	mu     sync.Mutex
	seqs   map[record.ThreadID][]record.Seq
	deltas []Delta
	resets int
}

func (l *listener) Appended(id record.ThreadID, entries []record.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seqs == nil {
		l.seqs = make(map[record.ThreadID][]record.Seq)
	}
	for _, e := range entries {
		l.seqs[id] = append(l.seqs[id], e.Seq)
	}
}

func (l *listener) Streamed(_ record.ThreadID, d Delta) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deltas = append(l.deltas, d)
}

func (l *listener) Reset(record.ThreadID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resets++
}

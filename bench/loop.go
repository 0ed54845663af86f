package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"condensate.dev/cnd/adapters/anthropic"
	"condensate.dev/cnd/adapters/memstore"
	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/adapters/simprovider"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/policy"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

const (
	loopRounds = 5  // measured rounds
	loopTurns  = 50 // turns of one round, in one thread
)

// loopScenario makes every turn call one tool and then say that it is done.
const loopScenario = `{"rules":[{"name":"turn","steps":[
	{"blocks":[{"type":"text","text":"I take one step."},{"type":"tool_use","name":"step","input":{"n":1}}]},
	{"blocks":[{"type":"text","text":"It is done."}]}]}]}`

// benchLoop measures what the loop adds to a turn of two requests and one tool call. The reference is the same turn
// without the loop: the same appends to the same kind of store and the same requests to the same simulator, one after
// the other, in the same order.
func benchLoop(w io.Writer) error {
	b, err := newLoopBench()
	if err != nil {
		return err
	}
	defer b.close()
	var ratios, added []float64
	for round := range loopRounds + 1 {
		through, bare, err := b.round()
		if err != nil {
			return err
		}
		if round > 0 { // the first one warms up
			ratios = append(ratios, through.Seconds()/bare.Seconds())
			added = append(added, (through-bare).Seconds()*1e6/loopTurns)
		}
	}
	slices.Sort(ratios)
	slices.Sort(added)
	fmt.Fprintf(w, "turns of two requests and one tool call, median of %d interleaved rounds of %d turns\n\n", loopRounds, loopTurns)
	fmt.Fprintf(w, "through the loop / the same appends and requests without it: %.2f\n", ratios[len(ratios)/2])
	fmt.Fprintf(w, "added by the loop: %.0f µs a turn; %.1f appends a turn\n", added[len(added)/2], float64(b.appends)/float64(b.turns))
	var own []time.Duration
	for range 2*loopRounds + 1 {
		took, err := b.run(loop.Ports{Store: memstore.New(), Model: &instant{}})
		if err != nil {
			return err
		}
		own = append(own, took/loopTurns)
	}
	slices.Sort(own)
	fmt.Fprintf(w, "with store and model in memory: %d µs a turn\n", own[len(own)/2].Microseconds())
	return nil
}

// loopBench is a simulator, a client of it, and two stores: one for the loop and one for the reference.
type loopBench struct {
	dir     string
	server  *http.Server
	client  *anthropic.Client
	store   *pebblestore.Store
	bare    *pebblestore.Store
	log     []action
	over    chan struct{}
	appends int
	turns   int
}

// action is one append or one request of the loop, in the order in which they ended.
type action struct {
	expect  record.Head
	entries []record.Entry
	request *loop.Request
}

func newLoopBench() (*loopBench, error) {
	b := &loopBench{over: make(chan struct{}, 1)}
	scenario, err := simprovider.ReadScenario(strings.NewReader(loopScenario))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.server = &http.Server{Handler: simprovider.New(simprovider.Options{Scenario: scenario, Open: true})}
	go b.server.Serve(listener)
	b.client = anthropic.New(anthropic.Options{
		Dial: map[string]string{"https://api.anthropic.com": "http://" + listener.Addr().String()},
		Key:  func(string) (string, error) { return "sim", nil },
	})
	if b.dir, err = os.MkdirTemp("", "cnd-bench-loop-"); err != nil {
		return nil, err
	}
	if b.store, err = pebblestore.Open(filepath.Join(b.dir, "loop"), pebblestore.Options{}); err != nil {
		return nil, err
	}
	b.bare, err = pebblestore.Open(filepath.Join(b.dir, "bare"), pebblestore.Options{})
	return b, err
}

func (b *loopBench) close() {
	b.store.Close()
	b.bare.Close()
	b.client.Close()
	b.server.Close()
	os.RemoveAll(b.dir)
}

// round runs a thread of loopTurns turns through the loop, then does the same without it.
func (b *loopBench) round() (through, bare time.Duration, err error) {
	b.log = nil
	through, err = b.run(loop.Ports{Store: loggedStore{b.store, b}, Model: loggedModel{b}})
	if err != nil {
		return 0, 0, err
	}
	bare, err = b.replay(context.Background())
	return through, bare, err
}

// run runs a thread of loopTurns turns through the loop, one after the other.
func (b *loopBench) run(p loop.Ports) (time.Duration, error) {
	ctx := context.Background()
	p.Tools, p.Policy, p.Follower, p.Now, p.Entropy = step{}, allowAll{}, turnEnds{b.over}, time.Now, rand.Reader
	host := loop.NewHost(p, loop.Options{Version: "bench"})
	id, err := host.Create(ctx, loop.NewThread{Created: thread.Created{Cwd: "/"}, Epoch: thread.EpochStarted{
		Builder: "anthropic/0", Provider: "anthropic", Account: "anthropic:sim", Model: "sim", Method: http.MethodPost,
		URL: "https://api.anthropic.com/v1/messages", Headers: [][2]string{{"anthropic-version", "2023-06-01"}},
		MaxTokens: 1000, Tools: step{}.Specs(), Cache: thread.Cache{TTL: "5m"},
	}})
	if err != nil {
		return 0, err
	}
	start := time.Now()
	for range loopTurns {
		message := loop.Message{Content: []thread.Block{{Type: thread.BlockText, Text: "take a step"}}}
		if _, err := host.Submit(ctx, id, message); err != nil {
			return 0, err
		}
		<-b.over
	}
	took := time.Since(start)
	return took, host.Close(ctx)
}

// replay does what the log says. What made the thread is not measured.
func (b *loopBench) replay(ctx context.Context) (time.Duration, error) {
	var start time.Time
	for i, a := range b.log {
		if i == 1 {
			start = time.Now()
		}
		if a.request != nil {
			if _, err := b.client.Send(ctx, *a.request, func(string, string) {}); err != nil {
				return 0, err
			}
			continue
		}
		if _, err := b.bare.Append(ctx, a.entries[0].Thread, a.expect, a.entries...); err != nil {
			return 0, err
		}
	}
	took := time.Since(start)
	b.appends += countAppends(b.log) - 1
	b.turns += loopTurns
	return took, nil
}

func countAppends(log []action) int {
	n := 0
	for _, a := range log {
		if a.request == nil {
			n++
		}
	}
	return n
}

// loggedStore notes every append. A thread has one append or request under way at a time, so the log needs no lock.
type loggedStore struct {
	*pebblestore.Store
	bench *loopBench
}

func (s loggedStore) Append(ctx context.Context, id record.ThreadID, expect record.Head, entries ...record.Entry) (record.Head, error) {
	s.bench.log = append(s.bench.log, action{expect: expect, entries: slices.Clone(entries)})
	return s.Store.Append(ctx, id, expect, entries...)
}

// loggedModel notes every request.
type loggedModel struct{ bench *loopBench }

func (m loggedModel) Send(ctx context.Context, r loop.Request, deltas func(kind, text string)) (loop.Answer, error) {
	m.bench.log = append(m.bench.log, action{request: &r})
	return m.bench.client.Send(ctx, r, deltas)
}

// instant is a model that answers as the scenario does, at once.
type instant struct{ sent int }

func (m *instant) Send(context.Context, loop.Request, func(kind, text string)) (loop.Answer, error) {
	m.sent++
	answer := loop.Answer{
		Native: []json.RawMessage{json.RawMessage(`{"type":"text","text":"It is done."}`)},
		View:   []thread.Block{{Type: thread.BlockText, Text: "It is done."}}, StopReason: "end_turn",
	}
	if m.sent%2 == 1 {
		answer.Native = append(answer.Native, json.RawMessage(`{"type":"tool_use","id":"call_1","name":"step","input":{"n":1}}`))
		answer.View = append(answer.View, thread.Block{Type: thread.BlockToolCall, Name: "step", Input: json.RawMessage(`{"n":1}`)})
	}
	return answer, nil
}

// step is a tool that does nothing.
type step struct{}

func (step) Specs() []thread.ToolSpec {
	return []thread.ToolSpec{{Name: "step", Description: "Takes a step.", InputSchema: json.RawMessage(`{"type":"object"}`)}}
}

func (step) Plan(context.Context, loop.Call) (loop.Plan, error) {
	return loop.Plan{Replay: thread.ReplaySafe}, nil
}

func (step) Run(context.Context, loop.Call, loop.Plan, func(string)) loop.Outcome {
	return loop.Outcome{Result: &loop.Result{Content: []thread.Block{{Type: thread.BlockText, Text: "taken"}}}}
}

func (step) Recover(context.Context, loop.Call, thread.ToolStarted) loop.Outcome {
	return loop.Outcome{NotDone: true}
}

type allowAll struct{}

func (allowAll) Decide(context.Context, policy.Event) (policy.Decision, error) {
	return policy.Decision{Verdict: policy.Allow, Rule: "all"}, nil
}

// turnEnds tells when a turn is over.
type turnEnds struct{ over chan struct{} }

func (t turnEnds) Appended(_ record.ThreadID, entries []record.Entry) {
	if entries[len(entries)-1].Kind == record.TurnFinished {
		t.over <- struct{}{}
	}
}

func (turnEnds) Streamed(record.ThreadID, loop.Delta) {}
func (turnEnds) Reset(record.ThreadID)                {}

package loop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"condensate.dev/cnd/adapters/memstore"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/policy"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// world is everything outside the loop, for one thread and one seed: the store, the provider, the files that tools
// change, the clock. It outlives the loop's process, which it kills at a boundary: from then on the world is dead to
// that process and gives nothing but errDead, until reborn is called.
//
// It notes every violation of a promise as it happens; see broken.
type world struct {
	dice   *rand.Rand
	salts  *rand.ChaCha8
	store  *memstore.Store
	now    time.Time
	dead   bool
	killAt int            // boundary at which the process dies; counts down
	kills  int            // kills that may still come
	faults int            // failures of ports that may still come
	killed map[string]int // kills by boundary
	broken []string

	unready bool
	runs    map[string]int          // times that a call was run
	effects map[string]int          // times that a call took effect
	results map[string]bool         // calls whose result was saved by their guard
	bodies  map[record.Seq][32]byte // bodies sent, by their first attempt
	sends   int
}

var errDead = errors.New("the process is dead")

func newWorld(seed uint64, kills, faults int) *world {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	w := &world{
		dice: rand.New(rand.NewPCG(seed, 0)), salts: rand.NewChaCha8(key), store: memstore.New(),
		now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), kills: kills, faults: faults, killed: make(map[string]int),
		runs: make(map[string]int), effects: make(map[string]int), results: make(map[string]bool),
		bodies: make(map[record.Seq][32]byte),
	}
	w.reborn()
	return w
}

// reborn lets a new process begin; the next kill is somewhere ahead.
func (w *world) reborn() {
	w.dead, w.killAt = false, 1+w.dice.IntN(60)
	if w.dice.IntN(4) == 0 {
		w.killAt = 1 + w.dice.IntN(8) // soon: in the middle of the recovery
	}
}

// boundary is a place between two steps of the process where it may die. It says whether the process is dead.
func (w *world) boundary(name string) bool { return w.weighted(name, 1) }

// weighted is a boundary at which the process dies weight times as often as at others: a rare one.
func (w *world) weighted(name string, weight int) bool {
	if w.dead {
		return true
	}
	if w.killAt -= weight; w.killAt <= 0 && w.kills > 0 {
		w.dead = true
		w.kills--
		w.killed[name]++
	}
	return w.dead
}

// chance is true in n of 100 cases.
func (w *world) chance(n int) bool { return w.dice.IntN(100) < n }

// fails says whether a port fails now.
func (w *world) fails(n int) bool {
	if w.faults == 0 || !w.chance(n) {
		return false
	}
	w.faults--
	return true
}

func (w *world) violated(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

func (w *world) ports() *Ports {
	return &Ports{
		Store: simStore{w}, Model: simModel{w}, Tools: simTools{w}, Policy: simPolicy{w}, Follower: deaf{},
		Entropy: w.salts, Ready: w.ready,
		Now: func() time.Time {
			w.now = w.now.Add(time.Microsecond)
			return w.now
		},
	}
}

var errNotReady = fault.New(fault.StorageFull, "disk-low", "little room is left")

func (w *world) ready() error {
	if w.unready {
		return errNotReady
	}
	return nil
}

// deaf is a follower that hears nothing.
type deaf struct{}

func (deaf) Appended(record.ThreadID, []record.Entry) {}
func (deaf) Streamed(record.ThreadID, Delta)          {}
func (deaf) Reset(record.ThreadID)                    {}

// simStore fails as stores do.
type simStore struct{ w *world }

var errDisk = fault.New(fault.Unavailable, "disk", "the disk had a hiccup")

func (s simStore) Append(ctx context.Context, id record.ThreadID, at record.Head, entries ...record.Entry) (record.Head, error) {
	w := s.w
	if w.boundary("before an append") {
		return record.Head{}, errDead
	}
	if w.fails(3) {
		return record.Head{}, errDisk
	}
	head, err := w.store.Append(ctx, id, at, entries...)
	switch {
	case err != nil:
		return head, err
	case w.boundary("after an append"):
		return record.Head{}, errDead
	case w.fails(3):
		return record.Head{}, errDisk // applied all the same
	}
	return head, nil
}

func (s simStore) Head(ctx context.Context, id record.ThreadID) (record.Head, error) {
	if s.w.weighted("between an append and its outcome", 5) {
		return record.Head{}, errDead
	}
	if s.w.fails(20) {
		return record.Head{}, errDisk
	}
	return s.w.store.Head(ctx, id)
}

func (s simStore) Entries(ctx context.Context, id record.ThreadID, from record.Seq) iter.Seq2[record.Entry, error] {
	if s.w.boundary("while reading the record") {
		return func(yield func(record.Entry, error) bool) { yield(record.Entry{}, errDead) }
	}
	return s.w.store.Entries(ctx, id, from)
}

func (s simStore) Blob(ctx context.Context, d record.Digest) ([]byte, error) {
	if s.w.dead {
		return nil, errDead
	}
	return s.w.store.Blob(ctx, d)
}

// entry returns the thread's entry at seq as the store holds it.
func (w *world) entry(id record.ThreadID, seq record.Seq) (record.Entry, bool) {
	for e, err := range w.store.Entries(context.Background(), id, seq) {
		return e, err == nil
	}
	return record.Entry{}, false
}

// simModel answers by the bytes of the request alone, so that a resent request gets the same answer. Whether it
// answers at all is up to the dice.
type simModel struct{ w *world }

func (m simModel) Send(ctx context.Context, r Request, deltas func(kind, text string)) (Answer, error) {
	w := m.w
	if w.boundary("before a send") {
		return Answer{}, errDead
	}
	w.checkSend(r)
	deltas("text", "work")
	if w.boundary("within an answer") {
		return Answer{}, errDead
	}
	if ctx.Err() != nil {
		text := json.RawMessage(`{"type":"text","text":"half an ans"}`)
		return Answer{}, &ModelError{
			Cause: thread.CauseInterrupt, ShownText: "wer", TextBytes: 14, Partial: Answer{Native: []json.RawMessage{text}},
		}
	}
	if w.fails(25) {
		return Answer{}, w.modelError()
	}
	a := answerTo(r.Body)
	if w.boundary("between an answer and its append") {
		return Answer{}, errDead
	}
	return a, nil
}

func (w *world) modelError() *ModelError {
	causes := []string{
		thread.CauseOverloaded, thread.CauseNetwork, thread.CauseMalformed, thread.CauseRateLimited, thread.CauseAuth,
		thread.CauseInvalid,
	}
	e := &ModelError{Cause: causes[w.dice.IntN(len(causes))], Detail: "not today", TextBytes: 4}
	if e.Cause == thread.CauseRateLimited && w.chance(50) {
		e.RetryAt = w.now.Add(time.Hour)
	}
	return e
}

// checkSend holds the promises about requests: written before it is sent, and the same bytes on every attempt.
func (w *world) checkSend(r Request) {
	w.sends++
	e, ok := w.entry(r.Thread, r.Seq)
	b, err := thread.Decode[thread.RequestPrepared](e)
	sum := sha256.Sum256(r.Body)
	first, seen := w.bodies[b.First]
	switch {
	case !ok || e.Kind != record.RequestPrepared || err != nil:
		w.violated("request %d was sent before it was durable", r.Seq)
	case b.BodySHA256 != record.Digest(sum).String():
		w.violated("request %d has other bytes than recorded", r.Seq)
	case b.Attempt != r.Attempt:
		w.violated("request %d is attempt %d, sent as %d", r.Seq, b.Attempt, r.Attempt)
	case b.Attempt > 1 && seen && first != sum:
		w.violated("request %d, attempt %d, has other bytes than attempt 1", r.Seq, b.Attempt)
	case b.Attempt == 1:
		w.bodies[r.Seq] = sum
	}
}

// answerTo gives a few tool calls, or none: the more answers the request holds, the sooner none.
func answerTo(body []byte) Answer {
	sum := sha256.Sum256(body)
	tokens := int64(len(body))
	a := Answer{
		Native:     []json.RawMessage{json.RawMessage(`{"type":"text","text":"working"}`)},
		View:       []thread.Block{{Type: thread.BlockText, Text: "working"}},
		StopReason: "end_turn", Usage: thread.Usage{CacheRead: &tokens},
	}
	calls := int(sum[0] % 4)
	if bytes.Count(body, []byte(`"role":"assistant"`))%4 == 3 {
		calls = 0
	}
	names := []string{"read", "bash", "edit", "refused", "garbled"}
	for i := range calls {
		name := names[int(sum[1+i])%len(names)]
		a.StopReason = "tool_use"
		a.Native = append(a.Native, json.RawMessage(fmt.Sprintf(`{"type":"tool_use","id":"call_%d","name":"%s","input":{"n":%d}}`, i, name, i)))
		b := thread.Block{Type: thread.BlockToolCall, Name: name, Input: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))}
		if name == "garbled" {
			b.Input, b.InputText = nil, `{"n":`
		}
		a.View = append(a.View, b)
	}
	return a
}

// simTools: read is safe, bash and edit are not and have an effect.
type simTools struct{ w *world }

func (simTools) Specs() []thread.ToolSpec { return nil }

func (t simTools) Plan(_ context.Context, c Call) (Plan, error) {
	if t.w.boundary("around a plan") {
		return Plan{}, errDead
	}
	switch c.Name {
	case "read":
		return Plan{Replay: thread.ReplaySafe}, nil
	case "refused":
		return Plan{Refused: &Result{IsError: true, Content: text("no such tool")}}, nil
	}
	return Plan{Replay: thread.ReplayUnsafe, Writes: true}, nil
}

func (t simTools) Run(ctx context.Context, c Call, p Plan, progress func(string)) Outcome {
	w := t.w
	if w.weighted("before a tool's effect", 5) {
		return Outcome{NotDone: true}
	}
	if w.runs[c.ID]++; w.runs[c.ID] > 1 && c.Name != "read" {
		w.violated("call %s (%s) was started %d times", c.ID, c.Name, w.runs[c.ID])
	}
	w.checkStarted(c)
	if ctx.Err() != nil && w.chance(30) {
		return Outcome{NotDone: true}
	}
	w.effects[c.ID]++
	progress("output")
	if w.weighted("after a tool's effect", 5) {
		return Outcome{}
	}
	if ctx.Err() != nil || w.fails(10) {
		return Outcome{Unknown: &thread.ToolUnknown{Cause: "timeout", Partial: "out"}}
	}
	w.results[c.ID] = true
	if w.weighted("between a tool's result and its append", 5) {
		return Outcome{}
	}
	return Outcome{Result: &Result{Content: text("done " + c.ID)}}
}

// checkStarted holds the promise that a tool starts only after its tool.started is durable.
func (w *world) checkStarted(c Call) {
	for e := range w.store.Entries(context.Background(), c.Thread, 0) {
		if e.Kind == record.ToolStarted && must[thread.ToolStarted](e).Call == c.ID {
			return
		}
	}
	w.violated("call %s started before its tool.started was durable", c.ID)
}

func (t simTools) Recover(_ context.Context, c Call, s thread.ToolStarted) Outcome {
	w := t.w
	if w.weighted("before a recovery", 5) {
		return Outcome{}
	}
	if s.Call != c.ID || s.Name != c.Name {
		w.violated("recovery of call %s was asked with the start of %s", c.ID, s.Call)
	}
	o := Outcome{Unknown: &thread.ToolUnknown{}}
	switch {
	case w.results[c.ID]:
		o = Outcome{Result: &Result{Content: text("done " + c.ID)}}
	case w.effects[c.ID] == 0:
		o = Outcome{NotDone: true}
	}
	if w.weighted("after a recovery", 5) {
		return Outcome{}
	}
	return o
}

func text(s string) []thread.Block { return []thread.Block{{Type: thread.BlockText, Text: s}} }

// simPolicy decides by the call's number; sometimes it cannot be reached.
type simPolicy struct{ w *world }

func (p simPolicy) Decide(_ context.Context, e policy.Event) (policy.Decision, error) {
	if p.w.boundary("around a decision") {
		return policy.Decision{}, errDead
	}
	if p.w.fails(15) {
		return policy.Decision{}, errors.New("the policy does not answer")
	}
	sum := sha256.Sum256([]byte(e.Call))
	verdict := []policy.Verdict{policy.Allow, policy.Ask, policy.Allow, policy.Deny, policy.Ask, policy.Allow}[sum[0]%6]
	return policy.Decision{Verdict: verdict, Rule: "by-number", Reason: "because"}, nil
}

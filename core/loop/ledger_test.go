package loop

import (
	"context"
	"fmt"
	"reflect"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/replay"
	"condensate.dev/cnd/core/thread"
)

// checkEnd holds all promises about the record that is left.
func (s *sim) checkEnd() {
	ctx, w := context.Background(), s.w
	if s.m.state.busy() {
		w.violated("the thread is not idle at the end: turn %+v, %d queued", s.m.state.Turn, len(s.m.state.Queue))
	}
	var fold State
	ends := newLedger()
	requests := replay.NewVerifier(source{&machine{ports: &Ports{Store: w.store}, state: s.m.state, base: s.m.base}})
	_, err := record.VerifyThread(ctx, w.store, s.id, record.VerifyOptions{Unsigned: true}, func(e record.Entry) error {
		if err := fold.Apply(e); err != nil {
			return err
		}
		ends.add(e)
		return requests.Add(ctx, e)
	})
	if err != nil {
		w.violated("the record does not verify: %v", err)
	}
	if r := requests.Report(); r.Verified != r.Requests {
		w.violated("%d of %d requests are rebuilt: %v", r.Verified, r.Requests, r.First)
	}
	if !reflect.DeepEqual(fold, s.m.state) {
		w.violated("the fold of the record differs from the state:\n%+v\n%+v", fold, s.m.state)
	}
	for id, seq := range s.accepted {
		if ends.accepted[id] != seq || ends.placed[id] != 1 {
			w.violated("message %s was accepted at %d, stands at %d and was placed %d times", id, seq, ends.accepted[id], ends.placed[id])
		}
	}
	for id, seq := range s.stops {
		if ends.stops[id] != seq {
			w.violated("interrupt %s was accepted at %d, stands at %d", id, seq, ends.stops[id])
		}
	}
	for call, verdict := range s.answers {
		if ends.answers[call] != verdict {
			w.violated("call %s was answered %s first, the record says %s", call, verdict, ends.answers[call])
		}
	}
	for call, n := range w.effects {
		if n > 1 && ends.unsafe[call] {
			w.violated("call %s took effect %d times", call, n)
		}
	}
	w.broken = append(w.broken, ends.broken...)
	w.broken = append(w.broken, ends.close()...)
}

// ledger counts what a record must hold exactly once, without the fold.
type ledger struct {
	accepted, stops map[string]record.Seq
	placed, results map[string]int
	starts          map[string]int
	unsafe          map[string]bool
	answers         map[string]string
	calls           []string
	stopped         map[string]bool // turns that were interrupted
	broken          []string
}

func newLedger() *ledger {
	return &ledger{
		accepted: make(map[string]record.Seq), stops: make(map[string]record.Seq), placed: make(map[string]int),
		results: make(map[string]int), starts: make(map[string]int), unsafe: make(map[string]bool),
		answers: make(map[string]string), stopped: make(map[string]bool),
	}
}

func (l *ledger) add(e record.Entry) {
	switch e.Kind {
	case record.MessageAccepted:
		b := must[acceptedFold](e)
		l.accepted[b.ID] = e.Seq
	case record.MessagePlaced:
		l.placed[must[thread.MessagePlaced](e).ID]++
	case record.TurnInterrupted:
		b := must[thread.TurnInterrupted](e)
		l.stops[b.ID], l.stopped[b.Turn] = e.Seq, true
	case record.RequestPrepared:
		if b := must[thread.RequestPrepared](e); l.stopped[b.Turn] {
			l.broken = append(l.broken, fmt.Sprintf("request %d follows the interrupt of its turn", e.Seq))
		}
	case record.AnswerFinished:
		for _, b := range must[answerFold](e).View {
			if b.Type == thread.BlockToolCall {
				l.calls = append(l.calls, b.Call)
			}
		}
	case record.ApprovalAnswered:
		if b := must[thread.ApprovalAnswered](e); l.answers[b.Call] == "" {
			l.answers[b.Call] = b.Verdict
		}
	case record.ToolStarted:
		b := must[thread.ToolStarted](e)
		l.starts[b.Call]++
		l.unsafe[b.Call] = b.Replay != thread.ReplaySafe
	case record.ToolFinished, record.ToolUnknown:
		l.results[must[resultFold](e).Call]++
	}
}

// close returns what is wrong at the end of a record.
func (l *ledger) close() []string {
	var broken []string
	for _, call := range l.calls {
		if n := l.results[call]; n != 1 {
			broken = append(broken, fmt.Sprintf("call %s has %d results", call, n))
		}
		if n := l.starts[call]; n > 1 && l.unsafe[call] {
			broken = append(broken, fmt.Sprintf("call %s has %d starts and is unsafe", call, n))
		}
	}
	return broken
}

func must[T any](e record.Entry) T {
	b, err := thread.Decode[T](e)
	if err != nil {
		panic(err)
	}
	return b
}

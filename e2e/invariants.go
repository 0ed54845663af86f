package e2e

import (
	"fmt"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// Story is what the entries of a finished thread say about its crashes.
type Story struct {
	Entries     int
	Generations uint64
	Requests    int
	Resent      []record.Seq // request.prepared entries with an attempt above 1
	Calls       int
	Unknown     []string // calls whose effect nobody knows
	Recovered   []string // calls whose result was found after a crash
	Rerun       []string // safe calls that ran again
}

// call is what happened to one tool call.
type call struct {
	starts, results int
	unsafe          bool
}

// Tell reads a whole thread that has come to rest and returns its story, and every promise that it breaks: an unsafe
// tool started twice for one call, a call without exactly one result, a message lost or placed twice, a resent
// request with another fingerprint, a turn that never ended.
func Tell(entries []record.Entry) (Story, []string) {
	var (
		story    Story
		broken   []string
		calls    = map[string]*call{}
		order    []string
		accepted = map[string]int{}
		requests = map[record.Seq]thread.RequestPrepared{}
		answers  = map[record.Seq]int{}
		turns    = map[string]int{}
	)
	failed := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	the := func(id string) *call {
		if calls[id] == nil {
			calls[id] = &call{}
			order = append(order, id)
		}
		return calls[id]
	}
	for _, e := range entries {
		story.Entries++
		story.Generations = e.Gen
		switch e.Kind {
		case record.MessageAccepted:
			accepted[body[thread.MessageAccepted](e).ID] = 0
		case record.MessagePlaced:
			accepted[body[thread.MessagePlaced](e).ID]++
		case record.TurnStarted:
			turns[body[thread.TurnStarted](e).Turn]++
		case record.TurnFinished:
			turns[body[thread.TurnFinished](e).Turn]--
		case record.RequestPrepared:
			r := body[thread.RequestPrepared](e)
			requests[e.Seq] = r
			answers[e.Seq] = 0
			story.Requests++
			if r.Attempt > 1 {
				story.Resent = append(story.Resent, e.Seq)
				if first := requests[r.First]; first.Fingerprint != r.Fingerprint {
					failed("request %d is attempt %d of request %d and has another fingerprint", e.Seq, r.Attempt, r.First)
				}
			}
		case record.AnswerFinished:
			a := body[thread.AnswerFinished](e)
			answers[a.Request]++
			for _, b := range a.View {
				if b.Type == "tool_call" {
					the(b.Call)
				}
			}
		case record.AnswerAborted:
			answers[body[thread.AnswerAborted](e).Request]++
		case record.ToolStarted:
			s := body[thread.ToolStarted](e)
			c := the(s.Call)
			c.starts++
			c.unsafe = s.Replay != thread.ReplaySafe
		case record.ToolFinished:
			f := body[thread.ToolFinished](e)
			the(f.Call).results++
			if f.Recovered {
				story.Recovered = append(story.Recovered, f.Call)
			}
		case record.ToolUnknown:
			u := body[thread.ToolUnknown](e)
			the(u.Call).results++
			story.Unknown = append(story.Unknown, u.Call)
		}
	}
	story.Calls = len(order)
	for _, id := range order {
		switch c := calls[id]; {
		case c.unsafe && c.starts > 1:
			failed("call %s is unsafe and started %d times", id, c.starts)
		case c.results != 1:
			failed("call %s has %d results", id, c.results)
		case c.starts > 1:
			story.Rerun = append(story.Rerun, id)
		}
	}
	for id, placed := range accepted {
		if placed != 1 {
			failed("message %s was placed %d times", id, placed)
		}
	}
	for seq, n := range answers {
		if n != 1 {
			failed("request %d has %d answers", seq, n)
		}
	}
	for id, open := range turns {
		if open != 0 {
			failed("turn %s was started and finished %+d times too often", id, open)
		}
	}
	return story, broken
}

// body decodes the body of e, whose kind says that it has that type; an entry that lies shows as a zero body, and so as
// a broken promise.
func body[T any](e record.Entry) T {
	b, _ := thread.Decode[T](e)
	return b
}

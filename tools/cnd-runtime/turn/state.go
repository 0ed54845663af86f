// Package turn tells from the entries of a thread whether the agent works or waits for a person. It is a view: the
// owner of the thread decides by its own fold.
package turn

import (
	"slices"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// State is folded from the entries that were seen. The zero value has seen none.
type State struct {
	Next    record.Seq // seq of the entry that comes next
	Open    bool       // a turn is open
	Queued  int        // messages that no turn has taken yet
	Pending []string   // calls that wait for an approval, oldest first
	Halted  string     // why the turn goes on only when a person says so; "" when it does not wait for that
}

// Apply folds e. A body that does not fit changes nothing.
func (s *State) Apply(e record.Entry) {
	s.Next = e.Seq + 1
	if e.Body == nil {
		return
	}
	switch e.Kind {
	case record.MessageAccepted:
		s.Queued++
	case record.MessagePlaced:
		s.Queued--
	case record.TurnStarted:
		s.Open, s.Halted = true, ""
	case record.TurnFinished:
		s.Open, s.Halted, s.Pending = false, "", nil
	case record.TurnLost:
		s.Halted = "lost"
	case record.TurnWaiting:
		if b, err := thread.Decode[thread.TurnWaiting](e); err == nil {
			s.Halted = ""
			if b.Reason == thread.WaitLogin || b.Reason == thread.WaitResume {
				s.Halted = b.Reason
			}
		}
	case record.RequestPrepared, record.TurnInterrupted:
		s.Halted = ""
	case record.ApprovalAsked:
		if b, err := thread.Decode[thread.ApprovalAsked](e); err == nil {
			s.Pending = append(s.Pending, b.Call)
		}
	case record.ApprovalAnswered, record.ToolFinished:
		if b, err := thread.Decode[struct{ Call string }](e); err == nil {
			s.Settle(b.Call)
		}
	}
}

// Settle says that the call does not wait for an approval any more.
func (s *State) Settle(call string) {
	s.Pending = slices.DeleteFunc(s.Pending, func(c string) bool { return c == call })
}

// Idle says that nothing runs and nothing is queued.
func (s *State) Idle() bool { return !s.Open && s.Queued <= 0 }

// NeedsPerson says that the thread goes on only after somebody said something.
func (s *State) NeedsPerson() bool { return s.Idle() || len(s.Pending) > 0 || s.Halted != "" }

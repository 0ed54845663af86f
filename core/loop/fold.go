package loop

import (
	"fmt"
	"slices"
	"time"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// Errors of the fold.
var (
	// ErrUnknownKind: the record holds a kind of entry that this program does not know.
	ErrUnknownKind = fault.New(fault.Config, "unknown-kind", "the record was written by a newer version")
	// ErrBroken: the entries contradict each other or the rules of the loop.
	ErrBroken = fault.New(fault.Corrupt, "record-broken", "the entries contradict each other")
)

// Apply folds the next entry into s. It never reads the time of an entry. An entry that does not follow the ones
// before it, or that breaks a rule which the loop never breaks, is an error wrapping [ErrBroken]; an unknown kind one
// wrapping [ErrUnknownKind]. After an error s is of no use.
//
// A body that was erased counts as far as its kind alone tells.
func (s *State) Apply(e record.Entry) error {
	if e.Seq != s.Head.Next() || e.Prev != s.Head.Hash {
		return fmt.Errorf("entry %d of %s does not follow entry %d: %w", e.Seq, e.Thread, s.Head.Seq, ErrBroken)
	}
	if s.Messages == nil {
		s.Messages = make(map[string]Accepted)
		s.Interrupts = make(map[string]record.Seq)
		s.Approvals = make(map[string]Approval)
	}
	s.Thread, s.Head = e.Thread, e.Head()
	if e.Body == nil {
		return s.applyErased(e)
	}
	switch e.Kind {
	case record.ThreadCreated:
		return fold(e, func(b thread.Created) error {
			s.Created = b
			return nil
		})
	case record.ThreadForked: // a fork inherits the conversation, not the work
		s.Turn, s.Queue = nil, nil
	case record.EngineStarted:
		return fold(e, s.engineStarted(e))
	case record.EpochStarted:
		return fold(e, func(b thread.EpochStarted) error {
			s.Epoch = Epoch{EpochStarted: b, Seq: e.Seq}
			return nil
		})
	case record.MessageAccepted:
		return fold(e, func(b acceptedFold) error {
			if _, ok := s.Messages[b.ID]; ok {
				return broken(e, "message %s was accepted before", b.ID)
			}
			s.Messages[b.ID] = Accepted{Seq: e.Seq, BodySHA256: b.BodySHA256}
			s.Queue = append(s.Queue, Queued{ID: b.ID, Seq: e.Seq, Mode: b.Mode})
			return nil
		})
	case record.MessagePlaced:
		return fold(e, s.messagePlaced(e))
	case record.TurnStarted:
		return fold(e, func(b thread.TurnStarted) error {
			if s.Turn != nil {
				return broken(e, "turn %s is not finished", s.Turn.ID)
			}
			s.Turn = &Turn{ID: b.Turn}
			return nil
		})
	case record.HistoryRepaired:
		if s.Turn != nil {
			s.Turn.Request = nil // what follows has other bytes
			s.Turn.Repairs++
		}
	case record.ThreadArchived, record.StepUndone, record.EntryErased, record.NoteInjected,
		record.IncidentSeen, record.ReceiptSeen, record.ReceiptLost: // nothing that the loop decides from
	default:
		return s.applyTurn(e)
	}
	return nil
}

// What the fold reads of bodies that hold content: the content is not decoded.
type (
	acceptedFold struct {
		ID         string `json:"id"`
		Mode       string `json:"mode"`
		BodySHA256 string `json:"body_sha256"`
	}
	answerFold struct {
		Request    record.Seq     `json:"request"`
		View       []thread.Block `json:"view"`
		StopReason string         `json:"stop_reason"`
		Usage      thread.Usage   `json:"usage"`
	}
	abortedFold struct {
		Request record.Seq   `json:"request"`
		Usage   thread.Usage `json:"usage"`
		Aborted
	}
	resultFold struct {
		Call string `json:"call"`
	}
)

// applyErased folds an entry whose body is gone. Bodies of a running turn are never erased, so what became of its calls
// no longer matters.
func (s *State) applyErased(e record.Entry) error {
	if s.Turn == nil || s.Turn.Request == nil {
		return nil
	}
	switch e.Kind {
	case record.AnswerFinished, record.AnswerAborted, record.ToolFinished, record.ToolUnknown:
		s.Turn.Request.Open = false
		s.Turn.Answer = &Answered{}
	}
	return nil
}

// applyTurn folds the kinds that belong to a running turn.
func (s *State) applyTurn(e record.Entry) error {
	apply := s.turnFold(e.Kind)
	if apply == nil {
		return fmt.Errorf("entry %d of %s has the unknown kind %s (engine version %s): %w",
			e.Seq, e.Thread, e.Kind, s.Version, ErrUnknownKind)
	}
	if s.Turn == nil {
		return broken(e, "no turn is running")
	}
	return apply(s.Turn, e)
}

func (s *State) turnFold(k record.Kind) func(*Turn, record.Entry) error {
	switch k {
	case record.TurnWaiting:
		return s.turnWaiting
	case record.TurnInterrupted:
		return s.turnInterrupted
	case record.TurnFinished:
		return s.turnFinished
	case record.TurnLost:
		return s.turnLost
	case record.RequestPrepared:
		return s.requestPrepared
	case record.AnswerFinished:
		return s.answerFinished
	case record.AnswerAborted:
		return s.answerAborted
	case record.PolicyDecided:
		return s.policyDecided
	case record.ApprovalAsked:
		return s.approvalAsked
	case record.ApprovalAnswered:
		return s.approvalAnswered
	case record.ToolStarted:
		return s.toolStarted
	case record.ToolFinished, record.ToolUnknown:
		return s.toolFinished
	}
	return nil
}

func (s *State) engineStarted(e record.Entry) func(thread.EngineStarted) error {
	return func(b thread.EngineStarted) error {
		if e.Gen <= s.Gen {
			return broken(e, "generation %d after %d", e.Gen, s.Gen)
		}
		s.Gen, s.Version = e.Gen, b.Version
		if s.Turn != nil && b.Reason == thread.EngineResumed {
			s.Turn.Resumed, s.Turn.Lost, s.Turn.Waiting = true, false, nil
		}
		return nil
	}
}

func (s *State) messagePlaced(e record.Entry) func(thread.MessagePlaced) error {
	return func(b thread.MessagePlaced) error {
		m, ok := s.Messages[b.ID]
		if ok && m.Placed {
			return broken(e, "message %s was placed before", b.ID)
		}
		if ok {
			m.Placed = true
			s.Messages[b.ID] = m
		}
		s.Queue = slices.DeleteFunc(s.Queue, func(q Queued) bool { return q.Seq == b.Accepted })
		if len(s.Queue) == 0 {
			s.Queue = nil
		}
		return nil
	}
}

func (s *State) turnWaiting(t *Turn, e record.Entry) error {
	return fold(e, func(b thread.TurnWaiting) error {
		t.Waiting = &Waiting{Reason: b.Reason, Call: b.Call}
		t.Resumed = false
		if b.Until == "" {
			return nil
		}
		until, err := time.Parse(time.RFC3339, b.Until)
		t.Waiting.Until = until
		return err
	})
}

func (s *State) turnInterrupted(t *Turn, e record.Entry) error {
	return fold(e, func(b thread.TurnInterrupted) error {
		s.Interrupts[b.ID] = e.Seq
		t.Interrupted, t.Lost, t.Waiting = true, false, nil
		return nil
	})
}

func (s *State) turnFinished(t *Turn, e record.Entry) error {
	if n := len(t.unfinished()); n > 0 {
		return broken(e, "%d calls have no result", n)
	}
	s.Turn = nil
	return nil
}

func (s *State) turnLost(t *Turn, _ record.Entry) error {
	t.Lost, t.Waiting = true, nil
	return nil
}

func (s *State) requestPrepared(t *Turn, e record.Entry) error {
	return fold(e, func(b thread.RequestPrepared) error {
		if b.Attempt > 1 && (t.Request == nil || t.Request.Fingerprint != b.Fingerprint) {
			return broken(e, "attempt %d has another fingerprint than the one before", b.Attempt)
		}
		t.Request = &Prepared{RequestPrepared: b, Seq: e.Seq, Open: true}
		t.Answer = nil
		t.goOn()
		return nil
	})
}

func (s *State) answerFinished(t *Turn, e record.Entry) error {
	return fold(e, func(b answerFold) error {
		if err := s.closeRequest(t, e, b.Request, b.Usage); err != nil {
			return err
		}
		t.Answer = &Answered{StopReason: b.StopReason}
		for _, block := range b.View {
			if block.Type == thread.BlockToolCall {
				t.Answer.Calls = append(t.Answer.Calls, &Called{ID: block.Call, Name: block.Name, Input: block.Input})
			}
		}
		return nil
	})
}

func (s *State) answerAborted(t *Turn, e record.Entry) error {
	return fold(e, func(b abortedFold) error {
		if err := s.closeRequest(t, e, b.Request, b.Usage); err != nil {
			return err
		}
		t.Request.Aborted = &b.Aborted
		return nil
	})
}

// closeRequest ends the open request and remembers what its cache holds.
func (s *State) closeRequest(t *Turn, e record.Entry, request record.Seq, u thread.Usage) error {
	if t.Request == nil || !t.Request.Open || t.Request.Seq != request {
		return broken(e, "request %d is not open", request)
	}
	t.Request.Open = false
	if u.CacheRead != nil || u.CacheWrite != nil {
		s.Epoch.Cached = value(u.CacheRead) + value(u.CacheWrite)
	}
	t.goOn()
	return nil
}

func (s *State) policyDecided(t *Turn, e record.Entry) error {
	return fold(e, func(b thread.PolicyDecided) error {
		t.goOn()
		c := s.call(b.Call)
		if c == nil {
			return nil
		}
		c.By, c.Reason, c.Paths = "rule "+b.Rule, b.Reason, b.Paths
		switch b.Verdict {
		case thread.VerdictAllow:
			c.Status = CallAllowed
		case thread.VerdictAsk:
			c.Status = CallAsk
		default:
			c.Status = CallDenied
		}
		return nil
	})
}

func (s *State) approvalAsked(_ *Turn, e record.Entry) error {
	return fold(e, func(b thread.ApprovalAsked) error {
		s.Approvals[b.Call] = Approval{Asked: e.Seq}
		if c := s.call(b.Call); c != nil {
			c.Status = CallAsked
		}
		return nil
	})
}

func (s *State) approvalAnswered(t *Turn, e record.Entry) error {
	return fold(e, func(b thread.ApprovalAnswered) error {
		a := s.Approvals[b.Call]
		if a.Verdict != "" {
			return nil // the first answer wins
		}
		a.Answered, a.Verdict = e.Seq, b.Verdict
		s.Approvals[b.Call] = a
		t.goOn()
		c := s.call(b.Call)
		if c == nil || c.Status != CallAsked {
			return nil
		}
		c.Status, c.By, c.Reason = CallDenied, b.By, b.Reason
		if b.Verdict == thread.VerdictAllow {
			c.Status, c.Reason = CallAllowed, ""
		}
		return nil
	})
}

func (s *State) toolStarted(t *Turn, e record.Entry) error {
	return fold(e, func(b thread.ToolStarted) error {
		t.goOn()
		c := s.call(b.Call)
		if c == nil {
			return nil
		}
		if c.Status == CallStarted && !c.safe() {
			return broken(e, "call %s had started and is unsafe", b.Call)
		}
		c.Status, c.Started, c.Gen = CallStarted, b, e.Gen
		return nil
	})
}

// toolFinished folds tool.finished and tool.unknown: both are the one result of a call.
func (s *State) toolFinished(t *Turn, e record.Entry) error {
	return fold(e, func(b resultFold) error {
		t.goOn()
		c := s.call(b.Call)
		if c == nil {
			return nil
		}
		if c.Status == CallDone {
			return broken(e, "call %s has a result", b.Call)
		}
		c.Status = CallDone
		return nil
	})
}

// goOn notes that the turn does something: whatever it waited for is over.
func (t *Turn) goOn() { t.Waiting, t.Resumed = nil, false }

func fold[T any](e record.Entry, apply func(T) error) error {
	body, err := thread.Decode[T](e)
	if err != nil {
		return err
	}
	return apply(body)
}

func broken(e record.Entry, format string, args ...any) error {
	return fmt.Errorf("entry %d of %s (%s): %s: %w", e.Seq, e.Thread, e.Kind, fmt.Sprintf(format, args...), ErrBroken)
}

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

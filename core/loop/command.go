package loop

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire/builder"
)

// MaxQueue is how many messages may wait for a turn; a further one is refused.
const MaxQueue = 1000

// MaxCommandID is the longest id of an interrupt, in bytes.
const MaxCommandID = 128

// Errors of commands.
var (
	ErrInvalidMessage = fault.New(fault.Invalid, "invalid-message", "message cannot be taken")
	ErrInvalidThread  = fault.New(fault.Invalid, "invalid-thread", "thread cannot be made")
	ErrInvalidCommand = fault.New(fault.Invalid, "invalid-command", "command cannot be taken")
	ErrMessageID      = fault.New(fault.Conflict, "message-id-conflict", "another message has this id")
	ErrThreadExists   = fault.New(fault.Conflict, "thread-exists", "another thread has this id")
	ErrBusy           = fault.New(fault.Conflict, "thread-busy", "the thread is busy")
	ErrQueueFull      = fault.New(fault.Exhausted, "queue-full", "too many messages wait for a turn")
	ErrNotRunning     = fault.New(fault.Conflict, "not-running", "no turn is running")
	ErrStopping       = fault.New(fault.Conflict, "turn-interrupted", "the turn was interrupted and is about to end")
	ErrWaitsApproval  = fault.New(fault.Conflict, "waiting-for-approval", "the turn waits for an approval")
	ErrNoApproval     = fault.New(fault.NotFound, "no-such-approval", "nobody was asked about this call")
	ErrAnswered       = fault.New(fault.Conflict, "already-answered", "the first answer counts, and it was another one")
	ErrNotWaiting     = fault.New(fault.Conflict, "approval-over", "the call no longer waits for an approval")
)

// submit accepts a message that was checked.
func submit(m thread.MessageAccepted, blobs []record.Blob, ready func() error) command {
	return func(s *State) ([]Draft, Receipt, error) {
		if had, ok := s.Messages[m.ID]; ok {
			if had.BodySHA256 != m.BodySHA256 {
				return nil, Receipt{}, fmt.Errorf("message %s: %w", m.ID, ErrMessageID)
			}
			return nil, Receipt{Seq: had.Seq, State: ReceiptDuplicate}, nil
		}
		switch {
		case s.busy() && m.Mode == thread.ModeStartIfIdle:
			return nil, Receipt{Seq: s.Head.Seq, State: ReceiptSkipped}, nil
		case s.busy() && m.Mode == thread.ModeReject:
			return nil, Receipt{}, fmt.Errorf("message %s: %w", m.ID, ErrBusy)
		case len(s.Queue) >= MaxQueue:
			return nil, Receipt{}, fmt.Errorf("message %s: %d wait already: %w", m.ID, MaxQueue, ErrQueueFull)
		}
		if err := ready(); err != nil {
			return nil, Receipt{}, err
		}
		return []Draft{{Kind: record.MessageAccepted, Body: m, Blobs: blobs}}, Receipt{State: ReceiptAccepted}, nil
	}
}

// interrupt stops the running turn. A second interrupt of a turn is recorded too, so that its id is known.
func interrupt(by, id string) command {
	return func(s *State) ([]Draft, Receipt, error) {
		if seq, ok := s.Interrupts[id]; ok {
			return nil, Receipt{Seq: seq, State: ReceiptDuplicate}, nil
		}
		if s.Turn == nil {
			return nil, Receipt{}, ErrNotRunning
		}
		return []Draft{{Kind: record.TurnInterrupted, Body: thread.TurnInterrupted{Turn: s.Turn.ID, By: by, ID: id}}},
			Receipt{State: ReceiptAccepted}, nil
	}
}

// resume ends whatever a lost or waiting turn waits for.
func resume(s *State) ([]Draft, Receipt, error) {
	t := s.Turn
	switch {
	case t == nil:
		return nil, Receipt{}, ErrNotRunning
	case t.Interrupted:
		return nil, Receipt{}, ErrStopping
	case t.Waiting != nil && t.Waiting.Reason == thread.WaitApproval:
		return nil, Receipt{}, fault.WithHint(fmt.Errorf("call %s: %w", t.Waiting.Call, ErrWaitsApproval),
			fmt.Sprintf("cnd-runtime thread approve %s %s", s.Thread, t.Waiting.Call))
	case !t.Lost && t.Waiting == nil:
		return nil, Receipt{Seq: s.Head.Seq, State: ReceiptDuplicate}, nil
	}
	return []Draft{{Kind: record.EngineStarted, Body: thread.EngineStarted{
		Engine: s.Created.Engine, Reason: thread.EngineResumed,
	}}}, Receipt{State: ReceiptAccepted}, nil
}

// answer answers an approval.
func answer(a thread.ApprovalAnswered) command {
	return func(s *State) ([]Draft, Receipt, error) {
		asked, ok := s.Approvals[a.Call]
		switch {
		case !ok:
			return nil, Receipt{}, fmt.Errorf("call %.80q: %w", a.Call, ErrNoApproval)
		case asked.Verdict == a.Verdict:
			return nil, Receipt{Seq: asked.Answered, State: ReceiptDuplicate}, nil
		case asked.Verdict != "":
			return nil, Receipt{}, fmt.Errorf("call %s was answered with %s: %w", a.Call, asked.Verdict, ErrAnswered)
		}
		if c := s.call(a.Call); c == nil || c.Status != CallAsked {
			return nil, Receipt{}, fmt.Errorf("call %s: %w", a.Call, ErrNotWaiting)
		}
		return []Draft{{Kind: record.ApprovalAnswered, Body: a}}, Receipt{State: ReceiptAccepted}, nil
	}
}

// create starts the record of a thread. The same thread again, as its thread.created tells, changes nothing.
func create(n NewThread, ready func() error) command {
	return func(s *State) ([]Draft, Receipt, error) {
		if !s.Head.Hash.IsZero() {
			first := s.Created
			first.HeadKey = n.Created.HeadKey // the key of the runtime may have changed since
			if !bytes.Equal(thread.Encode(first), thread.Encode(n.Created)) {
				return nil, Receipt{}, fmt.Errorf("thread %s: %w", n.ID, ErrThreadExists)
			}
			return nil, Receipt{Seq: 0, State: ReceiptDuplicate}, nil
		}
		if err := ready(); err != nil {
			return nil, Receipt{}, err
		}
		return []Draft{
			{Kind: record.ThreadCreated, Body: n.Created},
			{Kind: record.EngineStarted, Body: thread.EngineStarted{Engine: n.Created.Engine, Reason: thread.EngineCreated}},
			{Kind: record.EpochStarted, Body: n.Epoch},
		}, Receipt{State: ReceiptAccepted}, nil
	}
}

// checked returns n with its defaults, or all that is wrong with it.
func (n NewThread) checked() (NewThread, error) {
	n.Created.Engine = cmp.Or(n.Created.Engine, "loop")
	n.Created.Resume = cmp.Or(n.Created.Resume, thread.ResumeAuto)
	n.Epoch.Reason = cmp.Or(n.Epoch.Reason, thread.EpochCreated)
	var wrong []string
	check := func(ok bool, problem string) {
		if !ok {
			wrong = append(wrong, problem)
		}
	}
	check(record.ValidID(record.PrefixThread, string(n.ID)), "id is not thr_ and 26 characters")
	check(strings.HasPrefix(n.Created.Cwd, "/"), "cwd is not absolute")
	check(n.Created.Engine == "loop", "engine is not loop")
	check(n.Created.Resume == thread.ResumeAuto || n.Created.Resume == thread.ResumeAsk, "resume is neither auto nor ask")
	check(builder.Known(n.Epoch.Builder), "builder is not known")
	check(n.Epoch.Method != "" && n.Epoch.URL != "", "method or url is missing")
	check(n.Epoch.Model != "", "model is missing")
	check(n.Epoch.MaxTokens > 0, "max_tokens is not positive")
	if len(wrong) > 0 {
		return n, fmt.Errorf("%s: %w", strings.Join(wrong, "; "), ErrInvalidThread)
	}
	return n, nil
}

// checkAnswer says what is wrong with an answer to an approval.
func checkAnswer(a thread.ApprovalAnswered) error {
	if a.Verdict != thread.VerdictAllow && a.Verdict != thread.VerdictDeny {
		return fmt.Errorf("verdict %.20q is neither allow nor deny: %w", a.Verdict, ErrInvalidCommand)
	}
	return nil
}

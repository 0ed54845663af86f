package loop

import (
	"encoding/json"
	"time"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// State is what the entries of a thread say: the fold of its record and nothing else. It is what [Next] decides from.
type State struct {
	Thread  record.ThreadID
	Head    record.Head
	Gen     uint64 // of the newest engine.started; 0 before the first
	Version string // of the program that wrote it
	Created thread.Created
	Epoch   Epoch

	Messages   map[string]Accepted   // every accepted message by its id
	Interrupts map[string]record.Seq // every interrupt command by its id
	Approvals  map[string]Approval   // every approval that was asked for, by call
	Queue      []Queued              // accepted and not placed, oldest first
	Turn       *Turn                 // nil when idle
}

// Epoch is the newest epoch.started.
type Epoch struct {
	thread.EpochStarted
	Seq record.Seq
	// Cached is how many tokens the last request of the epoch read from the provider's cache or wrote to it: the
	// price of leaving the epoch.
	Cached int64
}

// Accepted says where a message was accepted, and what it was.
type Accepted struct {
	Seq        record.Seq
	BodySHA256 string
	Placed     bool
}

// Queued is a message that no turn holds yet.
type Queued struct {
	ID   string
	Seq  record.Seq
	Mode string
}

// Approval is a question to a person and the first answer to it.
type Approval struct {
	Asked    record.Seq
	Answered record.Seq // meaningful when Verdict is not ""
	Verdict  string
}

// Turn is the turn that is not finished.
type Turn struct {
	ID          string
	Interrupted bool
	Lost        bool
	// Resumed says that a person asked to go on and nothing was done about it yet: waits are over.
	Resumed bool
	Waiting *Waiting
	Request *Prepared // the newest request; nil before the first, and when the history was repaired since
	Answer  *Answered // the newest answer; nil when a request came after it
	Repairs int       // blocks repaired in this turn
}

// Waiting is a turn.waiting that nothing has ended.
type Waiting struct {
	Reason string
	Call   string
	Until  time.Time // zero when nobody knows
}

// Prepared is a request and what became of its newest attempt.
type Prepared struct {
	thread.RequestPrepared
	Seq  record.Seq // of the newest attempt
	Open bool       // neither answered nor aborted
	// Aborted is set when the newest attempt got no answer.
	Aborted *Aborted
}

// Aborted is why an attempt got no answer.
type Aborted struct {
	Cause   string `json:"cause"`
	Detail  string `json:"detail"`
	RetryAt string `json:"retry_at"`
}

// first returns the seq of attempt 1 of the same bytes.
func (p *Prepared) first() record.Seq {
	if p.Attempt == 1 {
		return p.Seq
	}
	return p.First
}

// Answered is an answer and its calls in order.
type Answered struct {
	StopReason string
	Calls      []*Called
}

// CallStatus says how far a tool call came.
type CallStatus uint8

// The statuses of a call, in the order in which they are passed; most calls skip some.
const (
	CallPending CallStatus = iota // nothing happened
	CallAsk                       // the policy wants a person to decide
	CallAsked                     // and the person was asked
	CallDenied                    // it will not run; By and Reason say who stopped it and why
	CallAllowed                   // it may start
	CallStarted                   // it started in generation Gen; Started says what it does
	CallDone                      // it has its one result
)

// Called is a tool call of the newest answer.
type Called struct {
	ID      string
	Name    string
	Input   json.RawMessage // nil when it is no JSON
	Status  CallStatus
	By      string
	Reason  string
	Paths   []string // that the decision is about
	Started thread.ToolStarted
	Gen     uint64
}

// safe says whether the call may run again after it had started.
func (c *Called) safe() bool { return c.Started.Replay == thread.ReplaySafe }

// call returns the call of the newest answer with that id, or nil.
func (s *State) call(id string) *Called {
	if s.Turn == nil || s.Turn.Answer == nil {
		return nil
	}
	for _, c := range s.Turn.Answer.Calls {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// unfinished returns the calls of the newest answer that have no result.
func (t *Turn) unfinished() []*Called {
	if t.Answer == nil {
		return nil
	}
	var open []*Called
	for _, c := range t.Answer.Calls {
		if c.Status != CallDone {
			open = append(open, c)
		}
	}
	return open
}

// busy says whether the thread has something to do.
func (s *State) busy() bool { return s.Turn != nil || len(s.Queue) > 0 }

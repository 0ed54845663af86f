package loop

import (
	"fmt"
	"strings"
	"time"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// Limits of a turn.
const (
	// MaxAttempts is how often the same request is sent. After the last one failed, the turn fails; only a person's
	// resume sends it once more.
	MaxAttempts = 10
	// MaxRepairs is how many blocks are repaired in one turn; with more to repair, the turn fails.
	MaxRepairs = 1000
	// MinBackoff is the wait after a first failed attempt; each further one doubles it, up to MaxBackoff.
	MinBackoff = time.Second
	// MaxBackoff is the longest wait that the provider did not ask for.
	MaxBackoff = time.Minute
	// ReadyPoll is how long the loop waits before it asks again whether new work may start.
	ReadyPoll = 5 * time.Second
)

// EffectKind says what an effect does.
type EffectKind uint8

// The kinds of effects. Only EffectSend has a Request, only the others have a Call.
const (
	EffectSend    EffectKind = iota // send the open request
	EffectJudge                     // plan the call and ask the policy about it
	EffectRun                       // run the call that was planned
	EffectRecover                   // find out about a call that had started before a crash
)

// Effect names something that touches the world. The same effect is never in flight twice.
type Effect struct {
	Kind    EffectKind
	Request record.Seq
	Call    string
}

// Live is what a process knows of a thread beyond the record: none of it is needed to go on after a crash, and without
// it the loop decides more carefully.
type Live struct {
	Now     time.Time
	Gen     uint64 // generation that this process started; 0 before it started one
	Closing bool   // nothing new may start
	Unready string // why no new work may start now; "" when it may
	// Held says that the open request was prepared here and not sent yet, so that its bytes are known.
	Held bool
	// Plans holds the plans of calls that were not run with them yet.
	Plans map[string]Plan
	// ProbeAt is when a policy that failed may be asked again, Probes how often it failed in a row.
	ProbeAt time.Time
	Probes  int
	// Running holds the effects in flight, also those that were canceled and have not ended.
	Running map[Effect]*Flight
}

// Draft is an entry to append, without what the driver adds.
type Draft struct {
	Kind  record.Kind
	Body  any
	Blobs []record.Blob
}

// Prepare asks the driver to build a request: the answer is a request.prepared, or what must be appended instead.
type Prepare struct {
	// Again is the aborted request whose bytes must be built again; nil for a new request.
	Again *Prepared
	// Refused says that the provider called Again invalid: it is not sent again, but something may need repair.
	Refused bool
}

// Step is what comes next. When Append or Prepare is set, it is done first and the rest is empty.
type Step struct {
	Append  []Draft
	Prepare *Prepare
	// Run holds every effect that should be in flight; others that are in flight are canceled.
	Run []Effect
	// Wake says when to ask again although nothing happened; zero for never.
	Wake time.Time
}

// Next decides what comes next. It is pure: nothing but s and l goes in, and neither is changed.
func Next(s *State, l *Live) Step {
	switch {
	case l.Closing:
		return stay(l)
	case !s.busy():
		return Step{}
	case l.Gen != s.Gen:
		return startEngine(s)
	case s.Turn == nil && l.Unready != "":
		return Step{Wake: l.Now.Add(ReadyPoll)}
	case s.Turn == nil:
		return startTurn(s)
	case s.Turn.Lost:
		return Step{}
	case s.Turn.Request != nil && s.Turn.Request.Open:
		return nextAnswer(s, l)
	}
	if open := s.Turn.unfinished(); len(open) > 0 {
		return nextCall(s, l, open)
	}
	return nextRequest(s, l)
}

// stay lets what runs go on and starts nothing.
func stay(l *Live) Step {
	var step Step
	for e := range l.Running {
		step.Run = append(step.Run, e)
	}
	return step
}

// startEngine starts a generation: this process did not yet work on the thread. A turn that was at work when the
// process before died is marked lost if its owner wants to be asked; one that waited, waits on.
func startEngine(s *State) Step {
	started := thread.EngineStarted{Engine: s.Created.Engine, Reason: thread.EngineReopened}
	if s.Turn == nil {
		return appends(Draft{Kind: record.EngineStarted, Body: started})
	}
	started.Reason = thread.EngineRecovered
	step := appends(Draft{Kind: record.EngineStarted, Body: started})
	t := s.Turn
	if s.Created.Resume == thread.ResumeAsk && !t.Interrupted && !t.Lost && t.Waiting == nil && !t.Resumed {
		step.Append = append(step.Append, Draft{Kind: record.TurnLost, Body: thread.TurnLost{Turn: t.ID, Cause: thread.CauseCrash}})
	}
	return step
}

// startTurn gives the oldest message a turn of its own. The turn has the message's number, so that no new one must be
// made.
func startTurn(s *State) Step {
	q := s.Queue[0]
	turn := record.PrefixTurn + strings.TrimPrefix(q.ID, record.PrefixMessage)
	return appends(
		Draft{Kind: record.TurnStarted, Body: thread.TurnStarted{Turn: turn}},
		place(q, turn))
}

func place(q Queued, turn string) Draft {
	return Draft{Kind: record.MessagePlaced, Body: thread.MessagePlaced{ID: q.ID, Accepted: q.Seq, Turn: turn}}
}

// nextAnswer decides about the open request.
func nextAnswer(s *State, l *Live) Step {
	t := s.Turn
	send := Effect{Kind: EffectSend, Request: t.Request.Seq}
	_, sending := l.Running[send]
	switch {
	case sending && t.Interrupted:
		return Step{} // canceled; its completion says what was shown
	case sending, l.Held && !t.Interrupted:
		return Step{Run: []Effect{send}}
	}
	cause := thread.CauseCrash
	if l.Held {
		cause = thread.CauseInterrupt
	}
	return appends(Draft{Kind: record.AnswerAborted, Body: thread.AnswerAborted{
		Request: t.Request.Seq, Attempt: t.Request.Attempt, Cause: cause,
	}})
}

// nextRequest decides when every call has its result: the next request, a wait before it, or the end of the turn.
func nextRequest(s *State, l *Live) Step {
	t := s.Turn
	switch {
	case t.Interrupted:
		return finish(t, thread.TurnFinished{State: thread.TurnStopped})
	case t.Answer != nil && len(t.Answer.Calls) == 0:
		return finish(t, thread.TurnFinished{State: thread.TurnCompleted, StopReason: t.Answer.StopReason})
	case t.Waiting != nil && t.Waiting.Reason == thread.WaitResume:
		return Step{}
	case t.Answer == nil && t.Request != nil:
		return nextAttempt(s, l)
	case l.Unready != "":
		return waitReady(t, l)
	}
	if steps := steering(s); len(steps) > 0 {
		return Step{Append: steps}
	}
	return Step{Prepare: &Prepare{}}
}

// steering places the messages that join the running turn.
func steering(s *State) []Draft {
	var placed []Draft
	for _, q := range s.Queue {
		if q.Mode == thread.ModeSteer {
			placed = append(placed, place(q, s.Turn.ID))
		}
	}
	return placed
}

// nextAttempt decides what follows a request that got no answer.
func nextAttempt(s *State, l *Live) Step {
	t, aborted := s.Turn, s.Turn.Request.Aborted
	last := t.Request.Attempt >= MaxAttempts && !t.Resumed
	again := Step{Prepare: &Prepare{Again: t.Request}}
	reason := waitAfter(aborted.Cause)
	switch {
	case aborted.Cause == thread.CauseInvalid:
		return Step{Prepare: &Prepare{Again: t.Request, Refused: true}}
	case last && reason != thread.WaitLogin:
		return fail(t, fault.Unavailable, "attempts-used-up", fmt.Sprintf("%d attempts got no answer; the last one: %s",
			t.Request.Attempt, sentence(aborted)), "send another message to try again")
	case reason != "" && t.Waiting == nil && !t.Resumed:
		return wait(t, thread.TurnWaiting{Reason: reason, Until: until(aborted, t.Request.Attempt, l.Now), Detail: aborted.Detail})
	case t.Waiting != nil && t.Waiting.Reason == thread.WaitLogin:
		return Step{}
	case t.Waiting != nil && l.Now.Before(t.Waiting.Until):
		return Step{Wake: t.Waiting.Until}
	case l.Unready != "":
		return waitReady(t, l)
	}
	return again
}

// waitAfter returns the reason to wait after an attempt that ended by cause; "" to go on at once.
func waitAfter(cause string) string {
	switch cause {
	case thread.CauseOverloaded:
		return thread.WaitOverloaded
	case thread.CauseRateLimited:
		return thread.WaitRateLimited
	case thread.CauseAuth:
		return thread.WaitLogin
	case thread.CauseNetwork, thread.CauseMalformed:
		return thread.WaitNetwork
	}
	return ""
}

// until says when the next attempt may start: when the provider says so, else after a backoff.
func until(a *Aborted, attempt int, now time.Time) string {
	if a.Cause == thread.CauseAuth {
		return ""
	}
	at := now.Add(Backoff(attempt))
	if asked, err := time.Parse(time.RFC3339, a.RetryAt); err == nil && asked.After(now) {
		at = asked
	}
	return at.UTC().Format(thread.TimeLayout)
}

// Backoff returns how long to wait after the n-th failure in a row; n starts at 1.
func Backoff(n int) time.Duration {
	d := MinBackoff
	for range n - 1 {
		if d >= MaxBackoff {
			break
		}
		d *= 2
	}
	return min(d, MaxBackoff)
}

func sentence(a *Aborted) string {
	if a.Detail == "" {
		return a.Cause
	}
	return a.Cause + ": " + a.Detail
}

// waitReady notes once that the turn waits for room to work, and asks again later.
func waitReady(t *Turn, l *Live) Step {
	if t.Waiting == nil || t.Waiting.Reason != thread.WaitDisk {
		return wait(t, thread.TurnWaiting{Reason: thread.WaitDisk, Detail: l.Unready})
	}
	return Step{Wake: l.Now.Add(ReadyPoll)}
}

func wait(t *Turn, w thread.TurnWaiting) Step {
	w.Turn = t.ID
	return appends(Draft{Kind: record.TurnWaiting, Body: w})
}

func finish(t *Turn, f thread.TurnFinished) Step {
	f.Turn = t.ID
	return appends(Draft{Kind: record.TurnFinished, Body: f})
}

func fail(t *Turn, class fault.Class, code, message, hint string) Step {
	return finish(t, thread.TurnFinished{State: thread.TurnFailed, Error: &thread.Error{
		Class: class.String(), Code: code, Message: message, Hint: hint,
	}})
}

func appends(drafts ...Draft) Step { return Step{Append: drafts} }

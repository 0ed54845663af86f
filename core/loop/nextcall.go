package loop

import (
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// What the model reads when a call has no result of its own.
const (
	textBadInput    = "The input of this call is not valid JSON. Nothing was run. Call the tool again with valid input."
	textInterrupted = "Interrupted by the user before this call ran. Nothing was changed by it."
	textCutShort    = "Interrupted by the user. This call reads only; its result was dropped."
	textNotDone     = "The runtime stopped before this call took effect. Nothing was changed by it. Call the tool again if it is still needed."
)

// nextCall decides about the calls of the newest answer that have no result. They run one after the other.
//
// A call passes: policy.decided; approval.asked and approval.answered if a person must decide; tool.started; one of
// tool.finished and tool.unknown. After a crash a started call of a safe tool is planned again and gets another
// tool.started before it runs again. A started call of any other tool is never started again: the tool says what
// became of it, and if it certainly did nothing its result says so and the model may call again.
func nextCall(s *State, l *Live, open []*Called) Step {
	if s.Turn.Interrupted {
		return stopCalls(s, l, open)
	}
	c := open[0]
	switch c.Status {
	case CallPending:
		if c.Input == nil {
			return appends(problem(c, textBadInput))
		}
		return judge(s, l, c)
	case CallAsk:
		return appends(
			Draft{Kind: record.ApprovalAsked, Body: thread.ApprovalAsked{Call: c.ID, Turn: s.Turn.ID, Reason: c.Reason}},
			Draft{Kind: record.TurnWaiting, Body: thread.TurnWaiting{
				Turn: s.Turn.ID, Reason: thread.WaitApproval, Call: c.ID, Detail: c.Reason,
			}})
	case CallAsked:
		return Step{}
	case CallDenied:
		return appends(problem(c, denial(c)))
	}
	return nextRun(s, l, c)
}

// nextRun decides about a call that is allowed or has started.
func nextRun(s *State, l *Live, c *Called) Step {
	run, find := Effect{Kind: EffectRun, Call: c.ID}, Effect{Kind: EffectRecover, Call: c.ID}
	plan, planned := l.Plans[c.ID]
	started := c.Status == CallStarted && c.Gen == s.Gen
	switch {
	case l.Running[run] != nil, started && planned:
		return Step{Run: []Effect{run}}
	case planned:
		return appends(Draft{Kind: record.ToolStarted, Body: thread.ToolStarted{
			Call: c.ID, Name: c.Name, Replay: plan.Replay, Effect: plan.Effect,
		}})
	case c.Status == CallStarted && !c.safe():
		return Step{Run: []Effect{find}}
	}
	return judge(s, l, c)
}

// judge has a call planned and the policy asked about the plan, unless the turn must wait before that. A plan is made
// right before the call starts: after a person's approval or a restart it is made, and judged, anew.
func judge(s *State, l *Live, c *Called) Step {
	e := Effect{Kind: EffectJudge, Call: c.ID}
	switch {
	case l.Running[e] != nil:
	case l.Unready != "":
		return waitReady(s.Turn, l)
	case s.Turn.Waiting != nil && s.Turn.Waiting.Reason == thread.WaitPolicy && l.Now.Before(l.ProbeAt):
		return Step{Wake: l.ProbeAt}
	}
	return Step{Run: []Effect{e}}
}

// stopCalls gives every call a result after an interrupt. A running call is canceled and says itself what it did; one
// that had started before a crash is asked about first.
func stopCalls(s *State, l *Live, open []*Called) Step {
	var step Step
	for _, c := range open {
		find := Effect{Kind: EffectRecover, Call: c.ID}
		_, planned := l.Plans[c.ID]
		switch {
		case l.Running[Effect{Kind: EffectRun, Call: c.ID}] != nil: // canceled; its completion is the result
		case c.Status != CallStarted, planned && c.Gen == s.Gen:
			step.Append = append(step.Append, problem(c, textInterrupted))
		case c.safe():
			step.Append = append(step.Append, problem(c, textCutShort))
		default:
			step.Run = append(step.Run, find)
		}
	}
	if len(step.Append) > 0 {
		step.Run = nil
	}
	return step
}

// problem is the result of a call that did not run.
func problem(c *Called, text string) Draft {
	return Draft{Kind: record.ToolFinished, Body: thread.ToolFinished{
		Call: c.ID, IsError: true, Content: []thread.Block{{Type: thread.BlockText, Text: text}},
	}}
}

// denial says to the model who stopped the call and why.
func denial(c *Called) string {
	text := "Denied by " + c.By
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}

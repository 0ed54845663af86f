package loop

import (
	"context"
	"fmt"

	"condensate.dev/cnd/core/policy"
	"condensate.dev/cnd/core/thread"
)

// Flight is an effect with all that it needs; it reads nothing of its thread while it runs.
type Flight struct {
	Effect  Effect
	Gen     uint64
	request Request            // of a send
	call    Call               // of all others
	event   policy.Event       // of a judge, without what the plan adds
	plan    Plan               // of a run
	started thread.ToolStarted // of a recover
	cancel  context.CancelFunc
}

// Perform touches the world. It never fails: what went wrong, a panic of an adapter included, is part of the
// completion. stream gets deltas from the calling goroutine.
func (f *Flight) Perform(ctx context.Context, p *Ports, stream func(Delta)) (c Completion) {
	defer func() {
		if r := recover(); r != nil {
			c = f.panicked(r)
		}
	}()
	c = Completion{Effect: f.Effect, Gen: f.Gen}
	switch f.Effect.Kind {
	case EffectSend:
		d := Delta{Request: f.request.Seq, Attempt: f.request.Attempt}
		c.Answer, c.Err = p.Model.Send(ctx, f.request, func(kind, text string) {
			d.Kind, d.Text = kind, text
			stream(d)
			d.Offset += int64(len(text))
		})
	case EffectJudge:
		if c.Plan, c.Err = p.Tools.Plan(ctx, f.call); c.Err != nil || c.Plan.Refused != nil {
			break
		}
		e := f.event
		e.Paths, e.Writes = c.Plan.Paths, c.Plan.Writes
		c.Decision, c.Err = p.Policy.Decide(ctx, e)
		c.Faulty = c.Err != nil
	case EffectRun:
		d := Delta{Request: f.request.Seq, Attempt: f.request.Attempt, Kind: DeltaOutput, Call: f.call.ID}
		c.Outcome = p.Tools.Run(ctx, f.call, f.plan, func(text string) {
			d.Text = text
			stream(d)
			d.Offset += int64(len(text))
		})
	case EffectRecover:
		c.Outcome = p.Tools.Recover(ctx, f.call, f.started)
	}
	return c
}

// DeltaOutput is the kind of a delta that a running tool printed.
const DeltaOutput = "output"

// panicked is what an effect whose adapter panicked comes to: never a result, and for a call that had started nobody
// knows.
func (f *Flight) panicked(r any) Completion {
	err := fmt.Errorf("internal error: %v", r)
	c := Completion{Effect: f.Effect, Gen: f.Gen, Err: err}
	switch f.Effect.Kind {
	case EffectSend:
		c.Err = &ModelError{Cause: thread.CauseMalformed, Detail: err.Error()}
	case EffectRun, EffectRecover:
		c.Outcome = Outcome{Unknown: &thread.ToolUnknown{Cause: thread.CauseCrash}}
	}
	return c
}

// takeOff collects what e needs. What can be used once is used up: the bytes of the request, the plan of the call.
func (m *machine) takeOff(e Effect) *Flight {
	t := m.state.Turn
	f := &Flight{Effect: e, Gen: m.state.Gen}
	f.request = Request{Thread: m.state.Thread, Seq: t.Request.Seq, Attempt: t.Request.Attempt}
	if e.Kind == EffectSend {
		f.request.Epoch, f.request.Body = m.state.Epoch.EpochStarted, m.bytes
		m.bytes, m.live.Held = nil, false
		return f
	}
	c := m.state.call(e.Call)
	f.call = Call{Thread: m.state.Thread, ID: c.ID, Cwd: m.state.Created.Cwd, Name: c.Name, Input: c.Input}
	f.event = policy.Event{
		Thread: m.state.Thread, Cwd: m.state.Created.Cwd, Call: c.ID, Tool: c.Name, Input: c.Input, Allow: m.state.Created.Allow,
	}
	f.started = c.Started
	if e.Kind == EffectRun {
		f.plan = m.live.Plans[c.ID]
		delete(m.live.Plans, c.ID)
	}
	return f
}

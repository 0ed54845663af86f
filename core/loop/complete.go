package loop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"condensate.dev/cnd/core/policy"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// Completion is what an effect hands back. Which fields are set depends on the kind of the effect.
type Completion struct {
	Effect   Effect
	Gen      uint64 // generation in which the effect started
	Answer   Answer
	Plan     Plan
	Decision policy.Decision
	Outcome  Outcome
	// Err is a *ModelError of a send, a fault of the policy, or a fault of a tool's plan.
	Err error
	// Faulty is set with Err when it is the policy's.
	Faulty bool
}

// Complete returns what must be appended because an effect completed, and notes in l what only this process knows. A
// completion of another generation, or about something that is over, gives nothing.
func Complete(s *State, l *Live, c Completion) []Draft {
	if c.Gen != s.Gen || s.Turn == nil {
		return nil
	}
	if c.Effect.Kind == EffectSend {
		if r := s.Turn.Request; r == nil || !r.Open || r.Seq != c.Effect.Request {
			return nil
		}
		if c.Err != nil {
			return []Draft{aborted(s, l, c.Err)}
		}
		return []Draft{finished(s.Turn.Request, c.Answer)}
	}
	call := s.call(c.Effect.Call)
	if call == nil || call.Status == CallDone {
		return nil
	}
	switch {
	case c.Effect.Kind == EffectJudge:
		return judged(s, l, call, c)
	case c.Effect.Kind == EffectRun && l.Closing && call.safe():
		return nil // it may have been cut short; it runs again after the restart
	}
	return []Draft{outcome(s, l, call, c)}
}

// finished is the answer as it stands in the record.
func finished(r *Prepared, a Answer) Draft {
	var blobs blobList
	body := thread.AnswerFinished{
		Request: r.Seq, Attempt: r.Attempt, Native: blobs.raws(a.Native), View: blobs.view(a.View, r.Seq),
		StopReason: a.StopReason, Model: a.Model,
		ProviderMessageID: a.ProviderMessageID, ProviderRequestID: a.ProviderRequestID,
		Usage: a.Usage, Diagnostics: foreign(a.Diagnostics),
	}
	body.Blobs = blobs.refs()
	return Draft{Kind: record.AnswerFinished, Body: body, Blobs: blobs}
}

// aborted is an attempt without an answer. What was shown is kept only when a person interrupted it.
func aborted(s *State, l *Live, err error) Draft {
	r := s.Turn.Request
	var e *ModelError
	if !errors.As(err, &e) {
		e = &ModelError{Cause: thread.CauseNetwork, Detail: err.Error()}
	}
	body := thread.AnswerAborted{
		Request: r.Seq, Attempt: r.Attempt, Cause: e.Cause, Detail: e.Detail, TextBytes: e.TextBytes,
		ProviderRequestID: e.ProviderRequestID, Usage: e.Usage,
	}
	if !e.RetryAt.IsZero() {
		body.RetryAt = e.RetryAt.UTC().Format(thread.TimeLayout)
	}
	switch {
	case s.Turn.Interrupted:
		body.Cause = thread.CauseInterrupt
	case e.Cause == thread.CauseInterrupt && l.Closing:
		body.Cause = thread.CauseShutdown
	case e.Cause == thread.CauseInterrupt:
		body.Cause = thread.CauseNetwork // nobody asked for it
	}
	if body.Cause != thread.CauseInterrupt {
		return Draft{Kind: record.AnswerAborted, Body: body}
	}
	var blobs blobList
	body.Native = blobs.raws(e.Partial.Native)
	body.ShownText = e.ShownText
	body.Blobs = blobs.refs()
	return Draft{Kind: record.AnswerAborted, Body: body, Blobs: blobs}
}

// judged is what a plan and the policy say about a call. A decision, and a person's approval, stand for a later plan of
// the call as long as it names the same paths and the policy does not deny it.
func judged(s *State, l *Live, call *Called, c Completion) []Draft {
	switch {
	case s.Turn.Interrupted:
		return nil
	case c.Faulty:
		return faulty(s, l, call, c.Err)
	case c.Err != nil:
		return []Draft{problem(call, "This call could not be prepared: "+c.Err.Error())}
	case c.Plan.Refused != nil:
		return []Draft{result(call, *c.Plan.Refused, false)}
	}
	l.Probes, l.ProbeAt = 0, time.Time{}
	verdict := c.Decision.Verdict
	stands := call.Status != CallPending && slices.Equal(call.Paths, c.Plan.Paths)
	if verdict == policy.Ask && stands && s.Approvals[call.ID].Verdict == thread.VerdictAllow {
		verdict = policy.Allow
	}
	if verdict == policy.Allow {
		l.Plans[call.ID] = c.Plan
		if stands {
			return nil
		}
	}
	return []Draft{{Kind: record.PolicyDecided, Body: thread.PolicyDecided{
		Call: call.ID, Verdict: verdict.String(), Rule: c.Decision.Rule, Reason: c.Decision.Reason, Paths: c.Plan.Paths,
	}}}
}

// faulty notes once that the turn waits for the policy, and when to ask again.
func faulty(s *State, l *Live, call *Called, err error) []Draft {
	l.Probes++
	l.ProbeAt = l.Now.Add(Backoff(l.Probes))
	if w := s.Turn.Waiting; w != nil && w.Reason == thread.WaitPolicy && w.Call == call.ID {
		return nil
	}
	return wait(s.Turn, thread.TurnWaiting{Reason: thread.WaitPolicy, Call: call.ID, Detail: err.Error()}).Append
}

// outcome is the one result of a call that had started.
func outcome(s *State, l *Live, call *Called, c Completion) Draft {
	recovered := c.Effect.Kind == EffectRecover
	switch o := c.Outcome; {
	case o.Result != nil:
		return result(call, *o.Result, recovered)
	case o.NotDone:
		return result(call, Result{IsError: true, Content: []thread.Block{{Type: thread.BlockText, Text: textNotDone}}}, recovered)
	default:
		unknown := thread.ToolUnknown{Call: call.ID, Cause: thread.CauseCrash}
		if o.Unknown != nil {
			unknown.Cause, unknown.Partial = o.Unknown.Cause, o.Unknown.Partial
		}
		switch {
		case recovered:
			unknown.Cause = thread.CauseCrash
		case s.Turn.Interrupted && unknown.Cause != causeTimeout:
			unknown.Cause = thread.CauseInterrupt
		case l.Closing && unknown.Cause != causeTimeout:
			unknown.Cause = thread.CauseShutdown
		}
		return Draft{Kind: record.ToolUnknown, Body: unknown}
	}
}

const causeTimeout = "timeout" // of tool.unknown

// result is what a tool gave back. Text over the limit is a fault of the tool, which must cut it: the model gets an
// error in its place, so that the record stays small.
func result(call *Called, r Result, recovered bool) Draft {
	text := 0
	for _, b := range r.Content {
		text += len(b.Text)
	}
	if text > record.InlineLimit {
		r = Result{IsError: true, Content: []thread.Block{{Type: thread.BlockText, Text: fmt.Sprintf(
			"The tool gave %d bytes of text back; the limit is %d. The output was dropped.", text, record.InlineLimit)}}}
	}
	var blobs blobList
	for _, b := range r.Blobs {
		blobs.add(b.Data)
	}
	return Draft{Kind: record.ToolFinished, Blobs: blobs, Body: thread.ToolFinished{
		Blobs: blobs.refs(), Call: call.ID, IsError: r.IsError, Content: r.Content, ExitCode: r.ExitCode,
		CutBytes: r.CutBytes, Spool: r.Spool, ElapsedMS: r.Elapsed.Milliseconds(), Recovered: recovered,
	}}
}

// blobList collects the blobs of a body in the order in which the body lists them, each once.
type blobList []record.Blob

func (l *blobList) add(data []byte) string {
	b := record.NewBlob(data)
	for _, have := range *l {
		if have.Digest == b.Digest {
			return b.Ref()
		}
	}
	*l = append(*l, b)
	return b.Ref()
}

func (l blobList) refs() []string {
	var refs []string
	for _, b := range l {
		refs = append(refs, b.Ref())
	}
	return refs
}

// raws keeps the provider's values token by token: as JSON where the strict form allows it, else as text.
func (l *blobList) raws(native []json.RawMessage) []thread.Raw {
	raws := make([]thread.Raw, 0, len(native))
	for _, value := range native {
		kept := foreign(value)
		strict := kept != nil && kept[0] == '{'
		if !strict {
			kept = []byte(strings.ToValidUTF8(string(value), "\uFFFD"))
		}
		switch {
		case len(kept) > record.InlineLimit:
			raws = append(raws, thread.Raw{Blob: l.add(kept)})
		case strict:
			raws = append(raws, thread.Raw{JSON: kept})
		default:
			raws = append(raws, thread.Raw{Text: string(kept)})
		}
	}
	return raws
}

// view numbers the calls and moves long text out of the body.
func (l *blobList) view(blocks []thread.Block, request record.Seq) []thread.Block {
	view := make([]thread.Block, 0, len(blocks))
	calls := 0
	for _, b := range blocks {
		if len(b.Text) > record.InlineLimit {
			b.Blob, b.Text = l.add([]byte(b.Text)), ""
		}
		if b.Type == thread.BlockToolCall {
			b.Call = fmt.Sprintf("%d.%d", request, calls)
			calls++
			if strict := foreign(b.Input); strict == nil || strict[0] != '{' {
				b.Input, b.InputText = nil, b.InputText+string(b.Input)
			}
		}
		view = append(view, b)
	}
	return view
}

// foreign returns a provider's value without white space if a body may hold it, else its text as a JSON string; nil
// for nothing.
func foreign(value json.RawMessage) json.RawMessage {
	if len(value) == 0 {
		return nil
	}
	var b bytes.Buffer
	const before, after = `{"a":[{"b":`, `}]}` // as deep as any foreign value stands in a body
	b.WriteString(before)
	if json.Compact(&b, value) == nil {
		compact := append(json.RawMessage(nil), b.Bytes()[len(before):]...)
		b.WriteString(after)
		if record.CheckBody(b.Bytes()) == nil {
			return compact
		}
	}
	return thread.Encode(strings.ToValidUTF8(string(value), "\uFFFD"))
}

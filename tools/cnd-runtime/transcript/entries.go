package transcript

import (
	"fmt"
	"strings"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/internal/terminal"
)

// printers says how each kind of entry is shown; a kind that is not here is not.
var printers = map[record.Kind]func(*Printer, record.Entry) error{
	record.MessageAccepted:  body((*Printer).messageAccepted),
	record.MessagePlaced:    body((*Printer).messagePlaced),
	record.EpochStarted:     body((*Printer).epochStarted),
	record.AnswerFinished:   body((*Printer).answerFinished),
	record.AnswerAborted:    body((*Printer).answerAborted),
	record.ToolStarted:      body((*Printer).toolStarted),
	record.ToolFinished:     body((*Printer).toolFinished),
	record.ToolUnknown:      body((*Printer).toolUnknown),
	record.PolicyDecided:    body((*Printer).policyDecided),
	record.ApprovalAsked:    body((*Printer).approvalAsked),
	record.ApprovalAnswered: body((*Printer).approvalAnswered),
	record.TurnWaiting:      body((*Printer).turnWaiting),
	record.TurnInterrupted:  body((*Printer).turnInterrupted),
	record.TurnFinished:     body((*Printer).turnFinished),
	record.TurnLost:         body((*Printer).turnLost),
	record.HistoryRepaired:  body((*Printer).historyRepaired),
	record.NoteInjected:     body((*Printer).noteInjected),
	record.IncidentSeen:     body((*Printer).incidentSeen),
}

// body makes a printer of an entry from one of its body.
func body[T any](show func(*Printer, T)) func(*Printer, record.Entry) error {
	return func(p *Printer, e record.Entry) error {
		b, err := thread.Decode[T](e)
		if err == nil {
			show(p, b)
		}
		return err
	}
}

func (p *Printer) messageAccepted(b thread.MessageAccepted) { p.accepted[b.ID] = b }

func (p *Printer) messagePlaced(b thread.MessagePlaced) {
	m := p.accepted[b.ID]
	delete(p.accepted, b.ID)
	if p.typed[b.ID] {
		delete(p.typed, b.ID)
		return
	}
	p.line("> " + strings.ReplaceAll(joined(m.Content), "\n", "\n> "))
}

func (p *Printer) epochStarted(b thread.EpochStarted) {
	if b.Reason != "created" {
		p.Note("new epoch (%s): %d tokens of the cached prefix are read again", b.Reason, b.CacheTokensLost)
	}
}

func (p *Printer) answerFinished(b thread.AnswerFinished) {
	streamed := p.streamed(b.Request, b.Attempt)
	p.endLive()
	for _, block := range b.View {
		switch block.Type {
		case "tool_call":
			p.calls[block.Call] = block
		case "text":
			if !streamed && block.Text+block.Blob != "" {
				p.line(text(block))
			}
		}
	}
}

func (p *Printer) answerAborted(b thread.AnswerAborted) {
	streamed := p.streamed(b.Request, b.Attempt)
	p.endLive()
	if b.ShownText != "" && !streamed {
		p.line(terminal.Clean(b.ShownText))
	}
	p.Note("the answer broke off: %s", withDetail(b.Cause, b.Detail))
}

func (p *Printer) toolStarted(b thread.ToolStarted) {
	p.endLive()
	p.line("* " + p.describe(b.Call, b.Name))
}

func (p *Printer) toolFinished(b thread.ToolFinished) {
	output := place{"output", b.Call}
	streamed := p.live.shown[output] > 0
	delete(p.live.shown, output)
	p.endLive()
	if !streamed {
		for _, line := range excerpt(joined(b.Content)) {
			p.line(outputMark + line)
		}
	}
	switch {
	case b.ExitCode != nil && *b.ExitCode != 0:
		p.line(fmt.Sprintf("  exit code %d", *b.ExitCode))
	case b.IsError && streamed:
		p.line("  error")
	}
	if b.CutBytes > 0 {
		p.line(fmt.Sprintf("  %d bytes are not shown to the agent; all of it: %s", b.CutBytes, terminal.Clean(b.Spool)))
	}
	delete(p.calls, b.Call)
}

func (p *Printer) toolUnknown(b thread.ToolUnknown) {
	p.endLive()
	p.Note("whether %s took effect is not known (%s)", p.describe(b.Call, b.Call), terminal.Clean(b.Cause))
	delete(p.calls, b.Call)
}

func (p *Printer) policyDecided(b thread.PolicyDecided) {
	if b.Verdict == thread.VerdictDeny {
		p.Note("denied by rule %s: %s: %s", terminal.Clean(b.Rule), p.describe(b.Call, b.Call), terminal.Clean(b.Reason))
	}
}

func (p *Printer) approvalAsked(b thread.ApprovalAsked) {
	p.endLive()
	question := oneLine(b.Reason)
	if asked, ok := p.calls[b.Call]; ok {
		question = Question(asked)
	}
	p.line(fmt.Sprintf("! %s waits for approval: %s", b.Call, question))
}

func (p *Printer) approvalAnswered(b thread.ApprovalAnswered) {
	verdict := "approved"
	if b.Verdict == thread.VerdictDeny {
		verdict = "denied"
	}
	p.Note("%s %s", b.Call, withDetail(verdict+" by "+b.By, b.Reason))
}

func (p *Printer) turnWaiting(b thread.TurnWaiting) {
	p.endLive()
	if b.Reason == thread.WaitApproval {
		return // the question itself is shown
	}
	line := "the turn waits: " + withDetail(b.Reason, b.Detail)
	if b.Until != "" {
		line += ", until " + terminal.Clean(b.Until)
	}
	p.Note("%s", line)
}

func (p *Printer) turnInterrupted(b thread.TurnInterrupted) {
	p.endLive()
	p.Note("interrupted by %s", terminal.Clean(b.By))
}

func (p *Printer) turnFinished(b thread.TurnFinished) {
	p.endLive()
	switch {
	case b.Error != nil:
		p.Note("the turn failed: %s: %s", b.Error.Code, terminal.Clean(b.Error.Message))
		if b.Error.Hint != "" {
			p.Note("hint: %s", terminal.Clean(b.Error.Hint))
		}
	case b.State != thread.TurnCompleted:
		p.Note("the turn ended: %s", terminal.Clean(b.State))
	case b.StopReason != "" && b.StopReason != "end_turn":
		p.Note("the turn ended: %s", terminal.Clean(b.StopReason))
	}
}

func (p *Printer) turnLost(b thread.TurnLost) {
	p.endLive()
	p.Note("the runtime died in this turn (%s); it waits for resume", terminal.Clean(b.Cause))
}

func (p *Printer) historyRepaired(b thread.HistoryRepaired) {
	p.Note("entry %d repaired (%s): %s", b.Target, terminal.Clean(b.Repair), terminal.Clean(b.Why))
}

func (p *Printer) noteInjected(b thread.NoteInjected) {
	p.Note("note to the agent: %s", oneLine(b.Text))
}

func (p *Printer) incidentSeen(b thread.IncidentSeen) {
	p.Note("incident: %s", withDetail(b.What, b.Detail))
}

// describe returns what a call does, or fallback when the answer that asked for it was not seen.
func (p *Printer) describe(id, fallback string) string {
	if b, ok := p.calls[id]; ok {
		return call(b)
	}
	return oneLine(fallback)
}

func withDetail(what, detail string) string {
	if detail == "" {
		return terminal.Clean(what)
	}
	return terminal.Clean(what) + ": " + oneLine(detail)
}

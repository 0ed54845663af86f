package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	urfave "github.com/urfave/cli/v3"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/internal/terminal"
)

// entryLine is a line of show --json, the same as in a followed stream.
type entryLine struct {
	V     int             `json:"v"`
	Type  string          `json:"type"`
	Entry json.RawMessage `json:"entry"`
}

// show prints the conversation for a person, or every entry as it is.
func show(ctx context.Context, _ *urfave.Command, in *input, out output) error {
	t := transcript{out: out}
	for e, err := range in.Entries(ctx, 0) {
		if err != nil {
			return fmt.Errorf("show %s: %w", in.name, err)
		}
		if out.json {
			if err := out.document(entryLine{Type: "entry", Entry: e.Line}); err != nil {
				return err
			}
			continue
		}
		t.entry(e)
	}
	return nil
}

// transcript writes entries for people. What it cannot read it names.
type transcript struct{ out output }

func (t transcript) line(e record.Entry, who, format string, args ...any) {
	text := terminal.Clean(strings.TrimRight(fmt.Sprintf(format, args...), " \n"))
	fmt.Fprintf(t.out, "%5d  %s  %-9s  %s\n", e.Seq, e.Time.Format("15:04:05"), who, strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", 28)))
}

func (t transcript) entry(e record.Entry) {
	if e.Body == nil {
		t.line(e, "-", "%s, erased by entry %d", e.Kind, e.ErasedBy)
		return
	}
	write, ok := writers[e.Kind]
	if !ok {
		return
	}
	if err := write(t, e); err != nil {
		t.line(e, "-", "%s that cannot be read: %v", e.Kind, err)
	}
}

// writer makes the writer of one kind of entry.
func writer[T any](write func(t transcript, e record.Entry, body T)) func(transcript, record.Entry) error {
	return func(t transcript, e record.Entry) error {
		body, err := thread.Decode[T](e)
		if err == nil {
			write(t, e, body)
		}
		return err
	}
}

var writers = map[record.Kind]func(transcript, record.Entry) error{
	record.ThreadCreated: writer(func(t transcript, e record.Entry, b thread.Created) {
		t.line(e, "thread", "%s in %s %s", e.Thread, b.Cwd, b.Title)
	}),
	record.ThreadForked: writer(func(t transcript, e record.Entry, b thread.Forked) {
		t.line(e, "thread", "%s, a fork of %s at entry %d", e.Thread, b.Parent, b.Seq)
	}),
	record.EpochStarted: writer(func(t transcript, e record.Entry, b thread.EpochStarted) {
		t.line(e, "epoch", "%s, %s as %s", b.Reason, b.Model, b.Account)
	}),
	record.MessageAccepted: writer(func(t transcript, e record.Entry, b thread.MessageAccepted) {
		t.line(e, "message", "%s", blocks(b.Content))
	}),
	record.RequestPrepared: writer(func(t transcript, e record.Entry, b thread.RequestPrepared) {
		t.line(e, "request", "%d bytes, attempt %d, fingerprint %.16s…", b.BodyBytes, b.Attempt, b.Fingerprint)
	}),
	record.AnswerFinished: writer(func(t transcript, e record.Entry, b thread.AnswerFinished) {
		t.line(e, "answer", "%s", blocks(b.View))
	}),
	record.AnswerAborted: writer(func(t transcript, e record.Entry, b thread.AnswerAborted) {
		t.line(e, "aborted", "%s %s\n%s", b.Cause, b.Detail, b.ShownText)
	}),
	record.ToolFinished: writer(func(t transcript, e record.Entry, b thread.ToolFinished) {
		who := "result"
		if b.IsError {
			who = "error"
		}
		t.line(e, who, "of %s: %s", b.Call, blocks(b.Content))
	}),
	record.ToolUnknown: writer(func(t transcript, e record.Entry, b thread.ToolUnknown) {
		t.line(e, "unknown", "effect of %s (%s)\n%s", b.Call, b.Cause, b.Partial)
	}),
	record.ApprovalAsked: writer(func(t transcript, e record.Entry, b thread.ApprovalAsked) {
		t.line(e, "asks", "for %s: %s", b.Call, b.Reason)
	}),
	record.ApprovalAnswered: writer(func(t transcript, e record.Entry, b thread.ApprovalAnswered) {
		t.line(e, "approval", "%s for %s %s", b.Verdict, b.Call, b.Reason)
	}),
	record.TurnWaiting: writer(func(t transcript, e record.Entry, b thread.TurnWaiting) {
		t.line(e, "waiting", "%s %s", b.Reason, b.Detail)
	}),
	record.TurnInterrupted: writer(func(t transcript, e record.Entry, b thread.TurnInterrupted) {
		t.line(e, "turn", "interrupted by %s", b.By)
	}),
	record.TurnFinished: writer(func(t transcript, e record.Entry, b thread.TurnFinished) {
		if b.Error != nil {
			t.line(e, "turn", "%s: %s", b.State, b.Error.Message)
			return
		}
		t.line(e, "turn", "%s", b.State)
	}),
	record.TurnLost: writer(func(t transcript, e record.Entry, b thread.TurnLost) {
		t.line(e, "turn", "lost: %s", b.Cause)
	}),
	record.NoteInjected: writer(func(t transcript, e record.Entry, b thread.NoteInjected) {
		t.line(e, "note", "%s", b.Text)
	}),
	record.StepUndone: writer(func(t transcript, e record.Entry, b thread.StepUndone) {
		t.line(e, "undone", "entries %d to %d", b.From, b.To)
	}),
	record.HistoryRepaired: writer(func(t transcript, e record.Entry, b thread.HistoryRepaired) {
		t.line(e, "repaired", "block %d of entry %d: %s (%s)", b.Block, b.Target, b.Repair, b.Why)
	}),
	record.EntryErased: writer(func(t transcript, e record.Entry, b thread.EntryErased) {
		t.line(e, "erased", "entry %d: %s", b.Seq, b.Reason)
	}),
	record.IncidentSeen: writer(func(t transcript, e record.Entry, b thread.IncidentSeen) {
		t.line(e, "incident", "%s %s", b.What, b.Detail)
	}),
}

// blocks writes content for people.
func blocks(content []thread.Block) string {
	var parts []string
	for _, b := range content {
		switch {
		case b.Type == "text" && b.Blob != "":
			parts = append(parts, fmt.Sprintf("[text %s]", b.Blob))
		case b.Type == "tool_call":
			parts = append(parts, fmt.Sprintf("calls %s %s%s (%s)", b.Name, b.Input, b.InputText, b.Call))
		case b.Type == "thinking":
			parts = append(parts, "[thinking] "+b.Text)
		case b.Type == "image":
			parts = append(parts, fmt.Sprintf("[image %s %s]", b.MediaType, b.Blob))
		default:
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}

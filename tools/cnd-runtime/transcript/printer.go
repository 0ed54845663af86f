// Package transcript prints a thread for people: its entries as they stand in the record and, live, the answer that is
// still streaming.
//
//	> fix the test            a message that became part of the conversation
//	I will look at it.        what the agent says
//	* read main.go            a tool call, when it starts
//	  | package main          what it gave back, shortened
//	! 12.0 waits for approval: bash go test ./...
//	!   ./internal/...        the whole call, however long, since somebody must decide about it
//	- turn interrupted        anything else that a person should know
//
// It shows no control characters: text of models and tools cannot command the terminal.
package transcript

import (
	"fmt"
	"io"
	"maps"
	"strings"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/internal/terminal"
)

// Printer prints one thread in order. It is not safe for concurrent use. After an error of the writer it prints nothing
// more; see [Printer.Err].
type Printer struct {
	w        io.Writer
	err      error                             // of w, the first one
	accepted map[string]thread.MessageAccepted // messages that no request holds yet, by id
	typed    map[string]bool                   // ids of messages that the person sees already
	calls    map[string]thread.Block           // calls that have not ended, by call id
	live     live
	open     bool   // the last line has no newline yet
	prompt   string // stands alone on the last line
}

// live is what streams, so far as it is on the screen.
type live struct {
	request record.Seq
	attempt int
	last    place           // of the last delta
	shown   map[place]int64 // bytes of text shown
}

// place is where a delta belongs: the text of the answer, its thinking, or the output of one call.
type place struct{ kind, call string }

// New returns a printer that writes to w.
func New(w io.Writer) *Printer {
	return &Printer{w: w, accepted: map[string]thread.MessageAccepted{}, typed: map[string]bool{}, calls: map[string]thread.Block{}}
}

// Err returns the first error of the writer.
func (p *Printer) Err() error { return p.err }

// Typed says that the person typed the message with that id here, so that it is not shown again.
func (p *Printer) Typed(id string) { p.typed[id] = true }

// Call returns the id of a call and the start of what it does, as one line; the id alone when nothing is known of it.
// The whole of it stands where the approval was asked.
func (p *Printer) Call(id string) string {
	if b, ok := p.calls[id]; ok {
		return id + ": " + call(b)
	}
	return oneLine(id)
}

// Note prints a line that is not part of the thread.
func (p *Printer) Note(format string, args ...any) { p.line("- " + fmt.Sprintf(format, args...)) }

// Prompt shows s at the start of a line, unless it stands there.
func (p *Printer) Prompt(s string) {
	if p.prompt == s {
		return
	}
	p.endLine()
	p.write(s)
	p.prompt = s
}

// Entered says that the person ended the line of the prompt.
func (p *Printer) Entered() { p.open, p.prompt = p.open && p.prompt == "", "" }

// Event prints what a follower got.
func (p *Printer) Event(e client.Event) {
	switch e.Type {
	case client.EventEntry:
		p.Entry(e.Entry)
	case client.EventDelta:
		p.Delta(e.Delta)
	case client.EventSnapshot:
		p.Snapshot(e.Snapshot)
	case client.EventReset:
		p.endLive()
	}
}

// Delta prints a piece of a streaming answer or of a tool's output.
func (p *Printer) Delta(d loop.Delta) {
	p.attempt(d.Request, d.Attempt)
	p.stream(place{d.Kind, d.Call}, d.Text)
}

// Snapshot prints what a running attempt has shown so far, as far as it is not on the screen.
func (p *Printer) Snapshot(s client.Snapshot) {
	p.attempt(s.Request, s.Attempt)
	all := map[place]int64{}
	for _, part := range s.Parts {
		at := place{part.Kind, part.Call}
		known := min(max(p.live.shown[at]-all[at], 0), int64(len(part.Text)))
		all[at] += int64(len(part.Text))
		if s.CutBytes > 0 {
			known = 0 // what stands on the screen cannot be placed
		}
		p.stream(at, part.Text[known:])
	}
}

// attempt makes the attempt the one that streams.
func (p *Printer) attempt(request record.Seq, number int) {
	if request != p.live.request || number != p.live.attempt {
		p.endLive()
		p.live = live{request: request, attempt: number, shown: map[place]int64{}}
	}
}

func (p *Printer) stream(at place, text string) {
	if text == "" {
		return
	}
	if at != p.live.last {
		p.endLine()
	}
	switch at.kind {
	case "text":
		p.write(terminal.Clean(text))
	case "thinking":
		if p.live.shown[at] == 0 {
			p.line("- thinking")
		}
	case "output":
		p.output(terminal.Clean(text))
	}
	p.live.last = at
	p.live.shown[at] += int64(len(text))
}

// Entry prints an entry, if a person wants to see it.
func (p *Printer) Entry(e record.Entry) {
	show, ok := printers[e.Kind]
	if !ok {
		return
	}
	if e.Body == nil {
		p.line(fmt.Sprintf("- entry %d (%s) was erased by entry %d", e.Seq, e.Kind, e.ErasedBy))
		return
	}
	if err := show(p, e); err != nil {
		p.line("- " + terminal.Clean(err.Error()))
	}
}

// End closes the last line.
func (p *Printer) End() { p.endLine() }

// endLive ends what streams. Output of calls that still run stays marked as shown.
func (p *Printer) endLive() {
	if p.prompt == "" {
		p.endLine()
	}
	p.live.last = place{}
	maps.DeleteFunc(p.live.shown, func(at place, _ int64) bool { return at.kind != "output" })
}

// streamed says whether text of that attempt is on the screen.
func (p *Printer) streamed(request record.Seq, attempt int) bool {
	return p.live.request == request && p.live.attempt == attempt && p.live.shown[place{kind: "text"}] > 0
}

func (p *Printer) write(s string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, s)
	}
	if s != "" {
		p.open = !strings.HasSuffix(s, "\n")
	}
}

func (p *Printer) endLine() {
	p.prompt = ""
	if p.open {
		p.write("\n")
	}
}

func (p *Printer) line(s string) {
	p.endLine()
	p.write(s + "\n")
}

// output writes s with the mark of a tool's output before each line.
func (p *Printer) output(s string) {
	for line := range strings.Lines(s) {
		if !p.open {
			line = outputMark + line
		}
		p.write(line)
	}
}

const outputMark = "  | "

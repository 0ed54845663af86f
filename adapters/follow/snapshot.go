package follow

import (
	"unicode/utf8"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
)

// MaxSnapshot bounds what the hub keeps of a running attempt, in bytes of text and overhead. Beyond it the oldest text
// is dropped and counted.
const MaxSnapshot = 256 << 10

// partOverhead is what a part counts beside its text.
const partOverhead = 64

// snapshot is everything that a running attempt has shown so far.
type snapshot struct {
	Request  record.Seq `json:"request"`
	Attempt  int        `json:"attempt"`
	CutBytes int64      `json:"cut_bytes"` // text at the front that is not in Parts
	Parts    []part     `json:"parts"`
}

// part is a run of deltas of one kind. All output of one call is one part.
type part struct {
	Kind string `json:"kind"`
	Call string `json:"call,omitempty"`
	Text string `json:"text"`
}

// attempt accumulates the deltas of the attempt that a thread is running.
type attempt struct {
	request record.Seq
	number  int
	cut     int64
	parts   []growing
	size    int // bytes of all texts and partOverhead for each
}

type growing struct {
	kind, call string
	text       []byte
}

func (a *attempt) add(d loop.Delta) {
	a.size += len(d.Text)
	if at := a.place(d); at >= 0 {
		a.parts[at].text = append(a.parts[at].text, d.Text...)
	} else {
		a.parts = append(a.parts, growing{d.Kind, d.Call, []byte(d.Text)})
		a.size += partOverhead
	}
	for a.size > MaxSnapshot {
		a.dropFront(a.size - MaxSnapshot)
	}
}

// place returns the part that d continues, or -1. Calls may print at the same time, so output looks for its own; the
// blocks of an answer come one after the other.
func (a *attempt) place(d loop.Delta) int {
	for at := len(a.parts) - 1; at >= 0; at-- {
		p := a.parts[at]
		if p.kind == d.Kind && p.call == d.Call {
			return at
		}
		if d.Call == "" {
			return -1
		}
	}
	return -1
}

// dropFront drops at least n bytes, or the whole first part, on the border of a character.
func (a *attempt) dropFront(n int) {
	first := &a.parts[0]
	if len(a.parts) > 1 && n >= len(first.text) {
		a.cut += int64(len(first.text))
		a.size -= len(first.text) + partOverhead
		a.parts = a.parts[1:]
		return
	}
	n = min(n, len(first.text))
	for n < len(first.text) && !utf8.RuneStart(first.text[n]) {
		n++
	}
	first.text = first.text[n:]
	a.cut += int64(n)
	a.size -= n
}

// dropCall forgets what a call printed.
func (a *attempt) dropCall(call string) {
	for at, p := range a.parts {
		if p.call == call {
			a.size -= len(p.text) + partOverhead
			a.parts = append(a.parts[:at:at], a.parts[at+1:]...)
			return
		}
	}
}

func (a *attempt) snapshot() snapshot {
	s := snapshot{Request: a.request, Attempt: a.number, CutBytes: a.cut, Parts: make([]part, len(a.parts))}
	for i, p := range a.parts {
		s.Parts[i] = part{p.kind, p.call, string(p.text)}
	}
	return s
}

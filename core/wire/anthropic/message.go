package anthropic

import "slices"

// lookBack is how many block positions the provider looks at from a cache breakpoint, the breakpoint's own included,
// to find what an earlier request cached.
const lookBack = 20

// maxMarkers is how many explicit breakpoints an epoch may hold: the provider allows four, the top-level one is the
// fourth.
const maxMarkers = 3

// Texts of ours that keep a conversation in a form that the provider takes.
const (
	continueText = "Continue."
	startText    = "[The beginning of this conversation was removed.]"
)

// endMessages writes what is pending: the answer, then one user message. A conversation that would end with an answer
// gets a text of ours after it.
func (b *Builder) endMessages() error {
	answer := b.sendable()
	results := b.results()
	var said []piece
	for _, p := range b.user {
		if p, ok := b.amended(p); ok {
			said = append(said, p)
		}
	}
	if len(results)+len(said) == 0 && (len(answer) > 0 || b.last == assistant) {
		said = append(said, fixedPiece(continueText))
	}
	if len(answer) > 0 && b.messages == 0 {
		b.beginMessage(user)
		b.writeBlock(func() { b.writePiece(fixedPiece(startText), false) })
		b.endMessage()
	}
	b.noteWritten()
	b.writePending(answer, results, said)
	b.answer, b.calls, b.user = nil, nil, b.user[:0]
	b.release()
	return b.out.Flush()
}

// results returns the calls whose tool_use is sent.
func (b *Builder) results() []call {
	return slices.DeleteFunc(slices.Clone(b.calls), func(c call) bool {
		_, sent := b.amended(b.answer[c.use])
		return !sent
	})
}

// writePending writes the blocks of an answer and of the user message after it.
func (b *Builder) writePending(answer []piece, results []call, said []piece) {
	mark := b.chooseMark(answer, results, said)
	n := 0
	marked := func() bool { n++; return n-1 == mark }
	if len(answer) > 0 {
		b.beginMessage(assistant)
		for _, p := range answer {
			b.writeBlock(func() { b.writePiece(p, marked()) })
		}
		b.endMessage()
	}
	if len(results)+len(said) == 0 {
		return
	}
	b.beginMessage(user)
	for _, c := range results {
		b.writeBlock(func() { b.writeResult(c, marked()) })
	}
	for _, p := range said {
		b.writeBlock(func() { b.writePiece(p, marked()) })
	}
	b.endMessage()
}

// chooseMark returns which of the new blocks carries an explicit cache breakpoint, or -1: one is needed when the end of
// the previous request is out of reach from the end of this one. It is the last block from which it is in reach.
func (b *Builder) chooseMark(answer []piece, results []call, said []piece) int {
	added := len(answer) + len(results) + len(said)
	b.reach = b.sent > 0 && added < lookBack
	if added < lookBack || b.sent == 0 || !b.caching() || b.markers == maxMarkers {
		return -1
	}
	for i := lookBack - 2; i >= 0; i-- {
		if i >= len(answer) || answer[i].canMark() {
			b.markers++
			b.reach = true
			return i
		}
	}
	return -1
}

func (b *Builder) beginMessage(r role) {
	if b.messages > 0 {
		b.out.Raw(`,`)
	}
	if r == user {
		b.out.Raw(`{"role":"user","content":`)
	} else {
		b.out.Raw(`{"role":"assistant","content":`)
	}
	b.last = r
	b.first = true
}

func (b *Builder) writeBlock(write func()) {
	if b.first {
		b.out.Raw(`[`)
	} else {
		b.out.Raw(`,`)
	}
	b.first = false
	write()
	b.blocks++
}

func (b *Builder) endMessage() {
	b.out.Raw(`]}`)
	b.messages++
}

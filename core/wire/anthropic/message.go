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
	b.noteWritten()
	b.settle()
	if len(b.calls)+len(b.user) == 0 && (len(b.answer) > 0 || b.last == assistant) {
		b.user = append(b.user, fixedPiece(continueText))
	}
	if len(b.answer) > 0 && b.messages == 0 {
		b.beginMessage(user)
		b.writeBlock(func() { b.writePiece(fixedPiece(startText), false) })
		b.endMessage()
	}
	b.writePending()
	clear(b.answer) // they hold images
	clear(b.calls)
	clear(b.user)
	b.answer, b.calls, b.user, b.answering = b.answer[:0], b.calls[:0], b.user[:0], false
	b.release()
	return b.out.Flush()
}

// settle makes what is pending what is sent: amended, without results of calls that are left out, and without thinking
// at the end of the answer, which the provider refuses.
func (b *Builder) settle() {
	b.calls = slices.DeleteFunc(b.calls, func(c call) bool {
		_, sent := b.amended(b.answer[c.use])
		return !sent
	})
	b.answer = b.amendAll(b.answer)
	for len(b.answer) > 0 && isThinking(b.answer[len(b.answer)-1].kind) {
		b.answer = b.answer[:len(b.answer)-1]
	}
	b.user = b.amendAll(b.user)
}

// amendAll amends pieces in their place.
func (b *Builder) amendAll(pieces []piece) []piece {
	kept := pieces[:0]
	for _, p := range pieces {
		if p, ok := b.amended(p); ok {
			kept = append(kept, p)
		}
	}
	return kept
}

// writePending writes the blocks of the answer and of the user message after it.
func (b *Builder) writePending() {
	mark := b.chooseMark()
	n := 0
	marked := func() bool { n++; return n-1 == mark }
	if len(b.answer) > 0 {
		b.beginMessage(assistant)
		for _, p := range b.answer {
			b.writeBlock(func() { b.writePiece(p, marked()) })
		}
		b.endMessage()
	}
	if len(b.calls)+len(b.user) == 0 {
		return
	}
	b.beginMessage(user)
	for _, c := range b.calls {
		b.writeBlock(func() { b.writeResult(c, marked()) })
	}
	for _, p := range b.user {
		b.writeBlock(func() { b.writePiece(p, marked()) })
	}
	b.endMessage()
}

// chooseMark returns which of the new blocks carries an explicit cache breakpoint, or -1: one is needed when the end of
// the previous request is out of reach from the end of this one. It is the last block from which it is in reach.
func (b *Builder) chooseMark() int {
	added := len(b.answer) + len(b.calls) + len(b.user)
	b.reach = b.sent > 0 && added < lookBack
	if added < lookBack || b.sent == 0 || !b.caching() || b.markers == maxMarkers {
		return -1
	}
	for i := lookBack - 2; i >= 0; i-- {
		if i >= len(b.answer) || b.answer[i].canMark() {
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

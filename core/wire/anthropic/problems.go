package anthropic

import (
	"fmt"
	"unicode"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/rawjson"
)

// maxBody is the largest request that the provider takes, in bytes.
const maxBody = 32_000_000

// maxProblems bounds how many problems of written blocks are remembered; a new epoch finds the rest.
const maxProblems = 64

// Reasons and texts of repairs.
const (
	blankText     = "text without a visible character"
	emptyText     = "(empty message)"
	imageLeftText = "[An image was left out: %s.]"
	textLeftText  = "[A text of %d bytes was left out: the request would be too large.]"
)

// problems remembers what the provider would refuse. It never changes what is written.
type problems struct {
	written []wire.Problem // of blocks that are written, at most maxProblems
	orphans []wire.Problem // results that belong to no call
	largest sized          // the largest neutral block that is written
	images  int            // images that count for the provider's limits
	wide    []wideImage
}

// sized is a neutral block and about how many bytes it takes in a request.
type sized struct {
	seq   record.Seq
	index int
	size  int64
}

// grow makes p the largest block if it is.
func (l *sized) grow(p piece) bool {
	if p.raw != nil || p.size() <= l.size {
		return false
	}
	*l = sized{p.seq, p.index, p.size()}
	return true
}

// refuse says why the provider would refuse p and what to do then.
func (p *piece) refuse(why, repair, instead string) {
	p.problem, p.repair, p.instead = why, repair, instead
}

func (p piece) asProblem(sent bool) wire.Problem {
	return wire.Problem{Sent: sent, Repair: thread.HistoryRepaired{
		Target: p.seq, Block: p.index, Repair: p.repair, Text: p.instead, Why: p.problem,
	}}
}

func (s *problems) orphan(seq record.Seq, why string) {
	if len(s.orphans) < maxProblems {
		s.orphans = append(s.orphans, wire.Problem{Repair: thread.HistoryRepaired{
			Target: seq, Repair: thread.RepairDropResult, Why: why,
		}})
	}
}

// checkMessage refuses texts of a message that have no visible character. When nothing else is in it, a text takes the
// place of the first.
func checkMessage(pieces []piece) {
	visible := false
	for i := range pieces {
		if p := &pieces[i]; p.text != nil && isBlank(p.text) {
			p.refuse(blankText, thread.RepairDropBlock, "")
		} else {
			visible = true
		}
	}
	if !visible && len(pieces) > 0 {
		pieces[0].refuse(blankText, thread.RepairReplaceText, emptyText)
	}
}

// isBlank says whether the literal has no visible character.
func isBlank(lit []byte) bool {
	for r := range rawjson.Runes(lit) {
		if !unicode.IsSpace(r) && (r < 0x1c || r > 0x1f) {
			return false
		}
	}
	return true
}

// Problems implements [wire.Builder].
func (b *Builder) Problems() []wire.Problem {
	var found []wire.Problem
	for _, p := range b.problems.written {
		if _, repaired := b.amend.Repair(p.Repair.Target, p.Repair.Block); !repaired {
			found = append(found, p)
		}
	}
	for _, p := range b.problems.orphans {
		if !b.amend.ResultDropped(p.Repair.Target) {
			found = append(found, p)
		}
	}
	size, largest, sent := b.out.Len(), b.problems.largest, true
	for p := range b.pending {
		if _, repaired := b.amend.Repair(p.seq, p.index); repaired {
			continue
		}
		if p.problem != "" {
			found = append(found, p.asProblem(false))
			continue
		}
		size += p.size()
		if largest.grow(p) {
			sent = false
		}
	}
	found = append(found, b.wideProblems()...)
	if size > maxBody && len(found) == 0 && largest.size > 0 {
		if _, repaired := b.amend.Repair(largest.seq, largest.index); !repaired {
			p := piece{seq: largest.seq, index: largest.index}
			p.refuse(fmt.Sprintf("request of %d bytes, limit %d", size, maxBody), thread.RepairReplaceText,
				fmt.Sprintf(textLeftText, largest.size))
			found = append(found, p.asProblem(sent))
		}
	}
	return found
}

// pending yields every block that is not written and that a repair can name.
func (b *Builder) pending(yield func(piece) bool) {
	each := func(pieces []piece) bool {
		for _, p := range pieces {
			if !p.fixed && !yield(p) {
				return false
			}
		}
		return true
	}
	if !each(b.answer) || !each(b.user) {
		return
	}
	for _, c := range b.calls {
		if !each(c.result) {
			return
		}
	}
}

// noteWritten remembers, of the blocks that are written now, what can turn out to be a problem later.
func (b *Builder) noteWritten() {
	s := &b.problems
	for p := range b.pending {
		if _, repaired := b.amend.Repair(p.seq, p.index); repaired {
			continue
		}
		if p.problem != "" && len(s.written) < maxProblems {
			s.written = append(s.written, p.asProblem(true))
		}
		s.largest.grow(p)
	}
	for i := range s.wide {
		s.wide[i].sent = true
	}
}

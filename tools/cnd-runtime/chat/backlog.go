package chat

import (
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/cnd-runtime/transcript"
)

// backlog collects the history of a thread that a chat opens, of which the last turn is shown.
type backlog struct {
	open    []record.Entry // messages that no turn had taken when the last turn started
	turn    []record.Entry // entries from the last turn's start on
	earlier int            // turns before it
}

func (b *backlog) add(e record.Entry) {
	if e.Kind != record.TurnStarted {
		b.turn = append(b.turn, e)
		return
	}
	if b.turns() {
		b.earlier++
	}
	b.open = unplaced(append(b.open, b.turn...))
	b.turn = []record.Entry{e}
}

// turns says whether the collected part begins with a turn.
func (b *backlog) turns() bool { return len(b.turn) > 0 && b.turn[0].Kind == record.TurnStarted }

// unplaced returns the accepted messages among entries that are not placed among them: a later turn will show them.
func unplaced(entries []record.Entry) []record.Entry {
	placed := map[string]bool{}
	for _, e := range entries {
		if e.Kind == record.MessagePlaced {
			placed[messageID(e)] = true
		}
	}
	var kept []record.Entry
	for _, e := range entries {
		if e.Kind == record.MessageAccepted && !placed[messageID(e)] {
			kept = append(kept, e)
		}
	}
	return kept
}

func messageID(e record.Entry) string {
	body, err := thread.Decode[struct{ ID string }](e)
	if err != nil {
		return ""
	}
	return body.ID
}

func (b *backlog) show(p *transcript.Printer) {
	if b.earlier > 0 {
		p.Note("%d earlier turns are not shown", b.earlier)
	}
	for _, e := range append(b.open, b.turn...) {
		p.Entry(e)
	}
}

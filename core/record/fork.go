package record

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"condensate.dev/cnd/core/fault"
)

// ErrDamaged: stored or exported bytes are not what was written.
var ErrDamaged = fault.New(fault.Corrupt, "record-damaged", "record is damaged")

// ForkOf reads the body of a thread.forked entry, which has one byte form: the parent and the place in it that the
// fork follows. The error wraps [ErrInvalidEntry].
func ForkOf(e Entry) (parent ThreadID, at Head, err error) {
	p := parser{rest: e.Body}
	p.literal(`{"parent":"`)
	parent = ThreadID(p.until('"'))
	p.literal(`","seq":`)
	at.Seq = Seq(p.number())
	p.literal(`,"hash":"`)
	at.Hash = p.digest()
	p.literal(`"}`)
	if p.err == nil && len(p.rest) > 0 {
		p.fail("end of body")
	}
	if p.err == nil && (e.Kind != ThreadForked || !ValidID(PrefixThread, string(parent)) || parent == e.Thread) {
		p.err = fmt.Errorf("%s of %.80q by %s: %w", e.Kind, parent, e.Thread, ErrInvalidEntry)
	}
	return parent, at, p.err
}

// segment is the part of a record that one thread wrote.
type segment struct {
	thread ThreadID
	first  Seq   // seq of the thread's first own entry
	until  *Head // place where the next segment forks off; nil for the thread itself
}

// ReadThrough yields the thread's entries from seq on, inherited ones first. The errors are those of [Store.Entries];
// an ancestor that lacks the place of the fork is one wrapping [ErrDamaged].
func ReadThrough(ctx context.Context, s Store, thread ThreadID, from Seq) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		segments, err := lineage(ctx, s, thread, from)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for _, g := range segments {
			if !g.read(ctx, s, from, yield) {
				return
			}
		}
	}
}

// lineage returns the segments that hold the entries from seq on, oldest first.
func lineage(ctx context.Context, s Store, thread ThreadID, from Seq) ([]segment, error) {
	var all []segment
	next := segment{thread: thread}
	for {
		first, err := firstEntry(ctx, s, next.thread)
		if err != nil {
			return nil, err
		}
		if next.until != nil && first.Seq > next.until.Seq {
			return nil, fmt.Errorf("thread %s begins at seq %d, after the fork at %d: %w", next.thread, first.Seq, next.until.Seq, ErrDamaged)
		}
		next.first = first.Seq
		all = append(all, next)
		if first.Kind != ThreadForked || first.Seq <= from {
			slices.Reverse(all)
			return all, nil
		}
		parent, at, err := ForkOf(first)
		if err != nil {
			return nil, fmt.Errorf("first entry of %s: %v: %w", next.thread, err, ErrDamaged)
		}
		if at.Seq >= first.Seq {
			return nil, fmt.Errorf("first entry of %s forks off at seq %d, itself seq %d: %w", next.thread, at.Seq, first.Seq, ErrDamaged)
		}
		next = segment{thread: parent, until: &at}
	}
}

func firstEntry(ctx context.Context, s Store, thread ThreadID) (Entry, error) {
	for e, err := range s.Entries(ctx, thread, 0) {
		return e, err
	}
	return Entry{}, fmt.Errorf("thread %s: %w", thread, ErrNotFound)
}

// read yields the segment's entries from seq on and says whether to go on with the next segment.
func (g segment) read(ctx context.Context, s Store, from Seq, yield func(Entry, error) bool) bool {
	for e, err := range s.Entries(ctx, g.thread, max(from, g.first)) {
		if err != nil {
			yield(Entry{}, err)
			return false
		}
		if g.until != nil && e.Seq == g.until.Seq && e.Hash != g.until.Hash {
			break
		}
		if !yield(e, nil) {
			return false
		}
		if g.until != nil && e.Seq == g.until.Seq {
			return true
		}
	}
	if g.until != nil {
		yield(Entry{}, fmt.Errorf("thread %s has no entry %d with hash %s: %w", g.thread, g.until.Seq, g.until.Hash, ErrDamaged))
	}
	return g.until == nil
}

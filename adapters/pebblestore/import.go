package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"condensate.dev/cnd/core/record"
)

// importChunk is how much of an import is gathered before it is written, in bytes.
const importChunk = 1 << 20

// Import is a record on its way into the store. Nothing of it can be seen before Commit; what an import that did not
// get there wrote is removed by Abort or when the store is opened again. It is used by one goroutine.
//
// The threads of an import become foreign: read-only, with the head that their signer made. Entries that the store
// holds already are compared, so that the same record can be imported again, a longer one continues what is there, and
// one that differs is record.ErrConflict. A thread of this store's own is compared only: it can neither be continued
// nor become foreign.
type Import struct {
	s       *Store
	parts   []*part // ancestors first
	batch   *pebble.Batch
	blobs   map[record.Digest]bool // of this import
	written <-chan struct{}        // closed when the last chunk that was handed over is durable or never will be
	failed  error                  // of Add; Commit refuses after it
}

// part is what an import holds of one thread.
type part struct {
	id   record.ThreadID
	st   *state // set when the import has the thread's turn, which it takes before the first new entry
	old  *mark
	at   record.Head // newest entry that was added, or the place before the first one
	next *mark       // what Commit acknowledges; nil while nothing is new
}

// BeginImport starts an import, if the store is [Store.Ready] for it. Commit or Abort must follow.
func (s *Store) BeginImport() (*Import, error) {
	if err := s.Ready(); err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	if err := s.gate.enter(); err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	written := make(chan struct{})
	close(written)
	return &Import{s: s, batch: s.db.NewBatch(), blobs: make(map[record.Digest]bool), written: written}, nil
}

// ImportThread imports the entries, ancestors' first, and makes them visible with head as the signed head of the last
// thread. The entries must be verified and carry the blobs that they are the first to list.
func (s *Store) ImportThread(ctx context.Context, entries iter.Seq2[record.Entry, error], head record.SignedHead) error {
	m, err := s.BeginImport()
	if err != nil {
		return err
	}
	for e, err := range entries {
		if err == nil {
			err = m.Add(ctx, e)
		}
		if err != nil {
			return errors.Join(err, m.Abort())
		}
	}
	return m.Commit(ctx, head)
}

// Add takes the next verified entry; it is done with it when it returns. It refuses to fill the disk: what is left of
// [Options.MinFree] belongs to the turns that run.
func (m *Import) Add(ctx context.Context, e record.Entry) error {
	if m.failed == nil {
		if err := m.add(ctx, e); err != nil {
			m.failed = fmt.Errorf("import entry %d of %s: %w", e.Seq, e.Thread, err)
		}
	}
	return m.failed
}

func (m *Import) add(ctx context.Context, e record.Entry) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	p, err := m.part(e)
	if err != nil {
		return err
	}
	needed, err := check(p.id, p.at, []record.Entry{e})
	if err != nil {
		return err
	}
	p.at = e.Head()
	if p.old.exists() && e.Seq <= p.old.head.Seq {
		return m.s.checkSame(e)
	}
	if p.next == nil {
		if err := m.begin(ctx, p); err != nil {
			return err
		}
	}
	for _, d := range needed {
		if found, err := m.s.hasBlob(d); err != nil {
			return err
		} else if !found && !m.blobs[d] {
			return fmt.Errorf("blob %s: %w", d, record.ErrNoBlob)
		}
	}
	projection, err := m.s.projected(p.next.projection, e)
	if err != nil {
		return err
	}
	p.next.head, p.next.projection = e.Head(), projection
	fresh, err := m.s.fresh([]record.Entry{e})
	if err != nil {
		return err
	}
	putBlobs(m.batch, fresh)
	for _, b := range fresh {
		m.blobs[b.Digest] = true
	}
	putEntry(m.batch, &e)
	if m.batch.Len() < importChunk {
		return nil
	}
	if err := m.s.Ready(); err != nil {
		return err
	}
	return m.flush(ctx, func(bool) {})
}

// part returns the part that e belongs to: the current one, or a new one that forks off it.
func (m *Import) part(e record.Entry) (*part, error) {
	var at record.Head
	if n := len(m.parts); n > 0 {
		last := m.parts[n-1]
		if last.id == e.Thread {
			return last, nil
		}
		if parent, _, err := record.ForkOf(e); err != nil || parent != last.id {
			return nil, fmt.Errorf("it is no fork of %s: %w", last.id, record.ErrInvalidEntry)
		}
		if slices.ContainsFunc(m.parts, func(p *part) bool { return p.id == e.Thread }) {
			return nil, fmt.Errorf("its thread is over: %w", record.ErrInvalidEntry)
		}
		at = last.at
	}
	old, err := m.s.acked(e.Thread)
	if err != nil {
		return nil, err
	}
	if old.exists() && e.Seq > old.head.Seq {
		return nil, fmt.Errorf("the store holds a thread of this name that ends at seq %d: %w", old.head.Seq, record.ErrConflict)
	}
	p := &part{id: e.Thread, old: old, at: at}
	m.parts = append(m.parts, p)
	return p, nil
}

// begin prepares the thread of p for its first new entry.
func (m *Import) begin(ctx context.Context, p *part) error {
	timeout, stop := deadline(ctx)
	defer stop()
	st := m.s.threads.make(p.id)
	if err := m.s.takeTurn(ctx, timeout, st); err != nil {
		return err
	}
	p.st = st
	now, err := m.s.load(p.id, st)
	if err != nil {
		return err
	}
	if now.head != p.old.head || (now.exists() && !now.foreign) {
		return fmt.Errorf("the store has its own thread of this name, with head %d: %w", now.head.Seq, record.ErrConflict)
	}
	p.next = &mark{projection: now.projection, foreign: true}
	if _, left, err := get(m.s.db, key(importPrefix, p.id)); err != nil {
		return err
	} else if left {
		sweep(m.batch, p.id, now.head)
	}
	must(m.batch.Set(key(importPrefix, p.id), nil, nil))
	return nil
}

// checkSame says whether the store holds e, erased or not.
func (s *Store) checkSame(e record.Entry) error {
	k := entryKey(e.Thread, e.Seq)
	line, found, err := get(s.db, k)
	if err != nil || (found && bytes.Equal(line, e.Line)) {
		return err
	}
	if found {
		stored, err := parseStored(e.Thread, k, line)
		if err != nil || stored.Hash == e.Hash {
			return err
		}
	}
	return fmt.Errorf("the store holds another entry there: %w", record.ErrConflict)
}

// flush writes what is gathered; over is called when it is durable or never will be.
func (m *Import) flush(ctx context.Context, over func(applied bool)) error {
	timeout, stop := deadline(ctx)
	defer stop()
	batch, written := m.batch, make(chan struct{})
	m.batch, m.written = m.s.db.NewBatch(), written
	return m.s.commit(ctx, timeout, batch.Len(), func(b *pebble.Batch) {
		must(b.Apply(batch, nil))
		must(batch.Close())
	}, func(applied bool) {
		over(applied)
		close(written)
	})
}

// Commit makes the record visible as one unit and durable. head is the signed head of the last thread, over the last
// entry that was added; its signature is the caller's to check. After an error other than ErrTimeout, ErrCanceled or
// record.ErrReadOnly nothing is visible; after those, import again.
func (m *Import) Commit(ctx context.Context, head record.SignedHead) error {
	err := m.conclude(head)
	if err != nil {
		return errors.Join(fmt.Errorf("import %s: %w", head.Thread, err), m.Abort())
	}
	err = m.flush(ctx, func(applied bool) {
		for _, p := range m.parts {
			if p.next != nil && applied {
				p.st.ack(p.next)
			}
		}
		m.release()
	})
	if err != nil {
		return fmt.Errorf("import %s: %w", head.Thread, err)
	}
	return nil
}

// conclude adds to the last batch what makes the threads visible.
func (m *Import) conclude(head record.SignedHead) error {
	if m.failed != nil {
		return m.failed
	}
	if len(m.parts) == 0 {
		return fmt.Errorf("no entries: %w", record.ErrInvalidEntry)
	}
	last := m.parts[len(m.parts)-1]
	if head.Thread != last.id || head.Place() != last.at {
		return fmt.Errorf("head of %s at seq %d, entries of %s end at seq %d: %w", head.Thread, head.Seq, last.id, last.at.Seq, record.ErrHead)
	}
	for _, p := range m.parts {
		if p.next == nil {
			continue
		}
		putMark(m.batch, p.id, p.next)
		must(m.batch.Delete(key(importPrefix, p.id), nil))
		if !p.old.foreign {
			must(m.batch.Set(key(foreignPrefix, p.id), nil, nil))
		}
	}
	if last.next == nil && !last.old.foreign {
		return nil // a thread of our own, all the same
	}
	known, _, err := m.s.foreignHead(last.id)
	if err != nil {
		return err
	}
	if known.Note == "" || known.Seq < head.Seq {
		must(m.batch.Set(key(foreignPrefix, last.id), head.AppendLine(nil), nil))
	}
	return nil
}

// Abort ends the import and removes what it wrote.
func (m *Import) Abort() error {
	if err := m.abort(); err != nil {
		return fmt.Errorf("abort import: %w", err)
	}
	return nil
}

func (m *Import) abort() error {
	ctx, cancel := context.WithTimeout(context.Background(), AppendTimeout)
	defer cancel()
	err := m.batch.Close()
	m.batch = m.s.db.NewBatch()
	for _, p := range m.parts {
		if p.next != nil {
			sweep(m.batch, p.id, p.old.head)
		}
	}
	written := m.written
	select {
	case <-written: // no chunk comes after the sweep
		return errors.Join(err, m.flush(ctx, func(bool) { m.release() }))
	case <-ctx.Done():
		err = contextError(ctx)
	case <-m.s.health.failed:
		err = m.s.health.failure()
	}
	go func() {
		<-written
		m.release()
	}()
	return err
}

// release lets others write to the threads.
func (m *Import) release() {
	for _, p := range m.parts {
		if p.st != nil {
			p.st.release()
		}
	}
	m.s.gate.leave()
}

// sweep removes the entries after head and the mark of the import that left them.
func sweep(b *pebble.Batch, id record.ThreadID, head record.Head) {
	must(b.DeleteRange(entryKey(id, head.Next()), entriesEnd(id), nil))
	must(b.Delete(key(importPrefix, id), nil))
}

// sweepImports removes what interrupted imports left. Blobs that came with them stay: another thread may use them.
func (s *Store) sweepImports() error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte(importPrefix), UpperBound: prefixEnd(importPrefix)})
	if err != nil {
		return err
	}
	b := s.db.NewBatch()
	defer b.Close()
	for valid := it.First(); valid; valid = it.Next() {
		id := record.ThreadID(it.Key()[len(importPrefix):])
		m, err := s.readMark(id)
		if err != nil {
			return errors.Join(err, it.Close())
		}
		sweep(b, id, m.head)
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil || b.Empty() {
		return err
	}
	return s.db.Apply(b, pebble.Sync)
}

// ForeignHead says whether a thread was imported and returns the head that its signer made, which is zero for an
// ancestor that only came along. An unknown thread is an error wrapping record.ErrNotFound.
func (s *Store) ForeignHead(ctx context.Context, id record.ThreadID) (head record.SignedHead, foreign bool, err error) {
	m, err := s.existing(ctx, id)
	if err == nil && m.foreign {
		head, foreign, err = s.foreignHead(id)
	}
	if err != nil {
		return record.SignedHead{}, false, fmt.Errorf("foreign head of %s: %w", id, err)
	}
	return head, foreign, nil
}

func (s *Store) foreignHead(id record.ThreadID) (head record.SignedHead, found bool, err error) {
	if err := s.gate.enter(); err != nil {
		return head, false, err
	}
	defer s.gate.leave()
	line, found, err := get(s.db, key(foreignPrefix, id))
	if err != nil || len(line) == 0 {
		return head, found, err
	}
	if head, err = record.ParseHeadLine(line); err != nil {
		return head, true, fmt.Errorf("%w: %w", record.ErrDamaged, err)
	}
	return head, true, nil
}

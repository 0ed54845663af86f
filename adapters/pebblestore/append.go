package pebblestore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"condensate.dev/cnd/core/record"
)

// Append implements [record.Store]. It returns no later than its context or AppendTimeout demand, also when the disk
// hangs; the entries may then still become durable.
func (s *Store) Append(ctx context.Context, id record.ThreadID, expect record.Head, entries ...record.Entry) (record.Head, error) {
	head, err := s.append(ctx, id, expect, entries)
	if err != nil {
		return record.Head{}, fmt.Errorf("append %d entries to %s after seq %d: %w", len(entries), id, expect.Seq, err)
	}
	return head, nil
}

func (s *Store) append(ctx context.Context, id record.ThreadID, expect record.Head, entries []record.Entry) (record.Head, error) {
	if ctx.Err() != nil {
		return record.Head{}, contextError(ctx)
	}
	needed, err := check(id, expect, entries)
	if err != nil {
		return record.Head{}, err
	}
	if err := s.writable(); err != nil {
		return record.Head{}, err
	}
	if err := s.gate.enter(); err != nil {
		return record.Head{}, err
	}
	timeout, stop := deadline(ctx)
	defer stop()
	st := s.threads.make(id)
	if err := s.takeTurn(ctx, timeout, st); err != nil {
		s.gate.leave()
		return record.Head{}, err
	}
	leave := func() { st.release(); s.gate.leave() }

	next, err := s.successor(id, st, expect, entries, needed)
	if err != nil || next == nil {
		leave()
		return entries[len(entries)-1].Head(), err
	}
	fresh, err := s.fresh(entries)
	if err != nil {
		leave()
		return record.Head{}, err
	}
	err = s.commit(ctx, timeout, sizeOf(id, entries, fresh, next), func(b *pebble.Batch) {
		putBlobs(b, fresh)
		for i := range entries {
			putEntry(b, &entries[i])
		}
		putMark(b, id, next)
	}, func(applied bool) {
		if applied {
			st.ack(next)
		}
		leave()
	})
	if err != nil {
		st.doubted.Store(true)
	}
	return next.head, err
}

// takeTurn waits until nobody else writes to the thread.
func (s *Store) takeTurn(ctx context.Context, timeout <-chan time.Time, st *state) error {
	select {
	case <-st.turn:
		return nil
	default:
	}
	select {
	case <-st.turn:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	case <-timeout:
		return fmt.Errorf("another append to the thread takes over %s: %w", AppendTimeout, ErrTimeout)
	case <-s.health.failed:
		return s.health.failure()
	}
}

// successor returns the mark of the thread after entries; nil when they are stored already.
func (s *Store) successor(
	id record.ThreadID, st *state, expect record.Head, entries []record.Entry, needed []record.Digest,
) (*mark, error) {
	now, err := s.load(id, st)
	if err != nil {
		return nil, err
	}
	switch {
	case now.foreign:
		return nil, fmt.Errorf("%w: %w", ErrForeign, record.ErrReadOnly)
	case now.exists() && (now.head != expect || entries[0].Kind == record.ThreadForked):
		return nil, s.checkStored(id, now, entries)
	case now.head != expect:
		if err := s.checkFork(expect, entries[0]); err != nil {
			return nil, err
		}
	}
	for _, d := range needed {
		if found, err := s.hasBlob(d); err != nil {
			return nil, err
		} else if !found {
			return nil, fmt.Errorf("blob %s: %w", d, record.ErrNoBlob)
		}
	}
	next := &mark{head: entries[len(entries)-1].Head(), projection: now.projection}
	for i := range entries {
		if next.projection, err = s.projected(next.projection, entries[i]); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// fresh returns the blobs of entries that the store does not have.
func (s *Store) fresh(entries []record.Entry) (blobs []record.Blob, err error) {
	for i := range entries {
		for _, b := range entries[i].Blobs {
			if found, err := s.hasBlob(b.Digest); err != nil {
				return nil, err
			} else if !found {
				blobs = append(blobs, b)
			}
		}
	}
	return blobs, nil
}

// checkStored returns nil when the entries stand in the store, byte for byte, where they were to be appended.
func (s *Store) checkStored(id record.ThreadID, now *mark, entries []record.Entry) error {
	for _, e := range entries {
		line, found, err := get(s.db, entryKey(id, e.Seq))
		if err != nil {
			return err
		}
		if e.Seq > now.head.Seq || !found || !bytes.Equal(line, e.Line) {
			return fmt.Errorf("head is at seq %d, hash %.8s…: %w", now.head.Seq, now.head.Hash, record.ErrConflict)
		}
	}
	return nil
}

// checkFork says whether first starts a fork at expect, an entry of the parent's own that the store holds.
func (s *Store) checkFork(expect record.Head, first record.Entry) error {
	if first.Kind != record.ThreadForked {
		return fmt.Errorf("the thread does not exist: %w", record.ErrConflict)
	}
	parent, _, err := record.ForkOf(first)
	if err != nil {
		return err
	}
	m, err := s.acked(parent)
	if err != nil {
		return err
	}
	if !m.exists() {
		return fmt.Errorf("parent %s: %w", parent, record.ErrNotFound)
	}
	k := entryKey(parent, expect.Seq)
	line, found, err := get(s.db, k)
	if err != nil {
		return err
	}
	if found && expect.Seq <= m.head.Seq {
		e, err := parseStored(parent, k, line)
		if err != nil || e.Hash == expect.Hash {
			return err
		}
	}
	return fmt.Errorf("parent %s has no entry %d with hash %.8s…: %w", parent, expect.Seq, expect.Hash, record.ErrConflict)
}

// check is the part of an append that needs no store: record.CheckAppend, and that the lines carry the headers that
// the entries claim. What the bodies hash to is not computed again: whoever sealed or parsed them has just done it.
func check(id record.ThreadID, expect record.Head, entries []record.Entry) (needed []record.Digest, err error) {
	if needed, err = record.CheckAppend(id, expect, entries); err != nil {
		return nil, err
	}
	for i := range entries {
		if err := checkLine(&entries[i]); err != nil {
			return nil, fmt.Errorf("entry %d (%s): %w", entries[i].Seq, entries[i].Kind, err)
		}
	}
	return needed, nil
}

// checkLine says whether the stored line has the place, the predecessor and the hash that the entry claims.
func checkLine(e *record.Entry) error {
	var want [512]byte
	start := append(want[:0], `{"v":0,"thread":"`...)
	start = append(start, e.Thread...)
	start = append(start, `","seq":`...)
	start = strconv.AppendUint(start, uint64(e.Seq), 10)
	start = append(start, ',')
	header := bytes.Index(e.Line, []byte(`,"hash":"`))
	if len(e.Line) >= record.MaxLine || !bytes.HasPrefix(e.Line, start) || header < 0 {
		return fmt.Errorf("the line is not that entry: %w", record.ErrInvalidEntry)
	}
	end := append(start[:0], `"prev":"`...)
	end = hex.AppendEncode(end, e.Prev[:])
	end = append(end, `","sum":"`...)
	end = hex.AppendEncode(end, e.Sum[:])
	end = append(end, '"')
	hash := hex.AppendEncode(end[len(end):], e.Hash[:])
	h := sha256.New()
	h.Write(e.Line[:header])
	h.Write([]byte{'}'})
	if !bytes.HasSuffix(e.Line[:header], end) || !bytes.HasPrefix(e.Line[header+len(`,"hash":"`):], hash) ||
		record.Digest(h.Sum(nil)) != e.Hash {
		return fmt.Errorf("the line has another header: %w", record.ErrInvalidEntry)
	}
	return nil
}

// projected returns the projection after e.
func (s *Store) projected(prev []byte, e record.Entry) ([]byte, error) {
	if s.project == nil {
		return nil, nil
	}
	p, err := s.project(prev, e)
	if err != nil {
		return nil, fmt.Errorf("project entry %d (%s): %w", e.Seq, e.Kind, err)
	}
	return p, nil
}

// sizeOf returns about how many bytes an append adds to a batch.
func sizeOf(id record.ThreadID, entries []record.Entry, blobs []record.Blob, next *mark) int {
	const overhead = 32 // kind and lengths of one key
	n := 2*overhead + len(id) + headLen + len(next.projection)
	for i := range entries {
		n += overhead + entryKeyLen(id) + len(entries[i].Line)
	}
	for _, b := range blobs {
		n += overhead + len(b.Digest) + len(b.Data)
	}
	return n
}

func putEntry(b *pebble.Batch, e *record.Entry) {
	op := b.SetDeferred(entryKeyLen(e.Thread), len(e.Line))
	appendEntryKey(op.Key[:0], e.Thread, e.Seq)
	copy(op.Value, e.Line)
	must(op.Finish())
}

func putBlobs(b *pebble.Batch, blobs []record.Blob) {
	for _, blob := range blobs {
		must(b.Set(blobKey(blob.Digest), blob.Data, nil))
	}
}

func putMark(b *pebble.Batch, id record.ThreadID, m *mark) {
	op := b.SetDeferred(len(headPrefix)+len(id), headLen+len(m.projection))
	copy(op.Key[copy(op.Key, headPrefix):], id)
	copy(op.Value[len(appendHead(op.Value[:0], m.head)):], m.projection)
	must(op.Finish())
}

// must panics on the only errors of filling a batch, which are misuse.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("pebblestore: fill batch: %v", err))
	}
}

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
	"condensate.dev/cnd/core/thread"
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
	if err := checkChain(id, expect, entries); err != nil {
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

	last := entries[len(entries)-1].Head()
	batch, next, err := s.appendBatch(id, st, expect, entries)
	if err != nil || batch == nil {
		leave()
		return last, err
	}
	done := make(chan error, 1)
	go s.health.guard(done, func() error {
		defer leave()
		if err := s.db.Apply(batch, pebble.Sync); err != nil {
			return classify(err)
		}
		st.ack(next)
		return batch.Close()
	})
	return last, s.await(ctx, timeout, done)
}

// deadline returns the channel that ends an append whose context does not.
func deadline(ctx context.Context) (timeout <-chan time.Time, stop func()) {
	if _, ok := ctx.Deadline(); ok {
		return nil, func() {}
	}
	t := time.NewTimer(AppendTimeout)
	return t.C, func() { t.Stop() }
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

// appendBatch returns the batch that appends entries and the mark after it; no batch when they are stored already.
func (s *Store) appendBatch(id record.ThreadID, st *state, expect record.Head, entries []record.Entry) (*pebble.Batch, *mark, error) {
	now, err := s.load(id, st)
	if err != nil {
		return nil, nil, err
	}
	if now.foreign {
		return nil, nil, fmt.Errorf("%w: %w", ErrForeign, record.ErrReadOnly)
	}
	if now.head != expect {
		if now.exists() {
			return nil, nil, s.checkStored(id, now, entries)
		}
		if err := s.checkFork(expect, entries[0]); err != nil {
			return nil, nil, err
		}
	}
	next := &mark{head: entries[len(entries)-1].Head(), projection: now.projection}
	for _, e := range entries {
		if next.projection, err = s.projected(next.projection, e); err != nil {
			return nil, nil, err
		}
	}
	batch := s.db.NewBatchWithSize(batchSize(id, entries, next))
	for _, e := range entries {
		if err := s.putBlobs(batch, e.Blobs); err != nil {
			batch.Close()
			return nil, nil, err
		}
		putEntry(batch, e)
	}
	putMark(batch, id, next)
	return batch, next, nil
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

// checkFork says whether first starts a fork at expect, an entry that the store holds.
func (s *Store) checkFork(expect record.Head, first record.Entry) error {
	if first.Kind != record.ThreadForked {
		return fmt.Errorf("the thread does not exist: %w", record.ErrConflict)
	}
	fork, err := thread.Decode[thread.Forked](first)
	if err != nil {
		return err
	}
	if fork.Seq != expect.Seq || fork.Hash != expect.Hash.String() {
		return fmt.Errorf("fork at seq %d, hash %.8s…, appended after seq %d, hash %.8s…: %w",
			fork.Seq, fork.Hash, expect.Seq, expect.Hash, record.ErrInvalidEntry)
	}
	e, err := s.inherited(fork.Parent, fork.Seq)
	if err != nil {
		return err
	}
	if e.Hash != expect.Hash {
		return fmt.Errorf("fork at seq %d of %s: hash there is %.8s…, not %.8s…: %w",
			fork.Seq, fork.Parent, e.Hash, expect.Hash, record.ErrConflict)
	}
	return nil
}

// checkChain says whether the entries follow expect and their lines carry the headers that they claim. What the body
// hashes to is not computed again: whoever sealed or parsed the entry has just done it.
func checkChain(id record.ThreadID, expect record.Head, entries []record.Entry) error {
	if len(entries) == 0 {
		return fmt.Errorf("no entries: %w", record.ErrInvalidEntry)
	}
	for i := range entries {
		e := &entries[i]
		if e.Thread != id || e.Seq != expect.Next() || e.Prev != expect.Hash {
			return fmt.Errorf("entry %d of %s (%s) does not follow seq %d, hash %.8s…: %w",
				e.Seq, e.Thread, e.Kind, expect.Seq, expect.Hash, record.ErrInvalidEntry)
		}
		if err := checkLine(e); err != nil {
			return fmt.Errorf("entry %d of %s (%s): %w", e.Seq, e.Thread, e.Kind, err)
		}
		for _, b := range e.Blobs {
			if len(b.Data) > record.MaxBlob || sha256.Sum256(b.Data) != b.Digest {
				return fmt.Errorf("entry %d of %s (%s): blob %s of %d bytes is too large or another: %w",
					e.Seq, e.Thread, e.Kind, b.Digest, len(b.Data), record.ErrInvalidEntry)
			}
		}
		expect = e.Head()
	}
	return nil
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

func batchSize(id record.ThreadID, entries []record.Entry, next *mark) int {
	const overhead = 32 // kind and lengths of one key, or the header of a batch
	n := 3*overhead + 2*len(id) + headLen + len(next.projection)
	for _, e := range entries {
		n += overhead + entryKeyLen(id) + len(e.Line)
	}
	return n
}

func putEntry(b *pebble.Batch, e record.Entry) {
	op := b.SetDeferred(entryKeyLen(e.Thread), len(e.Line))
	appendEntryKey(op.Key[:0], e.Thread, e.Seq)
	copy(op.Value, e.Line)
	mustFinish(op.Finish())
}

func putMark(b *pebble.Batch, id record.ThreadID, m *mark) {
	op := b.SetDeferred(len(headPrefix)+len(id), headLen)
	copy(op.Key[copy(op.Key, headPrefix):], id)
	appendHead(op.Value[:0], m.head)
	mustFinish(op.Finish())
	if m.projection != nil {
		mustFinish(b.Set(key(projectionPrefix, id), m.projection, nil))
	}
}

// putBlobs adds the blobs that the store does not have.
func (s *Store) putBlobs(b *pebble.Batch, blobs []record.Blob) error {
	for _, blob := range blobs {
		k := blobKey(blob.Digest)
		_, found, err := get(s.db, k)
		if err != nil {
			return err
		}
		if !found {
			mustFinish(b.Set(k, blob.Data, nil))
		}
	}
	return nil
}

// mustFinish panics on the only errors of building a batch, which are misuse.
func mustFinish(err error) {
	if err != nil {
		panic(fmt.Sprintf("pebblestore: build batch: %v", err))
	}
}

package record_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/memstore"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// TestVerifyThread reads the stories from their store.
func TestVerifyThread(t *testing.T) {
	for name, tell := range goldens {
		s := tell(t)
		store := erasing{s.store, s.erased}
		n := 0
		r, err := record.VerifyThread(t.Context(), store, s.id, record.VerifyOptions{Unsigned: true}, func(record.Entry) error { n++; return nil })
		require.NoError(t, err, name)
		require.Equal(t, int64(n), r.Entries)
		require.Equal(t, r.Entries, r.Unanchored)

		x, err := record.VerifyExport(bytes.NewReader(s.export()), record.VerifyOptions{Opener: signer}, nil)
		require.NoError(t, err)
		require.Equal(t, [5]any{x.Thread, x.Head, x.Entries, x.Blobs, x.Hashed}, [5]any{r.Thread, r.Head, r.Entries, r.Blobs, r.Hashed})
	}
}

// TestVerifyAnchor shows that a stored thread is held against its newest note, and that what came after it is counted.
func TestVerifyAnchor(t *testing.T) {
	s := turnStory(t)
	head, err := record.SignHead(signer, s.id, s.head, record.Digest{})
	require.NoError(t, err)
	verify := func(store record.Store, h record.SignedHead) (record.Report, error) {
		return record.VerifyThread(t.Context(), store, s.id, record.VerifyOptions{Opener: signer, Head: &h}, nil)
	}
	r, err := verify(s.store, head)
	require.NoError(t, err)
	require.Zero(t, r.Unanchored)
	s.ask(text("More."))
	r, err = verify(s.store, head)
	require.NoError(t, err)
	require.Equal(t, int64(4), r.Unanchored)
	require.Equal(t, head, *r.Signed)

	_, err = verify(cut{s.store, head.Seq}, head)
	mustDamage(t, err, record.ErrHead, 0, "the record ends before seq 8")
	other := head
	other.Hash[0]++
	_, err = verify(s.store, other)
	mustDamage(t, err, record.ErrHead, 0, "hash")
	forged, err := record.SignHead(recordtest.NewSigner("condensate.dev/record", 2), s.id, head.Place(), record.Digest{})
	require.NoError(t, err)
	_, err = verify(s.store, forged)
	mustDamage(t, err, record.ErrHead, 0, "not signed by this key")

	// The same for lines that carry no head.
	var out bytes.Buffer
	require.NoError(t, record.WriteExport(t.Context(), &out, s.store, s.id, record.SignedHead{}))
	r, err = record.VerifyExport(bytes.NewReader(out.Bytes()), record.VerifyOptions{Opener: signer, Head: &head}, nil)
	require.NoError(t, err)
	require.Equal(t, int64(4), r.Unanchored)
	_, err = record.VerifyExport(bytes.NewReader(bytes.Join(lines(out.Bytes())[:5], nil)), record.VerifyOptions{Opener: signer, Head: &head}, nil)
	mustDamage(t, err, record.ErrHead, 5, "the record ends before seq 8")
}

// cut is a store that has lost the entries from seq on.
type cut struct {
	record.Store
	seq record.Seq
}

func (c cut) Entries(ctx context.Context, id record.ThreadID, from record.Seq) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		for e, err := range c.Store.Entries(ctx, id, from) {
			if err == nil && e.Seq >= c.seq || !yield(e, err) {
				return
			}
		}
	}
}

// rotten is a store whose entries and blobs can be changed on the way out.
type rotten struct {
	record.Store
	entry func(record.Entry) (record.Entry, error)
	blob  func([]byte) ([]byte, error)
}

func (r rotten) Entries(ctx context.Context, id record.ThreadID, from record.Seq) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		for e, err := range r.Store.Entries(ctx, id, from) {
			if err == nil && r.entry != nil {
				e, err = r.entry(e)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (r rotten) Blob(ctx context.Context, d record.Digest) ([]byte, error) {
	data, err := r.Store.Blob(ctx, d)
	if err == nil && r.blob != nil {
		return r.blob(data)
	}
	return data, err
}

// TestVerifyRottenStore shows that a store is not believed.
func TestVerifyRottenStore(t *testing.T) {
	s := imageStory(t)
	verify := func(r rotten) error {
		r.Store = s.store
		_, err := record.VerifyThread(t.Context(), r, s.id, record.VerifyOptions{Unsigned: true}, nil)
		return err
	}
	require.NoError(t, verify(rotten{}))
	at3 := func(change func(record.Entry) (record.Entry, error)) rotten {
		return rotten{entry: func(e record.Entry) (record.Entry, error) {
			if e.Seq != 3 {
				return e, nil
			}
			return change(e)
		}}
	}
	err := verify(at3(func(e record.Entry) (record.Entry, error) { e.Line[len(e.Line)-3] ^= 1; return e, nil }))
	mustDamage(t, err, record.ErrDamaged, 0, "salt and body hash")
	err = verify(at3(func(e record.Entry) (record.Entry, error) { return e, fmt.Errorf("line: %w", record.ErrInvalidEntry) }))
	mustDamage(t, err, record.ErrDamaged, 0, "")
	err = verify(rotten{blob: func(b []byte) ([]byte, error) { return b[1:], nil }})
	mustDamage(t, err, record.ErrDamaged, 0, "has the content of")
	err = verify(rotten{blob: func([]byte) ([]byte, error) { return nil, fmt.Errorf("gone: %w", record.ErrNoBlob) }})
	mustDamage(t, err, record.ErrDamaged, 0, "gone")

	broken := errors.New("disk on fire")
	require.ErrorIs(t, verify(at3(func(record.Entry) (record.Entry, error) { return record.Entry{}, broken })), broken)
	require.ErrorIs(t, verify(rotten{blob: func([]byte) ([]byte, error) { return nil, broken }}), broken)
	_, err = record.VerifyThread(t.Context(), s.store, recordtest.ThreadID(9), record.VerifyOptions{Unsigned: true}, nil)
	require.ErrorIs(t, err, record.ErrNotFound)
	require.Equal(t, fault.NotFound, fault.ClassOf(err))
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = record.VerifyThread(canceled, s.store, s.id, record.VerifyOptions{Unsigned: true}, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// TestReadThroughDamage shows that a fork whose parent lacks the place is named, not cut short.
func TestReadThroughDamage(t *testing.T) {
	s := forkStory(t)
	var err error
	for _, err = range record.ReadThrough(t.Context(), cutParent{s.store, s.id}, s.id, 0) {
		if err != nil {
			break
		}
	}
	require.ErrorIs(t, err, record.ErrDamaged)
}

// TestReadThroughCircle shows that threads that claim to be forks of each other are damage and no endless loop.
func TestReadThroughCircle(t *testing.T) {
	a := &recordtest.Writer{ID: recordtest.ThreadID(1), Head: record.Head{Seq: 3, Hash: record.Digest{1}}}
	b := &recordtest.Writer{ID: recordtest.ThreadID(2), Head: record.Head{Seq: 5, Hash: record.Digest{2}}}
	forkOf := func(of, w *recordtest.Writer) record.Entry {
		return w.Seal(t, record.ThreadForked, fmt.Sprintf(`{"parent":"%s","seq":%d,"hash":"%s"}`, of.ID, w.Head.Seq, w.Head.Hash))
	}
	s := liar{a.ID: forkOf(b, a), b.ID: forkOf(a, b)}
	for _, id := range []record.ThreadID{a.ID, b.ID} {
		for _, err := range record.ReadThrough(t.Context(), s, id, 0) {
			require.ErrorIs(t, err, record.ErrDamaged)
		}
		_, err := record.VerifyThread(t.Context(), s, id, record.VerifyOptions{Unsigned: true}, nil)
		require.ErrorIs(t, err, record.ErrDamaged)
	}
}

// liar is a store whose threads have one entry each, whatever that claims.
type liar map[record.ThreadID]record.Entry

func (l liar) Entries(_ context.Context, id record.ThreadID, _ record.Seq) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) { yield(l[id], nil) }
}

func (l liar) Append(context.Context, record.ThreadID, record.Head, ...record.Entry) (record.Head, error) {
	return record.Head{}, record.ErrReadOnly
}

func (l liar) Head(_ context.Context, id record.ThreadID) (record.Head, error) {
	return l[id].Head(), nil
}

func (l liar) Blob(context.Context, record.Digest) ([]byte, error) { return nil, record.ErrNoBlob }

// cutParent is a store that has lost the last entry of every thread but one.
type cutParent struct {
	*memstore.Store
	keep record.ThreadID
}

func (c cutParent) Entries(ctx context.Context, id record.ThreadID, from record.Seq) iter.Seq2[record.Entry, error] {
	head, err := c.Head(ctx, id)
	if id == c.keep || err != nil {
		return c.Store.Entries(ctx, id, from)
	}
	return cut{c.Store, head.Seq}.Entries(ctx, id, from)
}

package recordtest

import (
	"bytes"
	"errors"
	"testing"

	"condensate.dev/cnd/core/record"
)

func testBlobs(t *testing.T, s record.Store) {
	a, b := record.NewBlob([]byte("first\x00\xff")), record.NewBlob([]byte("second"))
	w := NewWriter(1)
	all := w.Start(t, 1)
	all = append(all, w.Seal(t, record.ToolFinished, Listing(a, b), a, b))
	mustAppend(t, s, record.Head{}, all...)
	mustBlob(t, s, a)
	mustBlob(t, s, b)

	again := w.Seal(t, record.ToolFinished, Listing(b), b)
	mustAppend(t, s, all[1].Head(), again)
	bare := w.Seal(t, record.ToolFinished, Listing(a), a)
	bare.Blobs = nil // the store has it
	mustAppend(t, s, again.Head(), bare)

	other := NewWriter(2) // content is shared by all threads
	start := append(other.Start(t, 1), other.Seal(t, record.ToolFinished, Listing(a), a))
	mustAppend(t, s, record.Head{}, start...)
	mustBlob(t, s, a)
	for _, id := range []record.ThreadID{w.ID, other.ID} {
		if _, err := record.VerifyThread(ctx(t), s, id, record.VerifyOptions{Unsigned: true}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func testBadBlobs(t *testing.T, s record.Store) {
	a := record.NewBlob([]byte("content"))
	w := NewWriter(1)
	all := w.Start(t, 1)
	mustAppend(t, s, record.Head{}, all...)
	listing := w.Seal(t, record.ToolFinished, Listing(a), a)
	head := all[0].Head()

	listing.Blobs = nil
	mustFail(t, s, record.ErrNoBlob, head, listing)
	listing.Blobs = []record.Blob{{Digest: a.Digest, Data: []byte("other content")}}
	mustFail(t, s, record.ErrInvalidEntry, head, listing)
	unlisted := record.NewBlob([]byte("unlisted"))
	listing.Blobs = []record.Blob{a, unlisted}
	mustFail(t, s, record.ErrInvalidEntry, head, listing)
	mustHold(t, s, w.ID, all)
	if _, err := s.Blob(ctx(t), a.Digest); !errors.Is(err, record.ErrNoBlob) {
		t.Fatalf("blob of a refused append: got error %v, want %v", err, record.ErrNoBlob)
	}
}

func testForks(t *testing.T, s record.Store) {
	w := NewWriter(1)
	old := w.Start(t, 5)
	mustAppend(t, s, record.Head{}, old...)
	f, forked := w.Fork(t, 2)
	late := w.More(t, 3)
	mustAppend(t, s, old[4].Head(), late...) // the parent goes on before the fork is written

	own := append([]record.Entry{forked}, f.More(t, 2)...)
	mustAppend(t, s, old[4].Head(), own...)
	mustAppend(t, s, old[4].Head(), own...) // again
	g, reforked := f.Fork(t, 3)
	deep := append([]record.Entry{reforked}, g.More(t, 1)...)
	mustAppend(t, s, own[2].Head(), deep...)
	before := f.Head
	more := f.More(t, 1)
	mustAppend(t, s, before, more...)

	mustHold(t, s, w.ID, append(old[:5:5], late...))
	mustHold(t, s, f.ID, append(own, more...))
	mustHold(t, s, g.ID, deep)
	through := append(append(append([]record.Entry{}, old...), own...), deep...)
	for from := range len(through) + 2 {
		var got []record.Entry
		for e, err := range record.ReadThrough(ctx(t), s, g.ID, record.Seq(from)) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e)
		}
		mustEqual(t, got, through[min(from, len(through)):])
	}
	for _, id := range []record.ThreadID{w.ID, f.ID, g.ID} {
		if _, err := record.VerifyThread(ctx(t), s, id, record.VerifyOptions{Unsigned: true}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func testBadForks(t *testing.T, s record.Store) {
	absent := NewWriter(1)
	absent.Start(t, 2)
	f, forked := absent.Fork(t, 2)
	mustFail(t, s, record.ErrNotFound, absent.Head, forked)
	mustBeUnknown(t, s, f.ID)

	w := NewWriter(1)
	all := []record.Entry{w.Seal(t, record.ThreadCreated, `{"cwd":"/elsewhere"}`)}
	mustAppend(t, s, record.Head{}, all...)
	mustFail(t, s, record.ErrConflict, absent.Head, forked) // the parent has no such entry yet
	more := w.More(t, 2)
	mustAppend(t, s, all[0].Head(), more...)
	mustFail(t, s, record.ErrConflict, absent.Head, forked) // it has another one there
	mustBeUnknown(t, s, f.ID)

	g, good := w.Fork(t, 2)
	mustFail(t, s, record.ErrInvalidEntry, more[0].Head(), good) // it does not follow what it names
	mustAppend(t, s, w.Head, good)
	stray := Writer{ID: f.ID, Head: more[0].Head()}
	strayed := stray.Seal(t, record.MessageAccepted, `{}`)
	mustFail(t, s, record.ErrConflict, more[0].Head(), strayed)
	mustHold(t, s, g.ID, []record.Entry{good})
}

func testOwnership(t *testing.T, s record.Store) {
	w := NewWriter(1)
	blob := record.NewBlob([]byte("content"))
	all := append(w.Start(t, 2), w.Seal(t, record.ToolFinished, Listing(blob), blob))
	given := make([]record.Entry, len(all))
	for i, e := range all {
		given[i] = e.Clone()
		for _, b := range e.Blobs {
			given[i].Blobs = append(given[i].Blobs, record.Blob{Digest: b.Digest, Data: bytes.Clone(b.Data)})
		}
	}
	mustAppend(t, s, record.Head{}, given...)
	for _, e := range given {
		clear(e.Line)
		for _, b := range e.Blobs {
			clear(b.Data)
		}
	}
	mustHold(t, s, w.ID, all)
	mustBlob(t, s, blob)

	var held []record.Entry
	for e, err := range s.Entries(ctx(t), w.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, e)
	}
	mustEqual(t, held, all) // an entry outlives the round of the loop that got it
	for _, e := range held {
		clear(e.Line)
	}
	data, err := s.Blob(ctx(t), blob.Digest)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	mustHold(t, s, w.ID, all)
	mustBlob(t, s, blob)
}

func testSnapshot(t *testing.T, s record.Store) {
	w := NewWriter(1)
	all := w.Start(t, 4)
	mustAppend(t, s, record.Head{}, all...)
	var got []record.Entry
	for e, err := range s.Entries(ctx(t), w.ID, 1) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
		before := w.Head
		more := w.More(t, 1)
		mustAppend(t, s, before, more...)
		mustHold(t, s, w.ID, append(all, more...))
		all = append(all, more...)
	}
	mustEqual(t, got, all[1:4])
	for range s.Entries(ctx(t), w.ID, 0) {
		break // leaves nothing open
	}
	mustHold(t, s, w.ID, all)
}

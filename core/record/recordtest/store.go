// Package recordtest says what every record.Store must do, as tests that each adapter runs, and seals entries for
// tests that need some.
package recordtest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"condensate.dev/cnd/core/record"
)

// TestStore runs the conformance suite; open returns a new, empty store, and arranges that it is closed.
func TestStore(t *testing.T, open func(t *testing.T) record.Store) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s record.Store)
	}{
		{"appends are read back as they were", testReadBack},
		{"an unknown thread or blob is not found", testUnknown},
		{"the same bytes at the same place succeed again", testRetry},
		{"another head is a conflict and nothing is written", testConflict},
		{"all entries of an append or none", testAtomic},
		{"neighbouring threads do not mix", testNeighbours},
		{"lines and blobs of any allowed size", testSizes},
		{"blobs are kept once and handed out to all", testBlobs},
		{"blobs that are missing or wrong are refused", testBadBlobs},
		{"forks read through", testForks},
		{"forks of what is not there are refused", testBadForks},
		{"slices belong to the caller", testOwnership},
		{"a loop sees the entries as of its call", testSnapshot},
		{"a canceled call writes nothing", testCanceled},
		{"the head after a failed append is the last word", testHeadDecides},
		{"many threads at once", testManyThreads},
		{"one place has one winner", testOneWinner},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	}
}

// ctx is for calls that are not about their context.
func ctx(t testing.TB) context.Context { return t.Context() }

func mustAppend(t testing.TB, s record.Store, expect record.Head, entries ...record.Entry) {
	t.Helper()
	head, err := s.Append(ctx(t), entries[0].Thread, expect, entries...)
	if err != nil {
		t.Fatalf("append %d entries after seq %d: %v", len(entries), expect.Seq, err)
	}
	if want := entries[len(entries)-1].Head(); head != want {
		t.Fatalf("append returned head %v, want %v", head, want)
	}
}

func mustFail(t testing.TB, s record.Store, want error, expect record.Head, entries ...record.Entry) {
	t.Helper()
	thread := ThreadID(1)
	if len(entries) > 0 {
		thread = entries[0].Thread
	}
	if _, err := s.Append(ctx(t), thread, expect, entries...); !errors.Is(err, want) {
		t.Fatalf("append: got error %v, want %v", err, want)
	}
}

// mustHold fails unless the thread's own entries are exactly want, its head the last of them.
func mustHold(t testing.TB, s record.Store, thread record.ThreadID, want []record.Entry) {
	t.Helper()
	var got []record.Entry
	for e, err := range s.Entries(ctx(t), thread, 0) {
		if err != nil {
			t.Fatalf("entries of %s: %v", thread, err)
		}
		got = append(got, e)
	}
	mustEqual(t, got, want)
	head, err := s.Head(ctx(t), thread)
	if err != nil {
		t.Fatalf("head of %s: %v", thread, err)
	}
	if head != want[len(want)-1].Head() {
		t.Fatalf("head of %s is %v, want %v", thread, head, want[len(want)-1].Head())
	}
}

func mustEqual(t testing.TB, got, want []record.Entry) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d entries, want %d", len(got), len(want))
	}
	for i, g := range got {
		w := want[i]
		if !bytes.Equal(g.Line, w.Line) || !bytes.Equal(g.Body, w.Body) || g.Salt != w.Salt {
			t.Fatalf("entry %d is\n%s\nwant\n%s", i, g.Line, w.Line)
		}
		if g.Thread != w.Thread || g.Seq != w.Seq || g.Gen != w.Gen || !g.Time.Equal(w.Time) || g.Kind != w.Kind ||
			g.Prev != w.Prev || g.Sum != w.Sum || g.Hash != w.Hash {
			t.Fatalf("entry %d reads as %+v, want %+v", i, g, w)
		}
		if len(g.Blobs) > 0 {
			t.Fatalf("entry %d came with blobs", i)
		}
	}
}

func mustBeUnknown(t testing.TB, s record.Store, thread record.ThreadID) {
	t.Helper()
	n := 0
	for _, err := range s.Entries(ctx(t), thread, 0) {
		if n++; !errors.Is(err, record.ErrNotFound) {
			t.Fatalf("entries of %s: got error %v, want %v", thread, err, record.ErrNotFound)
		}
	}
	if n != 1 {
		t.Fatalf("entries of %s yielded %d times, want one error", thread, n)
	}
	if _, err := s.Head(ctx(t), thread); !errors.Is(err, record.ErrNotFound) {
		t.Fatalf("head of %s: got error %v, want %v", thread, err, record.ErrNotFound)
	}
}

func mustBlob(t testing.TB, s record.Store, want record.Blob) {
	t.Helper()
	got, err := s.Blob(ctx(t), want.Digest)
	if err != nil {
		t.Fatalf("blob: %v", err)
	}
	if !bytes.Equal(got, want.Data) {
		t.Fatalf("blob of %d bytes came back as %d other bytes", len(want.Data), len(got))
	}
}

package recordtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"condensate.dev/cnd/core/record"
)

func testReadBack(t *testing.T, s record.Store) {
	w := NewWriter(1)
	all := w.Start(t, 1)
	mustAppend(t, s, record.Head{}, all...)
	for n := 1; n <= 20; n++ {
		before := w.Head
		more := w.More(t, n)
		mustAppend(t, s, before, more...)
		all = append(all, more...)
	}
	mustHold(t, s, w.ID, all)
	for _, from := range []int{0, 1, 2, 100, len(all) - 1, len(all), len(all) + 1000} {
		var got []record.Entry
		for e, err := range s.Entries(ctx(t), w.ID, record.Seq(from)) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e)
		}
		mustEqual(t, got, all[min(from, len(all)):])
	}
}

func testUnknown(t *testing.T, s record.Store) {
	mustBeUnknown(t, s, ThreadID(1))
	if _, err := s.Blob(ctx(t), record.NewBlob([]byte("x")).Digest); !errors.Is(err, record.ErrNoBlob) {
		t.Fatalf("got error %v, want %v", err, record.ErrNoBlob)
	}
}

func testRetry(t *testing.T, s record.Store) {
	w := NewWriter(1)
	first := w.Start(t, 3)
	mustAppend(t, s, record.Head{}, first...)
	mustAppend(t, s, record.Head{}, first...)
	after := w.Head
	second := w.More(t, 2)
	mustAppend(t, s, after, second...)
	mustAppend(t, s, record.Head{}, first...) // the thread has gone on
	mustAppend(t, s, after, second...)
	mustAppend(t, s, first[0].Head(), first[1]) // a part of an append
	mustHold(t, s, w.ID, append(first, second...))
}

func testConflict(t *testing.T, s record.Store) {
	w := NewWriter(1)
	all := w.Start(t, 3)
	mustAppend(t, s, record.Head{}, all...)

	other := NewWriter(1)
	theirs := []record.Entry{other.Seal(t, record.ThreadCreated, `{"cwd":"/elsewhere"}`)}
	theirs = append(theirs, other.More(t, 4)...)
	stale := Writer{ID: w.ID, Head: all[1].Head()}

	mustFail(t, s, record.ErrConflict, record.Head{}, theirs[0])
	mustFail(t, s, record.ErrConflict, theirs[1].Head(), theirs[2]) // other bytes at a place that is taken
	mustFail(t, s, record.ErrConflict, theirs[2].Head(), theirs[3]) // at the next place, after another entry
	mustFail(t, s, record.ErrConflict, theirs[3].Head(), theirs[4]) // beyond the next place
	mustFail(t, s, record.ErrConflict, all[1].Head(), stale.Seal(t, record.MessageAccepted, `{"text":"late"}`))
	ahead := Writer{ID: w.ID, Head: all[0].Head()}
	mustFail(t, s, record.ErrConflict, all[0].Head(), append([]record.Entry{all[1], all[2]}, w.More(t, 1)...)...)
	mustFail(t, s, record.ErrConflict, all[0].Head(), ahead.Seal(t, record.MessageAccepted, `{}`), ahead.Seal(t, record.MessageAccepted, `{}`))
	mustHold(t, s, w.ID, all)

	fresh := NewWriter(2)
	begun := fresh.Start(t, 2)
	mustFail(t, s, record.ErrConflict, begun[0].Head(), begun[1]) // the thread has no entries yet
	mustBeUnknown(t, s, fresh.ID)
}

func testAtomic(t *testing.T, s record.Store) {
	w := NewWriter(1)
	all := w.Start(t, 2)
	mustAppend(t, s, record.Head{}, all...)
	head := w.Head
	next := w.More(t, 3)

	mustFail(t, s, record.ErrInvalidEntry, head)
	mustFail(t, s, record.ErrInvalidEntry, head, next[1], next[0])
	mustFail(t, s, record.ErrInvalidEntry, head, next[0], next[2])
	mustFail(t, s, record.ErrInvalidEntry, head, next[0], next[0])
	mustFail(t, s, record.ErrInvalidEntry, next[0].Head(), next[0])
	mustFail(t, s, record.ErrInvalidEntry, head, next[0], NewWriter(2).Start(t, 1)[0])
	if _, err := s.Append(ctx(t), ThreadID(2), record.Head{}, NewWriter(3).Start(t, 1)...); !errors.Is(err, record.ErrInvalidEntry) {
		t.Fatalf("entry of another thread: got error %v", err)
	}
	absent := record.NewBlob([]byte("absent"))
	lister := Writer{ID: w.ID, Head: next[0].Head()}
	listing := lister.Seal(t, record.ToolFinished, Listing(absent), absent)
	listing.Blobs = nil
	mustFail(t, s, record.ErrNoBlob, head, next[0], listing)
	again := Writer{ID: w.ID, Head: head}
	mustFail(t, s, record.ErrInvalidEntry, head, again.Seal(t, record.ThreadCreated, `{}`))
	mustHold(t, s, w.ID, all)
	mustBeUnknown(t, s, ThreadID(2))
	mustBeUnknown(t, s, ThreadID(3))

	mustAppend(t, s, head, next...)
	mustHold(t, s, w.ID, append(all, next...))
}

func testNeighbours(t *testing.T, s record.Store) {
	threads := make([][]record.Entry, 4)
	for i := range threads {
		threads[i] = NewWriter(i+1).Start(t, 3)
		mustAppend(t, s, record.Head{}, threads[i]...)
	}
	for i, want := range threads {
		mustHold(t, s, ThreadID(i+1), want)
		for range s.Entries(ctx(t), ThreadID(i+1), 3) {
			t.Fatal("an entry after the last one")
		}
	}
	mustBeUnknown(t, s, ThreadID(0))
	mustBeUnknown(t, s, ThreadID(5))
}

func testSizes(t *testing.T, s record.Store) {
	w := NewWriter(1)
	all := w.Start(t, 1)
	empty, large := record.NewBlob(nil), record.NewBlob([]byte(strings.Repeat("large ", record.MaxBlob/6)))
	all = append(all,
		w.Seal(t, record.MessageAccepted, `{}`),
		w.Seal(t, record.MessageAccepted, "{\"text\":\"\u2028\\u0000 \u00fc\U0001f642\"}"),
		w.Seal(t, record.ToolFinished, Listing(empty, large), empty, large),
	)
	frame := len(all[0].Line) - len(all[0].Body) - len(record.ThreadCreated) + len(record.MessageAccepted) + len("{\"t\":\"\"}\n")
	all = append(all, w.Seal(t, record.MessageAccepted, `{"t":"`+strings.Repeat("x", record.MaxLine-frame)+`"}`))
	if n := len(all[4].Line) + 1; n != record.MaxLine {
		t.Fatalf("the longest line has %d bytes, want %d", n, record.MaxLine)
	}
	if _, err := w.Try(record.MessageAccepted, `{"t":"`+strings.Repeat("x", record.MaxLine-frame+1)+`"}`); !errors.Is(err, record.ErrInvalidEntry) {
		t.Fatalf("a longer line: got error %v", err)
	}
	mustAppend(t, s, record.Head{}, all...)
	mustHold(t, s, w.ID, all)
	mustBlob(t, s, empty)
	mustBlob(t, s, large)
}

func testCanceled(t *testing.T, s record.Store) {
	canceled, cancel := context.WithCancel(ctx(t))
	cancel()
	w := NewWriter(1)
	all := w.Start(t, 2)
	if _, err := s.Append(canceled, w.ID, record.Head{}, all...); !errors.Is(err, context.Canceled) {
		t.Fatalf("append: got error %v, want %v", err, context.Canceled)
	}
	mustBeUnknown(t, s, w.ID)
	blob := record.NewBlob([]byte("data"))
	all = append(all, w.Seal(t, record.ToolFinished, Listing(blob), blob))
	mustAppend(t, s, record.Head{}, all...)

	if _, err := s.Head(canceled, w.ID); !errors.Is(err, context.Canceled) {
		t.Fatalf("head: got error %v, want %v", err, context.Canceled)
	}
	if _, err := s.Blob(canceled, blob.Digest); !errors.Is(err, context.Canceled) {
		t.Fatalf("blob: got error %v, want %v", err, context.Canceled)
	}
	midway, stop := context.WithCancel(ctx(t))
	defer stop()
	var errs []error
	for _, err := range s.Entries(midway, w.ID, 0) {
		errs = append(errs, err)
		stop()
	}
	if len(errs) != 2 || errs[0] != nil || !errors.Is(errs[1], context.Canceled) {
		t.Fatalf("a loop whose context ends in the first round saw %v", errs)
	}
}

// testHeadDecides cancels appends at any moment. The head that is read after a failed one is the last word: whoever goes
// on from there meets no conflict.
func testHeadDecides(t *testing.T, s record.Store) {
	w := NewWriter(1)
	mustAppend(t, s, record.Head{}, w.Start(t, 1)...)
	for range 100 {
		before := w.Head
		next := w.More(t, 1)
		canceled, cancel := context.WithCancel(ctx(t))
		go cancel()
		_, err := s.Append(canceled, w.ID, before, next...)
		if err == nil {
			continue
		}
		head, err := s.Head(ctx(t), w.ID)
		if err != nil || (head != before && head != w.Head) {
			t.Fatalf("head after a canceled append is %v, error %v", head, err)
		}
		w.Head = head
		at := w.Head
		mustAppend(t, s, at, w.Seal(t, record.MessageAccepted, `{"text":"instead"}`))
	}
}

func testManyThreads(t *testing.T, s record.Store) {
	const threads, rounds = 16, 12
	done := make(chan error, 2*threads)
	for i := range threads {
		w := NewWriter(i + 1)
		batches := [][]record.Entry{w.Start(t, 1)}
		for range rounds {
			batches = append(batches, w.More(t, 2))
		}
		started := make(chan struct{})
		go func() {
			at := record.Head{}
			for n, batch := range batches {
				head, err := s.Append(ctx(t), w.ID, at, batch...)
				if n == 0 {
					close(started)
				}
				if err != nil {
					done <- fmt.Errorf("%s: %w", w.ID, err)
					return
				}
				at = head
			}
			done <- nil
		}()
		go func() { // a reader sees whole appends only
			<-started
			for range rounds {
				n := 0
				for _, err := range s.Entries(ctx(t), w.ID, 0) {
					if err != nil {
						done <- err
						return
					}
					n++
				}
				if n%2 != 1 {
					done <- fmt.Errorf("a reader of %s saw %d entries: half an append", w.ID, n)
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 * threads {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for i := range threads {
		r, err := record.VerifyThread(ctx(t), s, ThreadID(i+1), record.VerifyOptions{Unsigned: true}, nil)
		if err != nil || r.Entries != 1+2*rounds {
			t.Errorf("thread %d: %d entries, %v", i+1, r.Entries, err)
		}
	}
}

func testOneWinner(t *testing.T, s record.Store) {
	const writers, places = 8, 6
	w := NewWriter(1)
	all := w.Start(t, 1)
	mustAppend(t, s, record.Head{}, all...)
	for place := range places {
		won := make(chan record.Entry, writers)
		failed := make(chan error, writers)
		for i := range writers {
			mine := Writer{ID: w.ID, Head: w.Head}
			e := mine.Seal(t, record.MessageAccepted, fmt.Sprintf(`{"writer":%d,"place":%d}`, i, place))
			go func() {
				_, err := s.Append(ctx(t), w.ID, w.Head, e)
				if err == nil {
					won <- e
				}
				failed <- err
			}()
		}
		for range writers {
			if err := <-failed; err != nil && !errors.Is(err, record.ErrConflict) {
				t.Fatal(err)
			}
		}
		if len(won) != 1 {
			t.Fatalf("place %d has %d winners", place, len(won))
		}
		e := <-won
		all = append(all, e)
		w.Head = e.Head()
	}
	mustHold(t, s, w.ID, all)
}

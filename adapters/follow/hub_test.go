package follow

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// TestResumeWithoutGapOrDuplicate appends at random to several threads while clients come, break off at random places
// and go on from the last entry that they received. Each of them must end with exactly the stored lines.
func TestResumeWithoutGapOrDuplicate(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			b := newBed(t, Options{})
			const threads, entries, clients = 3, 60, 5
			for n := range threads {
				b.create(threadN(n), 1+rng.IntN(5))
			}
			done := make(chan *seen, threads*clients)
			for n := range threads {
				for c := range clients {
					go func() {
						s, rng := &seen{}, rand.New(rand.NewPCG(seed, uint64(2+n*clients+c)))
						for len(s.lines) < entries {
							b.followOnce(t, threadN(n), s, rng, entries)
						}
						done <- s
					}()
				}
			}
			for n := range threads {
				go func() {
					rng := rand.New(rand.NewPCG(seed, uint64(100+n)))
					for b.head(threadN(n)).Next() < entries {
						if rng.IntN(3) == 0 {
							b.hub.Streamed(threadN(n), text(1, 1, "x"))
						}
						time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
						b.note(threadN(n), strings.Repeat("n", rng.IntN(300)))
					}
				}()
			}
			for range threads * clients {
				s := <-done
				id := threadN(int(s.lines[0][len(`{"v":0,"thread":"thr_`)+25] - '0'))
				require.Equal(t, b.lines(id), s.lines, "seed %d", seed)
			}
		})
	}
}

func (b *bed) head(id record.ThreadID) record.Head {
	head, err := b.store.Head(context.Background(), id)
	require.NoError(b.t, err)
	return head
}

// followOnce follows until all entries are there or the dice break the connection: while a message is on its way
// (then it may have arrived or not) or by ending the context.
func (b *bed) followOnce(t *testing.T, id record.ThreadID, s *seen, rng *rand.Rand, entries int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f, err := b.hub.subscribe(ctx, id, record.Seq(len(s.lines)), rng.IntN(2) == 0)
	require.NoError(t, err)
	defer f.leave()
	err = f.run(ctx, func(m message) error {
		time.Sleep(time.Duration(rng.IntN(2)) * time.Millisecond)
		switch rng.IntN(20) {
		case 0:
			return errors.New("broke before the client had it")
		case 1:
			s.take(t, m)
			return errors.New("broke after the client had it")
		case 2:
			cancel()
		}
		s.take(t, m)
		if len(s.lines) == entries {
			cancel()
		}
		return nil
	})
	require.Error(t, err)
}

// lateStore lets something happen between reading a head and returning it.
type lateStore struct {
	record.Store
	afterHead func()
}

func (s *lateStore) Head(ctx context.Context, id record.ThreadID) (record.Head, error) {
	h, err := s.Store.Head(ctx, id)
	if s.afterHead != nil {
		s.afterHead()
	}
	return h, err
}

// TestNothingIsMissedWhileSubscribing appends in the instant in which a follower has read the head.
func TestNothingIsMissedWhileSubscribing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		b.create(threadN(1), 2)
		late := &lateStore{Store: b.store}
		b.hub.store = late
		late.afterHead = func() {
			late.afterHead = nil
			b.note(threadN(1), "in between")
		}
		s := b.follow(threadN(1), 0, false)
		synctest.Wait()
		require.Equal(t, b.lines(threadN(1)), s.lines)
	})
}

// follow runs a follower that reads at once, until the test ends.
func (b *bed) follow(id record.ThreadID, from record.Seq, deltas bool) *seen {
	b.t.Helper()
	s := &seen{}
	b.followWith(id, from, deltas, func(m message) error {
		s.take(b.t, m)
		return nil
	})
	return s
}

func (b *bed) followWith(id record.ThreadID, from record.Seq, deltas bool, send func(message) error) {
	b.t.Helper()
	f, err := b.hub.subscribe(b.t.Context(), id, from, deltas)
	require.NoError(b.t, err)
	go func() {
		defer f.leave()
		f.run(b.t.Context(), send)
	}()
}

// TestOnlyDurableEntriesAreSent keeps back what a store shows before the loop announces it.
func TestOnlyDurableEntriesAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		b.create(threadN(1), 2)
		s := b.follow(threadN(1), 0, false)
		synctest.Wait()
		e := b.append(threadN(1), record.NoteInjected, thread.NoteInjected{Text: "not announced"})
		for f := range b.hub.topics[threadN(1)].followers {
			f.wake()
		}
		synctest.Wait()
		require.Len(t, s.lines, 2)
		b.hub.Appended(threadN(1), []record.Entry{e})
		synctest.Wait()
		require.Len(t, s.lines, 3)
	})
}

// TestForkIsFollowedThroughItsParent sends inherited entries first.
func TestForkIsFollowedThroughItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		b.create(threadN(1), 4)
		var at record.Entry
		for e, err := range b.store.Entries(t.Context(), threadN(1), 2) {
			require.NoError(t, err)
			at = e
			break
		}
		fork, err := record.Seal(threadN(2), at.Head(), record.Salt{}, record.Draft{Kind: record.ThreadForked,
			Body: thread.Encode(thread.Forked{Parent: threadN(1), Seq: at.Seq, Hash: at.Hash.String()})})
		require.NoError(t, err)
		_, err = b.store.Append(t.Context(), threadN(2), at.Head(), fork)
		require.NoError(t, err)
		s := b.follow(threadN(2), 1, false)
		synctest.Wait()
		require.Equal(t, append(b.lines(threadN(1))[1:3:3], string(fork.Line)), s.lines)
	})
}

// TestDeltasStandBetweenTheirEntries keeps the order of the loop: request, deltas, answer, reset.
func TestDeltasStandBetweenTheirEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		b.create(threadN(1), 1)
		hold, s := make(chan struct{}), &seen{}
		b.followWith(threadN(1), 0, true, func(m message) error {
			<-hold
			s.take(t, m)
			return nil
		})
		synctest.Wait() // the first entry is on its way
		b.write(threadN(1), record.RequestPrepared, thread.RequestPrepared{Attempt: 1})
		b.hub.Streamed(threadN(1), text(1, 1, "a"))
		close(hold)
		synctest.Wait()
		b.hub.Streamed(threadN(1), text(1, 1, "b"))
		synctest.Wait()
		b.write(threadN(1), record.AnswerFinished, thread.AnswerFinished{Request: 1, Attempt: 1})
		b.hub.Reset(threadN(1))
		synctest.Wait()
		require.Equal(t, []string{"entry", "heartbeat", "entry", "delta", "delta", "entry", "reset"}, s.kinds)
	})
}

// TestResetIsSentOnlyForWhatWasShown spares a client that saw no delta of the attempt.
func TestResetIsSentOnlyForWhatWasShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		b.create(threadN(1), 1)
		hold := make(chan struct{})
		s := &seen{}
		plain := b.follow(threadN(1), 0, false)
		b.followWith(threadN(1), 0, true, func(m message) error {
			<-hold
			s.take(t, m)
			return nil
		})
		synctest.Wait()
		b.hub.Streamed(threadN(1), text(1, 1, "never shown"))
		b.hub.Reset(threadN(1))
		close(hold)
		synctest.Wait()
		require.Equal(t, []string{"entry", "heartbeat"}, s.kinds)
		require.Equal(t, []string{"entry", "heartbeat"}, plain.kinds)
	})
}

// TestSlowClientCollapsesToSnapshot streams far more than a queue holds at a client that does not read. Its queue
// stays bounded, others see every delta, and when it reads again it has the same text.
func TestSlowClientCollapsesToSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		b.create(threadN(1), 1)
		hold, slow := make(chan struct{}), &seen{}
		b.followWith(threadN(1), 0, true, func(m message) error {
			<-hold
			slow.take(t, m)
			return nil
		})
		fast := b.follow(threadN(1), 0, true)
		synctest.Wait()
		truth := ""
		for n := range 3000 {
			piece := fmt.Sprintf("%d héllo ", n)
			truth += piece
			b.hub.Streamed(threadN(1), text(1, 1, piece))
			if n%100 == 0 {
				synctest.Wait()
			}
			require.LessOrEqual(t, b.longestQueue(threadN(1)), MaxQueue)
		}
		synctest.Wait()
		require.Equal(t, truth, fast.shown["text"])
		require.NotContains(t, fast.kinds, "snapshot")

		close(hold)
		synctest.Wait()
		b.hub.Streamed(threadN(1), text(1, 1, "the end"))
		synctest.Wait()
		require.Equal(t, truth+"the end", slow.shown["text"])
		require.Equal(t, []string{"entry", "heartbeat", "snapshot", "delta"}, slow.kinds)
	})
}

func (b *bed) longestQueue(id record.ThreadID) (longest int) {
	b.hub.mu.Lock()
	defer b.hub.mu.Unlock()
	for f := range b.hub.topics[id].followers {
		longest = max(longest, f.queueSize)
	}
	return longest
}

// TestLateFollowerGetsSnapshotFirst joins in the middle of an answer whose parts are of several kinds.
func TestLateFollowerGetsSnapshotFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		b.create(threadN(1), 1)
		early := b.follow(threadN(1), 0, true)
		synctest.Wait()
		for _, d := range []loop.Delta{
			{Request: 1, Attempt: 1, Kind: "thinking", Text: "hm"}, {Request: 1, Attempt: 1, Kind: "thinking", Text: "m"},
			{Request: 1, Attempt: 1, Kind: "text", Text: "so"},
			{Request: 1, Attempt: 1, Kind: "output", Call: "1.0", Text: "a"}, {Request: 1, Attempt: 1, Kind: "output", Call: "1.1", Text: "x"},
			{Request: 1, Attempt: 1, Kind: "output", Call: "1.0", Text: "b"},
		} {
			b.hub.Streamed(threadN(1), d)
		}
		late := b.follow(threadN(1), 1, true)
		synctest.Wait()
		b.hub.Streamed(threadN(1), loop.Delta{Request: 1, Attempt: 1, Kind: "output", Call: "1.1", Text: "y"})
		synctest.Wait()
		want := map[string]string{"thinking": "hmm", "text": "so", "output1.0": "ab", "output1.1": "xy"}
		require.Equal(t, want, early.shown)
		require.Equal(t, want, late.shown)
		require.Equal(t, []string{"snapshot", "heartbeat", "delta"}, late.kinds)

		b.write(threadN(1), record.ToolFinished, thread.ToolFinished{Call: "1.0", Content: []thread.Block{}})
		later := b.follow(threadN(1), 2, true)
		synctest.Wait()
		require.NotContains(t, later.shown, "output1.0", "its entry has replaced it")
		require.Contains(t, later.shown, "output1.1")
		b.write(threadN(1), record.RequestPrepared, thread.RequestPrepared{Attempt: 1})
		require.Nil(t, b.hub.topics[threadN(1)].running, "a new request begins with nothing shown")
	})
}

// TestShownTextSurvivesAnyPace is the property behind collapse and snapshot: whatever the pace of a client, in the end
// it shows what the running attempt has streamed.
func TestShownTextSurvivesAnyPace(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			b := newBed(t, Options{})
			b.create(threadN(1), 1)
			s, pace := &seen{}, rand.New(rand.NewPCG(seed, 8))
			b.followWith(threadN(1), 0, true, func(m message) error {
				if pace.IntN(8) == 0 {
					time.Sleep(time.Duration(pace.IntN(200)) * time.Millisecond)
				}
				s.take(t, m)
				return nil
			})
			truth, request, attempt := map[string]string(nil), record.Seq(1), 1
			for range 300 {
				switch rng.IntN(40) {
				case 0:
					b.hub.Reset(threadN(1))
					truth = nil
					attempt++
				case 1:
					b.note(threadN(1), "n")
				case 2:
					time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
				default:
					if truth == nil {
						truth = map[string]string{}
					}
					d := text(request, attempt, strings.Repeat("ü", 1+rng.IntN(300)))
					d.Kind = []string{"text", "thinking"}[rng.IntN(2)]
					truth[d.Kind] += d.Text
					b.hub.Streamed(threadN(1), d)
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, truth, s.shown, "seed %d", seed)
			require.Zero(t, s.cut)
			require.Equal(t, b.lines(threadN(1)), s.lines)
		})
	}
}

// TestAttemptIsBounded holds the memory of a running attempt under its limit, on the border of characters.
func TestAttemptIsBounded(t *testing.T) {
	for name, kinds := range map[string][]string{"one kind": {"text"}, "changing kinds": {"text", "thinking"}} {
		t.Run(name, func(t *testing.T) {
			a, total := &attempt{}, int64(0)
			for n := range 40_000 {
				d := text(1, 1, strings.Repeat("é", n%20))
				d.Kind = kinds[n%len(kinds)]
				total += int64(len(d.Text))
				a.add(d)
				require.LessOrEqual(t, a.size, MaxSnapshot)
			}
			kept, size := int64(0), 0
			for _, p := range a.snapshot().Parts {
				require.True(t, utf8.ValidString(p.Text))
				kept += int64(len(p.Text))
				size += len(p.Text) + partOverhead
			}
			require.Equal(t, size, a.size)
			require.Equal(t, total, kept+a.cut)
			require.Greater(t, size, MaxSnapshot-200)
		})
	}
}

// TestHeartbeats follow the backlog at once, then each interval of silence, and name the newest entry sent.
func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		b.create(threadN(1), 3)
		s := b.follow(threadN(1), 2, false)
		synctest.Wait()
		require.Equal(t, []record.Seq{2}, s.beats)
		time.Sleep(2*HeartbeatInterval + time.Second)
		synctest.Wait()
		require.Equal(t, []record.Seq{2, 2, 2}, s.beats)
		b.note(threadN(1), "speaks in time")
		time.Sleep(HeartbeatInterval - time.Second)
		synctest.Wait()
		require.Equal(t, []record.Seq{2, 2, 2}, s.beats, "an entry breaks the silence too")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []record.Seq{2, 2, 2, 3}, s.beats)
	})
}

// poisonStore fails, or blocks, the reading of one thread.
type poisonStore struct {
	record.Store
	poisoned record.ThreadID
	read     func() error
}

func (s *poisonStore) Entries(ctx context.Context, id record.ThreadID, from record.Seq) iter.Seq2[record.Entry, error] {
	if id != s.poisoned {
		return s.Store.Entries(ctx, id, from)
	}
	return func(yield func(record.Entry, error) bool) { yield(record.Entry{}, s.read()) }
}

// TestPoisonThreadStallsNoOther blocks every read of one thread; followers of another get their entries, and the loop
// is never held up.
func TestPoisonThreadStallsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		b.create(threadN(1), 2)
		b.create(threadN(2), 2)
		hang := make(chan struct{})
		b.hub.store = &poisonStore{b.store, threadN(1), func() error { <-hang; return errors.New("disk") }}
		bad := b.follow(threadN(1), 0, true)
		good := b.follow(threadN(2), 0, true)
		synctest.Wait()
		for range 5 {
			b.note(threadN(1), "poison")
			b.hub.Streamed(threadN(1), text(1, 1, "x"))
			b.note(threadN(2), "fine")
		}
		synctest.Wait()
		require.Empty(t, bad.kinds)
		require.Equal(t, b.lines(threadN(2)), good.lines)
		close(hang)
	})
}

// TestMissingEntryIsDamage ends a stream whose store lacks what was announced, rather than skip it.
func TestMissingEntryIsDamage(t *testing.T) {
	b := newBed(t, Options{})
	b.create(threadN(1), 2)
	e, err := record.Seal(threadN(1), record.Head{Seq: 4, Hash: record.Digest{1}}, record.Salt{},
		record.Draft{Kind: record.NoteInjected, Body: []byte("{}")})
	require.NoError(t, err)
	f, err := b.hub.subscribe(t.Context(), threadN(1), 0, false)
	require.NoError(t, err)
	defer f.leave()
	b.hub.Appended(threadN(1), []record.Entry{e})
	s := &seen{}
	err = f.run(t.Context(), func(m message) error {
		s.take(t, m)
		return nil
	})
	require.ErrorIs(t, err, errGap)
	require.Equal(t, b.lines(threadN(1)), s.lines, "what is there was sent")

	b.hub.store = holeStore{b.store}
	f.next = 0
	page, err := f.page(t.Context(), 2)
	require.ErrorIs(t, err, errGap)
	require.Len(t, page, 0)
}

// holeStore has lost the first entry.
type holeStore struct{ record.Store }

func (s holeStore) Entries(ctx context.Context, id record.ThreadID, from record.Seq) iter.Seq2[record.Entry, error] {
	return s.Store.Entries(ctx, id, max(from, 1))
}

// TestTopicsAreForgotten leaves nothing behind of threads that nobody follows.
func TestTopicsAreForgotten(t *testing.T) {
	b := newBed(t, Options{})
	b.create(threadN(1), 1)
	b.hub.Streamed(threadN(1), text(1, 1, "x"))
	require.Len(t, b.hub.topics, 1)
	f, err := b.hub.subscribe(t.Context(), threadN(1), 0, true)
	require.NoError(t, err)
	b.hub.Reset(threadN(1))
	f.leave()
	require.Empty(t, b.hub.topics)
	require.Zero(t, b.hub.followers)
}

// TestRefusals names what is wrong before a stream starts.
func TestRefusals(t *testing.T) {
	b := newBed(t, Options{MaxFollowers: 1})
	b.create(threadN(1), 2)
	_, err := b.hub.subscribe(t.Context(), threadN(9), 0, false)
	require.ErrorIs(t, err, record.ErrNotFound)
	_, err = b.hub.subscribe(t.Context(), threadN(1), 3, false)
	require.ErrorIs(t, err, ErrBeyond)
	f, err := b.hub.subscribe(t.Context(), threadN(1), 2, false)
	require.NoError(t, err)
	_, err = b.hub.subscribe(t.Context(), threadN(1), 0, false)
	require.ErrorIs(t, err, ErrTooMany)
	f.leave()
	f, err = b.hub.subscribe(t.Context(), threadN(1), 0, false)
	require.NoError(t, err)
	f.leave()
	b.hub.Close()
	_, err = b.hub.subscribe(t.Context(), threadN(1), 0, false)
	require.ErrorIs(t, err, ErrClosed)
}

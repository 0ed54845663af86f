package loop

import (
	"context"
	"crypto/rand"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/builder"
)

// stalled is a store whose disk stands still until it is freed: an append waits, gives up with its context and becomes
// durable later all the same, and the head waits for that.
type stalled struct {
	record.Store
	free chan struct{}
	left atomic.Int32 // appends that stall
}

func (s *stalled) Append(ctx context.Context, id record.ThreadID, at record.Head, entries ...record.Entry) (record.Head, error) {
	if s.left.Add(-1) < 0 {
		return s.Store.Append(ctx, id, at, entries...)
	}
	go func() {
		<-s.free
		s.Store.Append(context.Background(), id, at, entries...)
	}()
	<-ctx.Done()
	return record.Head{}, ctx.Err()
}

func (s *stalled) Head(ctx context.Context, id record.ThreadID) (record.Head, error) {
	select {
	case <-s.free:
		return s.Store.Head(ctx, id)
	case <-ctx.Done():
		return record.Head{}, ctx.Err()
	}
}

// TestStoreStalls holds that a command of unknown outcome is answered in bounded time, is not taken for refused, and
// takes effect once the store moves again.
func TestStoreStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		id := b.create("")
		s := &stalled{Store: b.store, free: make(chan struct{})}
		s.left.Store(1)
		b.ports.Store = s
		time.AfterFunc(10*time.Minute, func() { close(s.free) })
		before := time.Now()
		m := Message{ID: "msg_01m8p570g0e5y8ckpe96re23k9", Content: text("go")}
		_, err := b.Submit(t.Context(), id, m)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, errRefused)
		require.LessOrEqual(t, time.Since(before), 2*AppendTimeout)
		s.left.Store(0)
		<-s.free
		time.Sleep(MaxBackoff)
		synctest.Wait()
		r, err := b.Submit(t.Context(), id, m)
		require.NoError(t, err)
		require.Equal(t, Receipt{Seq: 3, State: ReceiptDuplicate}, r)
		require.Len(t, b.entries(id, record.TurnFinished), 1)
		b.close()
	})
}

// drying gives entropy for a number of entries, then fails until it is refilled.
type drying struct{ left atomic.Int32 }

func (d *drying) Read(p []byte) (int, error) {
	if d.left.Add(-1) < 0 {
		return 0, errDisk
	}
	return rand.Read(p)
}

// TestHalfACommand holds that a command which cannot be made an entry, or whose consequences cannot, is answered as
// failed and leaves nothing.
func TestHalfACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		dry := &drying{}
		b.ports.Entropy = dry
		dry.left.Store(1)
		n := NewThread{ID: "thr_01m8p570g0e5y8ckpe96re23k9", Created: thread.Created{Cwd: "/work"}, Epoch: simEpoch()}
		_, err := b.Create(t.Context(), n)
		require.ErrorIs(t, err, errDisk)
		synctest.Wait()
		_, err = b.store.Head(t.Context(), n.ID)
		require.ErrorIs(t, err, record.ErrNotFound, "half a thread")
		dry.left.Store(3)
		id, err := b.Create(t.Context(), n)
		require.NoError(t, err)

		m := Message{ID: "msg_01m8p570g0e5y8ckpe96re23k9", Content: text("go")}
		dry.left.Store(1)
		_, err = b.Submit(t.Context(), id, m)
		require.ErrorIs(t, err, errDisk)
		require.Empty(t, b.kinds(id), "what was not written is not acknowledged")
		dry.left.Store(100)
		time.Sleep(IdleAfter)
		r, err := b.Submit(t.Context(), id, m)
		require.NoError(t, err)
		require.Equal(t, ReceiptAccepted, r.State)
		synctest.Wait()
		require.Len(t, b.entries(id, record.TurnFinished), 1)
		b.close()
	})
}

// TestBuildBackoff holds that a request that could not be built is not built again before its time, whatever happens
// meanwhile.
func TestBuildBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		var built atomic.Int32
		b.open = func(ctx context.Context, src builder.Source, epoch record.Entry, w io.Writer) (wire.Builder, error) {
			if built.Add(1) < 3 {
				return nil, errDisk
			}
			return builder.Open(ctx, src, epoch, w)
		}
		b.start()
		id := b.create("")
		b.submit(id, "go")
		for range 5 {
			b.submit(id, "more")
		}
		require.Equal(t, int32(1), built.Load())
		time.Sleep(Backoff(1))
		synctest.Wait()
		require.Equal(t, int32(2), built.Load())
		time.Sleep(Backoff(2))
		synctest.Wait()
		require.Len(t, b.entries(id, record.TurnFinished), 6)
		b.close()
	})
}

// clumsy is a follower that panics over entries that no command brought.
type clumsy struct {
	Follower
	left atomic.Int32 // panics
}

func (c *clumsy) Appended(id record.ThreadID, entries []record.Entry) {
	if k := entries[0].Kind; k != record.ThreadCreated && k != record.MessageAccepted && c.left.Add(-1) >= 0 {
		panic("follower")
	}
	c.Follower.Appended(id, entries)
}

// TestStops holds that a turn survives one fault of ours by itself, and that a second one leaves it to the next command
// instead of trying for ever.
func TestStops(t *testing.T) {
	for _, panics := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			var runs atomic.Int32
			b.send = first(calls("bash", 2))
			b.tool = func(context.Context, Call) Outcome {
				runs.Add(1)
				return Outcome{Result: &Result{Content: text("ok")}}
			}
			c := &clumsy{Follower: b.heard}
			c.left.Store(int32(panics))
			b.ports.Follower = c
			id := b.create("")
			b.submit(id, "go")
			synctest.Wait()
			require.Equal(t, 1, b.reported())
			require.Empty(t, b.entries(id, record.TurnFinished))
			time.Sleep(time.Hour)
			require.Equal(t, panics, b.reported())
			require.Len(t, b.entries(id, record.TurnFinished), 2-panics)
			if panics == 2 {
				b.submit(id, "again")
				synctest.Wait()
				require.Len(t, b.entries(id, record.TurnFinished), 2)
			}
			require.Equal(t, int32(2), runs.Load(), "no call runs twice")
			b.close()
		})
	}
}

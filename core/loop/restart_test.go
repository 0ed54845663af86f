package loop

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"condensate.dev/cnd/adapters/memstore"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// TestClose holds that Close waits for what runs, cancels it after the grace, and leaves the turn resumable.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.send = stuck
		id := b.create("")
		b.submit(id, "go")
		synctest.Wait()
		before := time.Now()
		b.close()
		require.Equal(t, time.Second, time.Since(before), "the grace")
		aborted := one[thread.AnswerAborted](b, id, record.AnswerAborted)
		require.Equal(t, thread.CauseShutdown, aborted.Cause)
		require.Empty(t, aborted.Native)
		_, err := b.Submit(t.Context(), id, Message{Content: text("a")})
		require.ErrorIs(t, err, ErrClosed)
		require.NoError(t, b.Close(t.Context()), "closing again is nothing")

		b.send = first(says("hello"))
		b.start()
		require.NoError(t, b.Recover(t.Context(), []record.ThreadID{id}))
		synctest.Wait()
		require.Equal(t, thread.TurnCompleted, one[thread.TurnFinished](b, id, record.TurnFinished).State)
		require.Equal(t, thread.EngineRecovered, must[thread.EngineStarted](b.entries(id, record.EngineStarted)[1]).Reason)
		require.Equal(t, 2, must[thread.RequestPrepared](b.entries(id, record.RequestPrepared)[1]).Attempt)
		b.close()
	})
}

// TestCloseQuick holds that what ends within the grace is recorded, and that nothing follows it.
func TestCloseQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.send = func(context.Context, Request, func(kind, text string)) (Answer, error) {
			time.Sleep(100 * time.Millisecond)
			return calls("bash", 1), nil
		}
		id := b.create("")
		b.submit(id, "go")
		synctest.Wait()
		before := time.Now()
		b.close()
		require.Equal(t, 100*time.Millisecond, time.Since(before))
		require.Equal(t, "message.accepted turn.started message.placed request.prepared answer.finished", b.kinds(id))
	})
}

// TestCloseGivesUp holds that Close returns with its context, whatever hangs.
func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		hang := make(chan struct{})
		b.send = func(context.Context, Request, func(kind, text string)) (Answer, error) {
			<-hang
			return Answer{}, errors.New("late")
		}
		id := b.create("")
		b.submit(id, "go")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.ErrorIs(t, b.Close(ctx), context.DeadlineExceeded)
		close(hang)
		synctest.Wait()
	})
}

// TestLost holds that in resume mode ask a turn that was at work waits for a person, and one that waited waits on.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.send = stuck
		id, waits := b.create(thread.ResumeAsk), b.create(thread.ResumeAsk)
		b.submit(id, "go")
		synctest.Wait()
		b.send = failing(&ModelError{Cause: thread.CauseOverloaded})
		b.submit(waits, "go")
		synctest.Wait()
		b.close()
		b.start()
		require.NoError(t, b.Recover(t.Context(), []record.ThreadID{id, waits}))
		time.Sleep(time.Hour)
		require.Len(t, b.entries(waits, record.TurnFinished), 1)
		require.Len(t, b.entries(id, record.TurnLost), 1)
		require.Len(t, b.entries(id, record.RequestPrepared), 1)
		b.close()
		b.start()
		require.NoError(t, b.Recover(t.Context(), []record.ThreadID{id}))
		_, err := b.Resume(t.Context(), id)
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, b.entries(id, record.TurnLost), 1)
		require.Equal(t, thread.TurnCompleted, one[thread.TurnFinished](b, id, record.TurnFinished).State)
		_, err = b.Resume(t.Context(), id)
		require.ErrorIs(t, err, ErrNotRunning)
		b.close()
	})
}

// TestStoreRefuses holds that a command which the store refuses leaves nothing, that one which it took although it
// said no is answered as taken, and that the outcome of work is kept until the store takes it.
func TestStoreRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		id := b.create("")
		refuse := func(n int, applied bool) {
			b.store.OnAppend(func(record.ThreadID, []record.Entry) memstore.Outcome {
				if n--; n < 0 {
					return memstore.Outcome{}
				}
				return memstore.Outcome{Err: errDisk, Applied: applied}
			})
		}
		refuse(1, false)
		m := Message{ID: "msg_01m8p570g0e5y8ckpe96re23k9", Content: text("go")}
		_, err := b.Submit(t.Context(), id, m)
		require.ErrorIs(t, err, errDisk)
		time.Sleep(time.Hour)
		require.Empty(t, b.kinds(id), "nothing happens after its caller was told that it failed")
		refuse(1, true)
		r, err := b.Submit(t.Context(), id, m)
		require.NoError(t, err)
		require.Equal(t, ReceiptAccepted, r.State)
		synctest.Wait()
		require.Len(t, b.entries(id, record.TurnFinished), 1)

		gate := make(chan struct{})
		b.send = func(context.Context, Request, func(kind, text string)) (Answer, error) {
			<-gate
			return says("late"), nil
		}
		b.submit(id, "again")
		synctest.Wait()
		refuse(3, false)
		close(gate)
		synctest.Wait()
		require.Len(t, b.entries(id, record.AnswerFinished), 1)
		_, err = b.Submit(t.Context(), id, Message{Content: text("third")})
		require.ErrorIs(t, err, ErrStoreBusy)
		time.Sleep(time.Minute)
		require.Len(t, b.entries(id, record.AnswerFinished), 2, "the answer was kept")
		require.Len(t, b.entries(id, record.TurnFinished), 2)
		require.Equal(t, 2, b.reported(), "each stretch of failures is reported once")
		b.close()
	})
}

// TestStoreReadOnly holds that a store that takes no more stops the thread and is no busy loop.
func TestStoreReadOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		id := b.create("")
		var asked atomic.Int32
		b.store.OnAppend(func(record.ThreadID, []record.Entry) memstore.Outcome {
			asked.Add(1)
			return memstore.Outcome{Err: record.ErrReadOnly}
		})
		_, err := b.Submit(t.Context(), id, Message{Content: text("go")})
		require.ErrorIs(t, err, record.ErrReadOnly)
		time.Sleep(time.Hour)
		require.Equal(t, int32(1), asked.Load())
		b.close()
	})
}

// TestOtherWriter holds that entries of somebody else are seen before anything follows them, and that what ran in the
// generation before is not taken.
func TestOtherWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.send = stuck
		id := b.create("")
		b.submit(id, "go")
		synctest.Wait()
		head, err := b.store.Head(t.Context(), id)
		require.NoError(t, err)
		e, err := record.Seal(id, head, record.Salt{1}, record.Draft{
			Gen: 1, Time: time.Now(), Kind: record.IncidentSeen, Body: thread.Encode(thread.IncidentSeen{What: "another writer"}),
		})
		require.NoError(t, err)
		_, err = b.store.Append(t.Context(), id, head, e)
		require.NoError(t, err)
		b.send = first(says("hello"))
		_, err = b.Interrupt(t.Context(), id, "", "stop")
		require.ErrorIs(t, err, record.ErrConflict)
		time.Sleep(time.Minute)
		require.Equal(t, "message.accepted turn.started message.placed request.prepared incident.seen engine.started "+
			"answer.aborted request.prepared answer.finished turn.finished", b.kinds(id))
		b.close()
	})
}

// TestPoison holds that a record that cannot be read stalls nobody else, and is reported.
func TestPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		bad, good := b.create(""), b.create("")
		b.send = stuck
		b.submit(good, "go")
		synctest.Wait()
		b.close()
		head, err := b.store.Head(t.Context(), bad)
		require.NoError(t, err)
		e, err := record.Seal(bad, head, record.Salt{1}, record.Draft{Gen: 1, Time: time.Now(), Kind: "turn.teleported", Body: []byte("{}")})
		require.NoError(t, err)
		_, err = b.store.Append(t.Context(), bad, head, e)
		require.NoError(t, err)
		b.send = first(says("hello"))
		b.start()
		err = b.Recover(t.Context(), []record.ThreadID{bad, good})
		require.ErrorIs(t, err, ErrUnknownKind)
		require.ErrorContains(t, err, "turn.teleported")
		require.Equal(t, 1, b.reported())
		synctest.Wait()
		require.Len(t, b.entries(good, record.TurnFinished), 1)
		_, err = b.Submit(t.Context(), bad, Message{Content: text("a")})
		require.ErrorIs(t, err, ErrUnknownKind)
		b.close()
	})
}

// TestPanics holds that a panic of an adapter is an outcome of its effect and of nothing else.
func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.send = first(calls("bash", 2))
		b.tool = func(_ context.Context, c Call) Outcome {
			if c.ID == "6.0" {
				panic("tool")
			}
			return Outcome{Result: &Result{Content: text("ok")}}
		}
		b.plan = func(c Call) (Plan, error) {
			if c.ID == "6.1" {
				panic("plan")
			}
			return Plan{Replay: thread.ReplayUnsafe}, nil
		}
		id := b.create("")
		b.submit(id, "go")
		synctest.Wait()
		require.Equal(t, "6.0", one[thread.ToolUnknown](b, id, record.ToolUnknown).Call)
		require.Contains(t, one[thread.ToolFinished](b, id, record.ToolFinished).Content[0].Text, "internal error")
		b.send = func(context.Context, Request, func(kind, text string)) (Answer, error) { panic("model") }
		b.submit(id, "again")
		time.Sleep(time.Hour)
		require.Equal(t, thread.TurnFailed, must[thread.TurnFinished](b.entries(id, record.TurnFinished)[1]).State)
		b.close()
	})
}

// TestIdle holds that a thread without work leaves memory and comes back as it was.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		id := b.create("")
		b.submit(id, "go")
		time.Sleep(IdleAfter + time.Second)
		b.Host.mu.Lock()
		require.Empty(t, b.actors)
		b.Host.mu.Unlock()
		b.submit(id, "again")
		synctest.Wait()
		require.Len(t, b.entries(id, record.TurnFinished), 2)
		require.Len(t, b.entries(id, record.EngineStarted), 1, "it is the same engine")
		b.close()
		b.start()
		b.submit(id, "once more")
		synctest.Wait()
		started := b.entries(id, record.EngineStarted)
		require.Len(t, started, 2)
		require.Equal(t, thread.EngineReopened, must[thread.EngineStarted](started[1]).Reason)
		b.close()
	})
}

// TestManyClients lets many clients use many threads of a store that fails now and then: every message is taken once,
// and nothing is left running.
func TestManyClients(t *testing.T) {
	defer goleak.VerifyNone(t)
	b := newBed(t)
	var n atomic.Uint64
	b.store.OnAppend(func(record.ThreadID, []record.Entry) memstore.Outcome {
		switch n.Add(1) % 9 {
		case 3:
			return memstore.Outcome{Err: errDisk}
		case 6:
			return memstore.Outcome{Err: errDisk, Applied: true}
		}
		return memstore.Outcome{}
	})
	const threads, clients, messages = 4, 4, 5
	ids := make([]record.ThreadID, threads)
	for i := range ids {
		id, err := record.NewID(record.PrefixThread, time.Now(), rand.Reader)
		require.NoError(t, err)
		ids[i] = record.ThreadID(id)
		again(t, func() error {
			_, err := b.Create(t.Context(), NewThread{ID: ids[i], Created: thread.Created{Cwd: "/work"}, Epoch: simEpoch()})
			return err
		})
	}
	var group sync.WaitGroup
	for i := range threads * clients {
		group.Go(func() {
			for k := range messages {
				id, err := record.NewID(record.PrefixMessage, time.Now(), rand.Reader)
				if err != nil {
					t.Error(err)
				}
				again(t, func() error {
					_, err := b.Submit(t.Context(), ids[i%threads], Message{ID: id, Content: text(fmt.Sprint(i, k))})
					return err
				})
			}
		})
	}
	group.Wait()
	b.store.OnAppend(nil)
	for _, id := range ids {
		for len(b.entries(id, record.TurnFinished)) < clients*messages {
			again(t, func() error { // what the store refused last is tried again with every command
				_, err := b.Submit(t.Context(), id, Message{Mode: thread.ModeStartIfIdle, Content: text("hurry")})
				return err
			})
		}
	}
	b.close()
	for _, id := range ids {
		messages := b.entries(id, record.MessageAccepted)
		require.GreaterOrEqual(t, len(messages), clients*5)
		require.Len(t, b.entries(id, record.MessagePlaced), len(messages))
		_, err := record.VerifyThread(t.Context(), b.store, id, record.VerifyOptions{Unsigned: true}, nil)
		require.NoError(t, err)
	}
}

// again repeats a command until the store takes it.
func again(t *testing.T, command func() error) {
	for range 100_000 {
		err := command()
		if err == nil {
			return
		}
		if fault.ClassOf(err) != fault.Unavailable {
			t.Error(err)
			return
		}
	}
	t.Error("the store never takes the command")
}

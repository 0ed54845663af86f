package loop

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// stuck is a model call that lasts until it is canceled, and then tells what it had.
func stuck(ctx context.Context, _ Request, deltas func(kind, text string)) (Answer, error) {
	deltas("text", "Once upon")
	<-ctx.Done()
	return Answer{}, &ModelError{
		Cause: thread.CauseInterrupt, ShownText: " a ti", TextBytes: 14,
		Partial: Answer{Native: says("Once upon").Native},
	}
}

// TestSubmitOnce holds that a message is taken once by its id, and that another one with this id is refused.
func TestSubmitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		id := b.create("")
		m := Message{ID: "msg_01m8p570g0e5y8ckpe96re23k9", Content: text("go")}
		r, err := b.Submit(t.Context(), id, m)
		require.NoError(t, err)
		synctest.Wait()
		again, err := b.Submit(t.Context(), id, m)
		require.NoError(t, err)
		require.Equal(t, Receipt{Seq: r.Seq, State: ReceiptDuplicate}, again)
		m.Mode = thread.ModeSteer
		_, err = b.Submit(t.Context(), id, m)
		require.ErrorIs(t, err, ErrMessageID)
		require.Equal(t, fault.Conflict, fault.ClassOf(err))
		m.Mode, m.Content = "", text("stop")
		_, err = b.Submit(t.Context(), id, m)
		require.ErrorIs(t, err, ErrMessageID)
		b.close()
		b.start()
		m.Content = text("go")
		again, err = b.Submit(t.Context(), id, m)
		require.NoError(t, err)
		require.Equal(t, ReceiptDuplicate, again.State, "also after a restart")
		require.Len(t, b.entries(id, record.MessageAccepted), 1)
		b.close()
	})
}

// TestModes holds what becomes of a message when the thread is busy, and when it is idle.
func TestModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		gate := make(chan struct{})
		answer := first(calls("bash", 1))
		b.send = func(ctx context.Context, r Request, d func(kind, text string)) (Answer, error) {
			<-gate
			return answer(ctx, r, d)
		}
		id := b.create("")
		send := func(mode string) (Receipt, error) {
			return b.Submit(t.Context(), id, Message{Mode: mode, Content: text(mode)})
		}
		r, err := send(thread.ModeReject)
		require.NoError(t, err, "the thread is idle")
		require.Equal(t, ReceiptAccepted, r.State)
		synctest.Wait()
		_, err = send(thread.ModeReject)
		require.ErrorIs(t, err, ErrBusy)
		r, err = send(thread.ModeStartIfIdle)
		require.NoError(t, err)
		require.Equal(t, ReceiptSkipped, r.State)
		queued, err := send(thread.ModeQueue)
		require.NoError(t, err)
		steer, err := send(thread.ModeSteer)
		require.NoError(t, err)
		close(gate)
		synctest.Wait()
		placed := b.entries(id, record.MessagePlaced)
		require.Len(t, placed, 3)
		turns := b.entries(id, record.TurnStarted)
		require.Len(t, turns, 2)
		require.Equal(t, steer.Seq, must[thread.MessagePlaced](placed[1]).Accepted, "it joins the running turn")
		require.Less(t, b.entries(id, record.ToolFinished)[0].Seq, placed[1].Seq, "at its next request")
		require.Equal(t, must[thread.TurnStarted](turns[0]).Turn, must[thread.MessagePlaced](placed[1]).Turn)
		require.Equal(t, queued.Seq, must[thread.MessagePlaced](placed[2]).Accepted)
		b.close()
	})
}

// TestBadMessages holds that what a provider would refuse is refused with the block named, and nothing is written.
func TestBadMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		id := b.create("")
		img := func(w, h int) record.Blob {
			var data bytes.Buffer
			require.NoError(t, png.Encode(&data, image.NewGray(image.Rect(0, 0, w, h))))
			return record.NewBlob(data.Bytes())
		}
		good, wide, junk := img(2, 2), img(8001, 1), record.NewBlob([]byte("no image"))
		huge := record.NewBlob(make([]byte, MaxImage+1))
		block := func(media string, b record.Blob) thread.Block {
			return thread.Block{Type: thread.BlockImage, MediaType: media, Blob: b.Ref()}
		}
		ok := text("ok")[0]
		many := make([]thread.Block, MaxBlocks+1)
		for _, c := range []struct {
			why   string
			m     Message
			class fault.Class
		}{
			{"no content", Message{}, fault.Invalid},
			{"mode", Message{Mode: "now", Content: text("a")}, fault.Invalid},
			{"id", Message{ID: "msg_1", Content: text("a")}, fault.Invalid},
			{"block 1: text is empty", Message{Content: []thread.Block{ok, {Type: "text", Text: " \u2003\n\x1c"}}}, fault.Invalid},
			{"block 0: text is not UTF-8", Message{Content: text("\xff")}, fault.Invalid},
			{"block 0: text of", Message{Content: text(strings.Repeat("a", MaxText+1))}, fault.TooLarge},
			{"101 blocks", Message{Content: many}, fault.TooLarge},
			{"block 1: image has no data", Message{Content: []thread.Block{ok, block("image/png", good)}}, fault.Invalid},
			{"block 0: image cannot be read", Message{Content: []thread.Block{block("image/png", junk)}, Blobs: []record.Blob{junk}}, fault.Invalid},
			{"block 0: image is not webp", Message{Content: []thread.Block{block("image/webp", junk)}, Blobs: []record.Blob{junk}}, fault.Invalid},
			{"block 0: image is png", Message{Content: []thread.Block{block("image/jpeg", good)}, Blobs: []record.Blob{good}}, fault.Invalid},
			{"block 0: image of 8001 x 1", Message{Content: []thread.Block{block("image/png", wide)}, Blobs: []record.Blob{wide}}, fault.TooLarge},
			{"block 0: image of 3932161 bytes", Message{Content: []thread.Block{block("image/png", huge)}, Blobs: []record.Blob{huge}}, fault.TooLarge},
			{"block 0: type", Message{Content: []thread.Block{{Type: "thinking", Text: "a"}}}, fault.Invalid},
		} {
			_, err := b.Submit(t.Context(), id, c.m)
			require.ErrorContains(t, err, c.why)
			require.Equal(t, c.class, fault.ClassOf(err), c.why)
		}
		require.Empty(t, b.kinds(id))

		long := strings.Repeat("é", record.InlineLimit)
		_, err := b.Submit(t.Context(), id, Message{
			Content: []thread.Block{{Type: "text", Text: long}, block("image/png", good), block("image/png", good)}, Blobs: []record.Blob{good},
		})
		require.NoError(t, err)
		synctest.Wait()
		body := one[thread.MessageAccepted](b, id, record.MessageAccepted)
		require.Equal(t, []string{record.NewBlob([]byte(long)).Ref(), good.Ref()}, body.Blobs)
		require.Len(t, b.entries(id, record.AnswerFinished), 1)
		b.close()
	})
}

// TestMuchText holds that a body keeps at most record.InlineLimit of text, over all its blocks.
func TestMuchText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		id := b.create("")
		var much []thread.Block
		for i := range 40 {
			much = append(much, text(strings.Repeat(string(rune('A'+i)), 200<<10))...)
		}
		_, err := b.Submit(t.Context(), id, Message{Content: append(much, text("last")...)})
		require.NoError(t, err)
		synctest.Wait()
		body := one[thread.MessageAccepted](b, id, record.MessageAccepted)
		require.Len(t, body.Blobs, 39)
		require.Equal(t, much[0], body.Content[0])
		require.Equal(t, thread.Block{Type: "text", Blob: record.NewBlob([]byte(much[1].Text)).Ref()}, body.Content[1])
		require.Equal(t, "last", body.Content[40].Text)
		require.Len(t, b.entries(id, record.AnswerFinished), 1)
		b.close()
	})
}

// TestInterrupt holds that what was shown is kept, that every call gets a result, and that the queue goes on.
func TestInterrupt(t *testing.T) {
	t.Run("an answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			var sent atomic.Int32
			b.send = func(ctx context.Context, r Request, deltas func(kind, text string)) (Answer, error) {
				if sent.Add(1) == 1 {
					return stuck(ctx, r, deltas)
				}
				return says("fine"), nil
			}
			id := b.create("")
			_, err := b.Interrupt(t.Context(), id, "", "stop-1")
			require.ErrorIs(t, err, ErrNotRunning)
			b.submit(id, "tell")
			b.submit(id, "next")
			synctest.Wait()
			r, err := b.Interrupt(t.Context(), id, "", "stop-1")
			require.NoError(t, err)
			synctest.Wait()
			again, err := b.Interrupt(t.Context(), id, "", "stop-1")
			require.NoError(t, err)
			require.Equal(t, Receipt{Seq: r.Seq, State: ReceiptDuplicate}, again, "the next turn goes on")
			_, err = b.Interrupt(t.Context(), id, "", "")
			require.ErrorIs(t, err, ErrInvalidCommand)
			aborted := one[thread.AnswerAborted](b, id, record.AnswerAborted)
			require.Equal(t, thread.CauseInterrupt, aborted.Cause)
			require.Equal(t, " a ti", aborted.ShownText)
			require.Len(t, aborted.Native, 1)
			finished := b.entries(id, record.TurnFinished)
			require.Equal(t, thread.TurnStopped, must[thread.TurnFinished](finished[0]).State)
			require.Equal(t, thread.TurnCompleted, must[thread.TurnFinished](finished[1]).State)
			b.close()
		})
	})
	t.Run("a tool", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			b.send = first(calls("bash", 3))
			b.tool = func(ctx context.Context, c Call) Outcome {
				if c.ID == "6.0" {
					return Outcome{Result: &Result{Content: text("ok")}}
				}
				<-ctx.Done()
				return Outcome{Unknown: &thread.ToolUnknown{Cause: "crash", Partial: "half"}}
			}
			id := b.create("")
			b.submit(id, "go")
			synctest.Wait()
			_, err := b.Interrupt(t.Context(), id, "owner", "stop")
			require.NoError(t, err)
			synctest.Wait()
			unknown := one[thread.ToolUnknown](b, id, record.ToolUnknown)
			require.Equal(t, thread.ToolUnknown{Call: "6.1", Cause: thread.CauseInterrupt, Partial: "half"}, unknown)
			results := b.entries(id, record.ToolFinished)
			require.Len(t, results, 2)
			require.Contains(t, string(results[1].Body), "Interrupted by the user")
			require.Equal(t, thread.TurnStopped, one[thread.TurnFinished](b, id, record.TurnFinished).State)
			require.Len(t, b.entries(id, record.ToolStarted), 2)
			b.close()
		})
	})
}

// TestCreate holds that a thread is made once, and that all that is wrong with one is named at once.
func TestCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		_, err := b.Create(t.Context(), NewThread{ID: "thr_1", Created: thread.Created{Cwd: "work", Resume: "later", Engine: "x"}})
		require.ErrorIs(t, err, ErrInvalidThread)
		for _, what := range []string{"id", "cwd", "engine", "resume", "builder", "method or url", "model", "max_tokens"} {
			require.ErrorContains(t, err, what)
		}
		n := NewThread{ID: "thr_01m8p570g0e5y8ckpe96re23k9", Created: thread.Created{Cwd: "/work", HeadKey: "a", Allow: []string{}}, Epoch: simEpoch()}
		id, err := b.Create(t.Context(), n)
		require.NoError(t, err)
		require.Equal(t, n.ID, id)
		n.Created.HeadKey = "b"
		_, err = b.Create(t.Context(), n)
		require.NoError(t, err)
		n.Created.Cwd = "/elsewhere"
		_, err = b.Create(t.Context(), n)
		require.ErrorIs(t, err, ErrThreadExists)
		require.Len(t, b.entries(id, ""), 3)
		_, err = b.Submit(t.Context(), "thr_01m8p570g0e5y8ckpe96re23k8", Message{Content: text("a")})
		require.ErrorIs(t, err, record.ErrNotFound)
		require.Zero(t, b.reported(), "a wrong id is the caller's matter")
		b.close()
	})
}

// TestDisk holds that no new work is taken when the disk is low, that running turns wait, and go on by themselves.
func TestDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.send = first(calls("bash", 1))
		var low atomic.Bool
		b.ready = func() error {
			if low.Load() {
				return errNotReady
			}
			return nil
		}
		id := b.create("")
		b.tool = func(context.Context, Call) Outcome {
			low.Store(true)
			return Outcome{Result: &Result{Content: text("ok")}}
		}
		b.submit(id, "go")
		synctest.Wait()
		time.Sleep(time.Hour)
		require.Equal(t, thread.WaitDisk, one[thread.TurnWaiting](b, id, record.TurnWaiting).Reason)
		_, err := b.Submit(t.Context(), id, Message{Content: text("more")})
		require.Equal(t, fault.StorageFull, fault.ClassOf(err))
		_, err = b.Create(t.Context(), NewThread{Created: thread.Created{Cwd: "/work"}, Epoch: simEpoch()})
		require.Equal(t, fault.StorageFull, fault.ClassOf(err))
		low.Store(false)
		time.Sleep(ReadyPoll)
		synctest.Wait()
		require.Equal(t, thread.TurnCompleted, one[thread.TurnFinished](b, id, record.TurnFinished).State)
		b.close()
	})
}

package chat

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

const threadID = record.ThreadID("thr_00000000000000000000000001")

// remote is a runtime of a test: it takes what a chat says and tells what the test wants to have happened.
type remote struct {
	events chan client.Event
	lost   chan error

	mu   sync.Mutex
	said []string // "steer msg_1 text", "answer 3.0 allow reason", "interrupt msg_2"
	fail error    // what every command is answered with
	next record.Seq
	head record.Digest
}

func newRemote() *remote {
	return &remote{events: make(chan client.Event), lost: make(chan error)}
}

func (r *remote) say(format string, args ...any) (loop.Receipt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf(format, args...))
	return loop.Receipt{State: loop.ReceiptAccepted, Seq: r.next}, r.fail // the record will have it there
}

func (r *remote) failWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func (r *remote) heard() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.said...)
}

func (r *remote) Send(_ context.Context, _ record.ThreadID, m client.Message) (loop.Receipt, error) {
	return r.say("%s %s %s", m.Mode, m.ID, m.Content[0].Text)
}

func (r *remote) Interrupt(_ context.Context, _ record.ThreadID, command string) (loop.Receipt, error) {
	return r.say("interrupt %s", command)
}

func (r *remote) Resume(context.Context, record.ThreadID) (loop.Receipt, error) {
	return r.say("resume")
}

func (r *remote) Answer(_ context.Context, _ record.ThreadID, call, verdict, reason string) (loop.Receipt, error) {
	return r.say("answer %s %s %s", call, verdict, reason)
}

func (r *remote) Follow(ctx context.Context, _ record.ThreadID, o client.FollowOptions) iter.Seq2[client.Event, error] {
	return func(yield func(client.Event, error) bool) {
		for {
			select {
			case e := <-r.events:
				if !yield(e, nil) {
					return
				}
			case err := <-r.lost:
				o.Lost(err)
			case <-ctx.Done():
				yield(client.Event{}, ctx.Err())
				return
			}
		}
	}
}

// happen has an entry written.
func (r *remote) happen(kind record.Kind, body any) {
	r.mu.Lock()
	at := record.Head{Hash: r.head}
	if r.next > 0 {
		at.Seq = r.next - 1
	}
	e, err := record.Seal(threadID, at, record.Salt{}, record.Draft{Kind: kind, Body: thread.Encode(body)})
	if err != nil {
		panic(err)
	}
	r.next, r.head = e.Seq+1, e.Hash
	r.mu.Unlock()
	r.events <- client.Event{Type: client.EventEntry, Seq: e.Seq, Entry: e}
}

func (r *remote) beat() { r.events <- client.Event{Type: client.EventHeartbeat, Seq: r.next - 1} }

// talk is a chat under test.
type talk struct {
	*remote
	in         io.Writer
	close      func() error
	out        bytes.Buffer // of the chat's goroutine: read it after synctest.Wait
	interrupts chan os.Signal
	ended      chan error
}

// begin starts a chat with an idle thread, in a bubble.
func begin(t *testing.T, interactive bool) *talk {
	in, w := io.Pipe()
	c := &talk{remote: newRemote(), in: w, close: w.Close, interrupts: make(chan os.Signal), ended: make(chan error, 1)}
	ids := 0
	go func() {
		c.ended <- Run(t.Context(), Options{
			Client: c.remote, Thread: threadID, In: in, Out: &c.out, Interactive: interactive, Interrupts: c.interrupts,
			NewID: func() string { ids++; return fmt.Sprintf("msg_%d", ids) },
		})
		in.Close()
	}()
	c.happen(record.ThreadCreated, thread.Created{Cwd: "/w"})
	c.beat()
	synctest.Wait()
	return c
}

func (c *talk) turn(id, text string) {
	c.happen(record.MessageAccepted, thread.MessageAccepted{ID: id, Content: []thread.Block{{Type: "text", Text: text}}})
	c.happen(record.TurnStarted, thread.TurnStarted{Turn: "trn_1"})
	c.happen(record.MessagePlaced, thread.MessagePlaced{ID: id, Turn: "trn_1"})
}

func (c *talk) finish() {
	c.happen(record.TurnFinished, thread.TurnFinished{State: thread.TurnCompleted, StopReason: "end_turn"})
	synctest.Wait()
}

func (c *talk) line(s string) {
	synctest.Wait()
	io.WriteString(c.in, s+"\n")
	synctest.Wait()
}

// While the runtime is away lines are kept; each is sent until it is answered, with the id that it got when it was typed.
func TestLinesOutliveTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, true)
		c.failWith(fault.New(fault.Unavailable, client.CodeAnswerLost, "the connection broke"))
		c.lost <- fault.New(fault.Unavailable, "stream-lost", "the stream ended")
		c.events <- client.Event{Type: client.EventReset}
		c.line("one")
		c.line("two")
		time.Sleep(10 * MaxPause)
		for _, said := range c.heard() {
			require.Equal(t, "steer msg_1 one", said, "the first is repeated, the second waits for its turn")
		}
		tries := len(c.heard())
		require.Greater(t, tries, 10)
		require.NotContains(t, c.out.String(), "connected again")

		c.failWith(nil)
		time.Sleep(MaxPause)
		require.Equal(t, []string{"steer msg_1 one", "steer msg_2 two"}, c.heard()[tries:], "each is accepted once, in order")
		c.beat()
		synctest.Wait()
		require.Contains(t, c.out.String(), "- the runtime is away (the stream ended); waiting for it\n")
		require.Contains(t, c.out.String(), "- connected again\n")
		require.NoError(t, c.close())
		require.NoError(t, <-c.ended)
	})
}

// What is refused is told, and not repeated.
func TestRefusalsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, true)
		c.failWith(fault.New(fault.StorageFull, "disk-low", "too little disk space for new work"))
		c.line("one")
		time.Sleep(10 * MaxPause)
		require.Equal(t, []string{"steer msg_1 one"}, c.heard())
		require.Contains(t, c.out.String(), "- message not accepted: too little disk space for new work\n")
		c.line("/quit")
		require.NoError(t, <-c.ended)
	})
}

// Leaving while something could not be delivered is a failure that says so.
func TestLeavingUndelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, true)
		c.failWith(fault.New(fault.Unavailable, client.CodeUnreachable, "the runtime is not reachable"))
		c.line("one")
		c.line("/quit")
		err := <-c.ended
		require.ErrorIs(t, err, ErrUndelivered)
		require.Equal(t, fault.Unavailable, fault.ClassOf(err))
	})
}

// Ctrl-C interrupts a turn; a second one within LeaveWithin, or one without a turn, leaves.
func TestInterrupts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		turn   bool
		pauses []time.Duration // before each further Ctrl-C
		leaves bool
		said   []string
	}{
		{"idle", false, nil, true, nil},
		{"once", true, nil, false, []string{"interrupt msg_1"}},
		{"twice", true, []time.Duration{LeaveWithin - 1}, true, []string{"interrupt msg_1"}},
		{"twice, later", true, []time.Duration{LeaveWithin}, false, []string{"interrupt msg_1", "interrupt msg_2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := begin(t, true)
				if tc.turn {
					c.turn("msg_x", "work")
				}
				c.interrupts <- os.Interrupt
				synctest.Wait()
				for _, pause := range tc.pauses {
					time.Sleep(pause)
					c.interrupts <- os.Interrupt
					synctest.Wait()
				}
				require.Equal(t, tc.said, append([]string(nil), c.heard()...))
				select {
				case err := <-c.ended:
					require.True(t, tc.leaves)
					require.NoError(t, err)
				default:
					require.False(t, tc.leaves)
					c.line("/quit")
					require.NoError(t, <-c.ended)
				}
			})
		})
	}
}

// y and n answer the oldest question; anything else is a message, and so is y when nothing is asked.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, true)
		c.line("y")
		c.turn("msg_1", "y")
		for _, call := range []string{"4.0", "4.1"} {
			c.happen(record.ApprovalAsked, thread.ApprovalAsked{Call: call, Reason: "bash asks"})
		}
		synctest.Wait()
		require.True(t, strings.HasSuffix(c.out.String(), "allow 4.0? [y/n] "), "%q", c.out.String())
		c.line("wait")
		c.line("Y")
		c.line("no  too dangerous")
		require.Equal(t, []string{"steer msg_1 y", "steer msg_2 wait", "answer 4.0 allow ", "answer 4.1 deny too dangerous"}, c.heard())
		c.finish()
		c.line("/quit")
		require.NoError(t, <-c.ended)
	})
}

// An answer that could not be taken leaves the question open; one that came too late does not.
func TestAnswersThatAreRefused(t *testing.T) {
	for class, stays := range map[fault.Class]bool{fault.Internal: true, fault.Conflict: false} {
		synctest.Test(t, func(t *testing.T) {
			c := begin(t, true)
			c.turn("msg_1", "work")
			c.happen(record.ApprovalAsked, thread.ApprovalAsked{Call: "4.0"})
			c.failWith(fault.New(class, "x", "not so"))
			c.line("y")
			c.failWith(nil)
			c.line("y")
			require.Equal(t, "answer 4.0 allow ", c.heard()[0])
			require.Equal(t, stays, c.heard()[1] == "answer 4.0 allow ", "%v", c.heard())
			c.line("/quit")
			require.NoError(t, <-c.ended)
		})
	}
}

// Without a terminal the next line is read when the agent waits for one, not before.
func TestScriptedLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, false)
		go func() {
			io.WriteString(c.in, "one\ny\ntwo\n")
			c.close()
		}()
		synctest.Wait()
		require.Equal(t, []string{"steer msg_1 one"}, c.heard())
		c.turn("msg_1", "one")
		synctest.Wait()
		require.Len(t, c.heard(), 1, "the turn runs")
		c.happen(record.ApprovalAsked, thread.ApprovalAsked{Call: "4.0"})
		synctest.Wait()
		require.Equal(t, "answer 4.0 allow ", c.heard()[1])
		require.Len(t, c.heard(), 2, "the answer stands, but not in the record yet")
		c.happen(record.ApprovalAnswered, thread.ApprovalAnswered{Call: "4.0", Verdict: thread.VerdictAllow, By: "owner"})
		c.finish()
		require.Equal(t, "steer msg_2 two", c.heard()[2])
		c.turn("msg_2", "two")
		select {
		case <-c.ended:
			t.Fatal("it left before the last turn ended")
		default:
		}
		c.happen(record.TurnWaiting, thread.TurnWaiting{Reason: thread.WaitLogin})
		err := <-c.ended
		require.ErrorIs(t, err, ErrWaiting)
		require.Equal(t, "cnd-runtime thread resume "+string(threadID), fault.HintOf(err))
	})
}

// A line that is too long ends the chat with an error, not with half a message.
func TestLongLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, true)
		io.WriteString(c.in, strings.Repeat("x", MaxInput+1))
		err := <-c.ended
		require.Equal(t, fault.TooLarge, fault.ClassOf(err))
		require.Empty(t, c.heard())
	})
}

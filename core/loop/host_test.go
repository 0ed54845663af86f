package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/policy"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/builder"
)

// TestTurn holds the order of a turn with a call, and what followers hear of it.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		answer := first(calls("bash", 2))
		b.send = func(ctx context.Context, r Request, deltas func(kind, text string)) (Answer, error) {
			e, ok := b.entries(r.Thread, ""), false
			for _, e := range e {
				ok = ok || e.Seq == r.Seq && e.Kind == record.RequestPrepared
			}
			require.True(t, ok, "the request is durable when it is sent")
			deltas("text", "he")
			deltas("text", "llo")
			return answer(ctx, r, deltas)
		}
		id := b.create("")
		require.Equal(t, Receipt{Seq: 3, State: ReceiptAccepted}, b.submit(id, "go"))
		synctest.Wait()
		require.Equal(t, "message.accepted turn.started message.placed request.prepared answer.finished "+
			"policy.decided tool.started tool.finished policy.decided tool.started tool.finished "+
			"request.prepared answer.finished turn.finished", b.kinds(id))
		require.Equal(t, []Delta{
			{Request: 6, Attempt: 1, Offset: 0, Kind: "text", Text: "he"},
			{Request: 6, Attempt: 1, Offset: 2, Kind: "text", Text: "llo"},
			{Request: 6, Attempt: 1, Kind: DeltaOutput, Call: "6.0", Text: "out of 6.0"},
			{Request: 6, Attempt: 1, Kind: DeltaOutput, Call: "6.1", Text: "out of 6.1"},
			{Request: 14, Attempt: 1, Offset: 0, Kind: "text", Text: "he"},
			{Request: 14, Attempt: 1, Offset: 2, Kind: "text", Text: "llo"},
		}, b.heard.deltas)
		require.Equal(t, 2, b.heard.resets)
		require.Len(t, b.heard.seqs[id], 17, "every entry is heard once")
		for i, seq := range b.heard.seqs[id] {
			require.Equal(t, record.Seq(i), seq)
		}
		b.close()
	})
}

// TestWaits holds how long the loop waits after each failure of a provider, and that it goes on by itself or after
// resume only.
func TestWaits(t *testing.T) {
	for _, c := range []struct {
		cause, reason string
		retry, want   time.Duration
	}{
		{thread.CauseOverloaded, thread.WaitOverloaded, 0, time.Second},
		{thread.CauseNetwork, thread.WaitNetwork, 0, time.Second},
		{thread.CauseMalformed, thread.WaitNetwork, 0, time.Second},
		{thread.CauseRateLimited, thread.WaitRateLimited, 5 * time.Hour, 5 * time.Hour},
		{thread.CauseRateLimited, thread.WaitRateLimited, -time.Hour, time.Second},
		{thread.CauseAuth, thread.WaitLogin, 0, 0},
	} {
		t.Run(fmt.Sprint(c.cause, c.retry), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				e := &ModelError{Cause: c.cause, Detail: "not now"}
				if c.retry != 0 {
					e.RetryAt = time.Now().Add(c.retry)
				}
				b.send = failing(e)
				id := b.create("")
				b.submit(id, "go")
				synctest.Wait()
				waiting := one[thread.TurnWaiting](b, id, record.TurnWaiting)
				require.Equal(t, c.reason, waiting.Reason)
				require.Equal(t, "not now", waiting.Detail)
				if c.want == 0 {
					time.Sleep(24 * time.Hour)
					require.Empty(t, b.entries(id, record.TurnFinished), "it waits for a person")
					r, err := b.Resume(t.Context(), id)
					require.NoError(t, err)
					require.Equal(t, ReceiptAccepted, r.State)
				} else {
					time.Sleep(c.want - time.Millisecond)
					require.Empty(t, b.entries(id, record.TurnFinished), "it waits until then")
					time.Sleep(2 * time.Millisecond)
				}
				synctest.Wait()
				require.Equal(t, thread.TurnCompleted, one[thread.TurnFinished](b, id, record.TurnFinished).State)
				sent := b.entries(id, record.RequestPrepared)
				require.Len(t, sent, 2)
				one, two := must[thread.RequestPrepared](sent[0]), must[thread.RequestPrepared](sent[1])
				require.Equal(t, one.Fingerprint, two.Fingerprint)
				require.Equal(t, 2, two.Attempt)
				require.Equal(t, sent[0].Seq, two.First)
				b.close()
			})
		})
	}
}

// TestAttemptsEnd holds that a provider that never answers ends the turn, and that its message is named.
func TestAttemptsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.send = func(context.Context, Request, func(kind, text string)) (Answer, error) {
			return Answer{}, &ModelError{Cause: thread.CauseOverloaded, Detail: "try later"}
		}
		id := b.create("")
		b.submit(id, "go")
		time.Sleep(time.Hour)
		finished := one[thread.TurnFinished](b, id, record.TurnFinished)
		require.Equal(t, thread.TurnFailed, finished.State)
		require.Equal(t, "unavailable", finished.Error.Class)
		require.Contains(t, finished.Error.Message, "try later")
		require.Len(t, b.entries(id, record.RequestPrepared), MaxAttempts)
		b.close()
	})
}

// TestInvalid holds that a request which the provider refuses is not sent again, and that the next message is taken.
func TestInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.send = failing(&ModelError{Cause: thread.CauseInvalid, Detail: "prompt is too long"})
		id := b.create("")
		b.submit(id, "go")
		synctest.Wait()
		finished := one[thread.TurnFinished](b, id, record.TurnFinished)
		require.Equal(t, "provider-refused", finished.Error.Code)
		require.Regexp(t, `refused request \d+: `, finished.Error.Message)
		require.Regexp(t, `cnd-replay requests thr_\w+ --seq \d+ `, finished.Error.Hint)
		require.Contains(t, finished.Error.Message, "prompt is too long")
		b.submit(id, "shorter")
		synctest.Wait()
		require.Len(t, b.entries(id, record.TurnFinished), 2)
		b.close()
	})
}

// TestRepair holds that a history which the provider would refuse is repaired in a recorded step.
func TestRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.send = first(says(""))
		id := b.create("")
		b.submit(id, "go")
		synctest.Wait()
		b.submit(id, "and on")
		synctest.Wait()
		require.Equal(t, "message.accepted turn.started message.placed request.prepared answer.finished turn.finished "+
			"message.accepted turn.started message.placed history.repaired request.prepared answer.finished turn.finished", b.kinds(id))
		require.Equal(t, record.Seq(7), one[thread.HistoryRepaired](b, id, record.HistoryRepaired).Target)
		b.close()
	})
}

// TestRepairSent holds that repairing what was sent starts an epoch, with the price of the cache that it leaves.
func TestRepairSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.open = func(ctx context.Context, src builder.Source, epoch record.Entry, w io.Writer) (wire.Builder, error) {
			inner, err := builder.Open(ctx, src, epoch, w)
			return &picky{Builder: inner, at: epoch.Seq}, err
		}
		b.start()
		read, wrote := int64(1000), int64(234)
		answer := says("hello")
		answer.Usage = thread.Usage{CacheRead: &read, CacheWrite: &wrote}
		b.send = first(answer)
		id := b.create("")
		b.submit(id, "go")
		synctest.Wait()
		b.submit(id, "and on")
		synctest.Wait()
		epochs := b.entries(id, record.EpochStarted)
		require.Len(t, epochs, 2)
		epoch := must[thread.EpochStarted](epochs[1])
		require.Equal(t, thread.EpochRepair, epoch.Reason)
		require.Equal(t, int64(1234), epoch.CacheTokensLost)
		last := b.entries(id, record.RequestPrepared)[1]
		require.Equal(t, epochs[1].Seq, must[thread.RequestPrepared](last).Epoch)
		b.close()
	})
}

// picky is a builder that finds a problem in what it sent, in the first epoch.
type picky struct {
	wire.Builder
	at       record.Seq
	sent     bool
	repaired bool
}

func (p *picky) Add(ctx context.Context, e record.Entry) error {
	p.sent = p.sent || e.Kind == record.AnswerFinished
	p.repaired = p.repaired || e.Kind == record.HistoryRepaired
	return p.Builder.Add(ctx, e)
}

func (p *picky) Problems() []wire.Problem {
	if p.at != 2 || !p.sent || p.repaired {
		return nil
	}
	return []wire.Problem{{Sent: true, Repair: thread.HistoryRepaired{
		Target: 7, Repair: thread.RepairReplaceText, Text: "hm", Why: "looks odd",
	}}}
}

// TestDrift holds that a request whose bytes cannot be rebuilt is never sent again.
func TestDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.send = failing(&ModelError{Cause: thread.CauseAuth, Detail: "log in"})
		id := b.create("")
		b.submit(id, "go")
		synctest.Wait()
		b.close()
		b.open = func(ctx context.Context, src builder.Source, epoch record.Entry, w io.Writer) (wire.Builder, error) {
			io.WriteString(w, " ")
			return builder.Open(ctx, src, epoch, w)
		}
		b.start()
		for range 2 {
			_, err := b.Resume(t.Context(), id)
			require.NoError(t, err)
			synctest.Wait()
		}
		sent := b.entries(id, record.RequestPrepared)
		require.Len(t, sent, 1)
		waits := b.entries(id, record.TurnWaiting)
		last := must[thread.TurnWaiting](waits[len(waits)-1])
		require.Equal(t, thread.WaitResume, last.Reason)
		require.Contains(t, last.Detail, must[thread.RequestPrepared](sent[0]).Fingerprint)
		require.Contains(t, last.Detail, "rebuilt ")
		_, err := b.Interrupt(t.Context(), id, "", "stop")
		require.NoError(t, err, "a person can give it up")
		synctest.Wait()
		require.Equal(t, thread.TurnStopped, one[thread.TurnFinished](b, id, record.TurnFinished).State)
		b.close()
	})
}

// TestPolicyFault holds that a policy that does not answer stops nothing for good and starts nothing.
func TestPolicyFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.send = first(calls("bash", 1))
		var down atomic.Bool
		down.Store(true)
		b.decide = func(policy.Event) (policy.Decision, error) {
			if down.Load() {
				return policy.Decision{Verdict: policy.Allow}, errors.New("no answer")
			}
			return policy.Decision{Verdict: policy.Allow, Rule: "all"}, nil
		}
		id := b.create("")
		b.submit(id, "go")
		time.Sleep(time.Hour)
		waiting := one[thread.TurnWaiting](b, id, record.TurnWaiting)
		require.Equal(t, thread.WaitPolicy, waiting.Reason, "said once, however often it is asked")
		require.Empty(t, b.entries(id, record.ToolStarted))
		down.Store(false)
		time.Sleep(MaxBackoff + time.Second)
		require.Len(t, b.entries(id, record.TurnFinished), 1)
		b.close()
	})
}

// TestApproval holds that a question waits durably, over a restart, and that the first answer counts.
func TestApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.send = first(calls("bash", 1))
		b.decide = func(policy.Event) (policy.Decision, error) {
			return policy.Decision{Verdict: policy.Ask, Rule: "ask", Reason: "look first"}, nil
		}
		id := b.create("")
		b.submit(id, "go")
		synctest.Wait()
		_, err := b.Resume(t.Context(), id)
		require.ErrorIs(t, err, ErrWaitsApproval)
		b.close()
		b.start()
		require.NoError(t, b.Recover(t.Context(), []record.ThreadID{id}))
		_, err = b.Answer(t.Context(), id, thread.ApprovalAnswered{Call: "9.0", Verdict: thread.VerdictAllow})
		require.ErrorIs(t, err, ErrNoApproval)
		_, err = b.Answer(t.Context(), id, thread.ApprovalAnswered{Call: "6.0", Verdict: "yes"})
		require.ErrorIs(t, err, ErrInvalidCommand)
		r, err := b.Answer(t.Context(), id, thread.ApprovalAnswered{Call: "6.0", Verdict: thread.VerdictDeny, Reason: "no"})
		require.NoError(t, err)
		again, err := b.Answer(t.Context(), id, thread.ApprovalAnswered{Call: "6.0", Verdict: thread.VerdictDeny})
		require.NoError(t, err)
		require.Equal(t, Receipt{Seq: r.Seq, State: ReceiptDuplicate}, again)
		_, err = b.Answer(t.Context(), id, thread.ApprovalAnswered{Call: "6.0", Verdict: thread.VerdictAllow})
		require.ErrorIs(t, err, ErrAnswered)
		synctest.Wait()
		result := one[thread.ToolFinished](b, id, record.ToolFinished)
		require.True(t, result.IsError)
		require.Contains(t, result.Content[0].Text, "Denied by owner: no")
		require.Empty(t, b.entries(id, record.ToolStarted))
		require.Len(t, b.entries(id, record.TurnFinished), 1)
		b.close()
	})
}

// TestPathsMoved holds that an approval counts for the paths that it was asked about: when the call leads elsewhere by
// the time it would start, the person is asked again, and what the policy denies by then does not start at all.
func TestPathsMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.send = first(calls("write", 1))
		var plans atomic.Int32
		b.plan = func(Call) (Plan, error) {
			return Plan{Replay: thread.ReplayUnsafe, Paths: []string{[]string{"/a", "/b", "/b", "/c"}[plans.Add(1)-1]}}, nil
		}
		b.decide = func(e policy.Event) (policy.Decision, error) {
			if e.Paths[0] == "/c" {
				return policy.Decision{Rule: "no-c", Reason: "not there"}, nil
			}
			return policy.Decision{Verdict: policy.Ask, Rule: "ask", Reason: "look at " + e.Paths[0]}, nil
		}
		id := b.create("")
		b.submit(id, "go")
		for range 2 {
			synctest.Wait()
			_, err := b.Answer(t.Context(), id, thread.ApprovalAnswered{Call: "6.0", Verdict: thread.VerdictAllow})
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Len(t, b.entries(id, record.ApprovalAsked), 2, b.kinds(id))
		require.Len(t, b.entries(id, record.ToolStarted), 1, "the second approval stands for /b")
		b.close()
	})
}

// TestUnbuildable holds that a history that cannot be rendered ends the turn with the entry named, and that a builder
// that this program does not have waits for a program that does.
func TestUnbuildable(t *testing.T) {
	for _, c := range []struct {
		err  error
		want func(b *bed, id record.ThreadID)
	}{
		{fmt.Errorf("entry 4: %w", wire.ErrHistory), func(b *bed, id record.ThreadID) {
			finished := one[thread.TurnFinished](b, id, record.TurnFinished)
			require.Equal(b.t, "invalid-history", finished.Error.Code)
			require.Contains(b.t, finished.Error.Message, "entry 4")
		}},
		{wire.ErrUnknownBuilder, func(b *bed, id record.ThreadID) {
			require.Equal(b.t, thread.WaitResume, one[thread.TurnWaiting](b, id, record.TurnWaiting).Reason)
		}},
		{errDisk, func(b *bed, id record.ThreadID) {
			require.Equal(b.t, "message.accepted turn.started message.placed", b.kinds(id), "it is tried again later")
			require.Equal(b.t, 1, b.reported())
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			b.open = func(context.Context, builder.Source, record.Entry, io.Writer) (wire.Builder, error) {
				return nil, c.err
			}
			b.start()
			id := b.create("")
			b.submit(id, "go")
			time.Sleep(10 * time.Minute)
			c.want(b, id)
			require.Empty(t, b.entries(id, record.RequestPrepared))
			b.close()
		})
	}
}

// TestHugeAnswer holds that an answer that no record can hold ends the attempt instead of the thread.
func TestHugeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		huge := calls("bash", 20)
		for i := range huge.View {
			huge.View[i].Input = json.RawMessage(`{"s":"` + strings.Repeat("x", record.InlineLimit) + `"}`)
		}
		b.send = first(huge)
		id := b.create("")
		b.submit(id, "go")
		time.Sleep(time.Minute)
		aborted := one[thread.AnswerAborted](b, id, record.AnswerAborted)
		require.Equal(t, thread.CauseMalformed, aborted.Cause)
		require.Equal(t, thread.TurnCompleted, one[thread.TurnFinished](b, id, record.TurnFinished).State)
		b.close()
	})
}

package thread

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
)

// TestSummarize holds what a list shows of a thread after each step of its life.
func TestSummarize(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	var s Summary
	var head record.Head
	now := time.Date(2026, 11, 30, 20, 48, 23, 123456000, time.UTC)
	add := func(kind record.Kind, body any) Summary {
		t.Helper()
		now = now.Add(time.Second)
		e, err := record.Seal("thr_01m8p570g0e5y8ckpe96re23k9", head, record.Salt{}, record.Draft{Time: now, Kind: kind, Body: Encode(body)})
		require.NoError(t, err)
		head = e.Head()
		s = Summarize(s, e)
		require.Equal(t, head.Seq, s.Seq)
		return s
	}
	add(record.ThreadCreated, Created{Title: "a title", Cwd: "/work", Engine: "loop"})
	require.Equal(t, Summary{
		ID: "thr_01m8p570g0e5y8ckpe96re23k9", Title: "a title", Cwd: "/work", Engine: "loop", State: StateIdle,
		Created: "2026-11-30T20:48:24.123456Z", Updated: "2026-11-30T20:48:24.123456Z",
	}, s)
	add(record.EngineStarted, EngineStarted{Reason: EngineCreated})
	require.Equal(t, "claude", add(record.EpochStarted, EpochStarted{Model: "claude"}).Model)

	require.Equal(t, 1, add(record.MessageAccepted, MessageAccepted{ID: "m"}).Queued)
	require.Equal(t, StateIdle, s.State)
	require.Equal(t, StateWorking, add(record.TurnStarted, TurnStarted{Turn: "t"}).State)
	require.Zero(t, add(record.MessagePlaced, MessagePlaced{ID: "m"}).Queued)
	require.Equal(t, 1, add(record.RequestPrepared, RequestPrepared{Turn: "t"}).Requests)

	add(record.AnswerAborted, AnswerAborted{Cause: CauseOverloaded})
	require.Equal(t, 1, s.Unknown)
	add(record.TurnWaiting, TurnWaiting{Turn: "t", Reason: WaitOverloaded, Until: "2026-11-30T20:50:00Z"})
	require.Equal(t, StateWaiting, s.State)
	require.Equal(t, WaitOverloaded, s.Waiting.Reason)
	add(record.EngineStarted, EngineStarted{Reason: EngineRecovered})
	require.Equal(t, StateWaiting, s.State, "a restart ends no wait")
	add(record.EngineStarted, EngineStarted{Reason: EngineResumed})
	require.Equal(t, StateWorking, s.State, "a person does")
	require.Nil(t, s.Waiting)

	add(record.RequestPrepared, RequestPrepared{Turn: "t", Attempt: 2})
	add(record.AnswerFinished, AnswerFinished{Usage: Usage{Input: n(10), Output: n(0)}})
	require.Equal(t, 1, s.Unknown)
	add(record.ApprovalAsked, ApprovalAsked{Call: "6.0"})
	require.Equal(t, StateWaiting, add(record.TurnWaiting, TurnWaiting{Reason: WaitApproval, Call: "6.0"}).State)
	require.Equal(t, StateWorking, add(record.ApprovalAnswered, ApprovalAnswered{Call: "6.0"}).State)
	add(record.TurnWaiting, TurnWaiting{Reason: WaitPolicy, Call: "6.0"})
	require.Equal(t, StateWorking, add(record.PolicyDecided, PolicyDecided{Call: "6.0"}).State)
	require.Equal(t, StateLost, add(record.TurnLost, TurnLost{Turn: "t"}).State)
	require.Equal(t, StateWorking, add(record.TurnInterrupted, TurnInterrupted{Turn: "t"}).State)
	require.Equal(t, StateIdle, add(record.TurnFinished, TurnFinished{Turn: "t"}).State)
	add(record.EngineStarted, EngineStarted{Reason: EngineReopened})
	require.Equal(t, StateIdle, s.State)

	add(record.AnswerFinished, AnswerFinished{Usage: Usage{Input: n(5), CacheRead: n(7)}})
	require.Equal(t, Usage{Input: n(15), Output: n(0), CacheRead: n(7)}, s.Usage, "what nobody reported stays unknown")
	require.Equal(t, 1, s.Turns)
	require.Equal(t, 2, s.Requests)
}

// TestSummarizeErased holds that what a kind alone tells counts without its body.
func TestSummarizeErased(t *testing.T) {
	var s Summary
	for i, kind := range []record.Kind{record.ThreadCreated, record.MessageAccepted, record.TurnStarted, record.MessagePlaced, record.RequestPrepared} {
		s = Summarize(s, record.Entry{Seq: record.Seq(i), Kind: kind, ErasedBy: 9})
	}
	require.Zero(t, s.Queued)
	require.Equal(t, StateWorking, s.State)
	require.Equal(t, 1, s.Requests)
}

// TestSummarizeForgives holds that a body that is erased or strange leaves the summary as it is.
func TestSummarizeForgives(t *testing.T) {
	before := Summary{ID: "thr_01m8p570g0e5y8ckpe96re23k9", Created: "x", State: StateWorking, Title: "kept", Model: "kept"}
	for _, kind := range []record.Kind{
		record.ThreadCreated, record.EpochStarted, record.TurnWaiting, record.AnswerFinished, record.AnswerAborted,
		record.EngineStarted, "turn.teleported",
	} {
		for _, body := range [][]byte{[]byte(`{"title":1,"model":2,"reason":3,"usage":4}`), nil} {
			e := record.Entry{Thread: before.ID, Seq: 9, Kind: kind, Body: body}
			want := before
			want.Seq, want.Updated = 9, e.Time.Format(TimeLayout)
			got := Summarize(before, e)
			require.Equal(t, want, got, "%s %s", kind, body)
		}
	}
}

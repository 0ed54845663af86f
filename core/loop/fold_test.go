package loop

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// chain seals entries one after the other.
type chain struct {
	t    *testing.T
	head record.Head
	gen  uint64
	time time.Time
	all  []record.Entry
}

const chainThread = record.ThreadID("thr_01m8p570g0e5y8ckpe96re23k9")

func (c *chain) add(kind record.Kind, body any) *chain {
	c.t.Helper()
	if kind == record.EngineStarted {
		c.gen++
	}
	e, err := record.Seal(chainThread, c.head, record.Salt{}, record.Draft{Gen: c.gen, Time: c.time, Kind: kind, Body: thread.Encode(body)})
	require.NoError(c.t, err)
	c.head = e.Head()
	c.all = append(c.all, e)
	return c
}

// fold folds the entries; erased ones lose their body first.
func (c *chain) fold(erased ...int) (State, error) {
	var s State
	for i, e := range c.all {
		for _, gone := range erased {
			if gone == i {
				e = e.Erase(99)
			}
		}
		if err := s.Apply(e); err != nil {
			return s, err
		}
	}
	return s, nil
}

// story is a thread with a turn that waits for the result of its only call, which started.
func story(t *testing.T, replay string) *chain {
	c := &chain{t: t}
	return c.add(record.ThreadCreated, thread.Created{Cwd: "/work", Engine: "loop"}).
		add(record.EngineStarted, thread.EngineStarted{Reason: thread.EngineCreated, Version: "1.2.3"}).
		add(record.EpochStarted, simEpoch()).
		add(record.MessageAccepted, thread.MessageAccepted{ID: "m1", Mode: thread.ModeQueue, BodySHA256: "aa"}).
		add(record.TurnStarted, thread.TurnStarted{Turn: "t1"}).
		add(record.MessagePlaced, thread.MessagePlaced{ID: "m1", Accepted: 3, Turn: "t1"}).
		add(record.RequestPrepared, thread.RequestPrepared{Turn: "t1", Epoch: 2, Attempt: 1, Fingerprint: "f"}).
		add(record.AnswerFinished, thread.AnswerFinished{Request: 6, Attempt: 1, View: []thread.Block{
			{Type: thread.BlockToolCall, Call: "6.0", Name: "bash", Input: []byte("{}")},
		}}).
		add(record.PolicyDecided, thread.PolicyDecided{Call: "6.0", Verdict: thread.VerdictAllow}).
		add(record.ToolStarted, thread.ToolStarted{Call: "6.0", Name: "bash", Replay: replay})
}

// TestFoldRefuses holds that the fold takes nothing that the loop never writes.
func TestFoldRefuses(t *testing.T) {
	for _, c := range []struct {
		why  string
		kind record.Kind
		body any
		want string
	}{
		{"a second start of an unsafe tool", record.ToolStarted, thread.ToolStarted{Call: "6.0"}, "had started and is unsafe"},
		{"a turn in a turn", record.TurnStarted, thread.TurnStarted{Turn: "t2"}, "t1 is not finished"},
		{"an end without the results", record.TurnFinished, thread.TurnFinished{}, "1 calls have no result"},
		{"a message again", record.MessageAccepted, thread.MessageAccepted{ID: "m1"}, "was accepted before"},
		{"a place again", record.MessagePlaced, thread.MessagePlaced{ID: "m1", Accepted: 3}, "was placed before"},
		{"an answer to nothing", record.AnswerFinished, thread.AnswerFinished{Request: 6}, "request 6 is not open"},
		{"another attempt of other bytes", record.RequestPrepared, thread.RequestPrepared{Attempt: 2, Fingerprint: "g"}, "another fingerprint"},
		{"a body that does not fit", record.ToolFinished, map[string]int{"call": 7}, "cannot unmarshal"},
	} {
		_, err := story(t, thread.ReplayUnsafe).add(c.kind, c.body).fold()
		require.ErrorContains(t, err, c.want, c.why)
	}
	_, err := story(t, thread.ReplaySafe).add(record.ToolStarted, thread.ToolStarted{Call: "6.0"}).fold()
	require.NoError(t, err, "a safe tool may start again")
	result := thread.ToolFinished{Call: "6.0"}
	_, err = story(t, thread.ReplaySafe).add(record.ToolFinished, result).add(record.ToolUnknown, result).fold()
	require.ErrorIs(t, err, ErrBroken)
	require.Equal(t, fault.Corrupt, fault.ClassOf(err))

	_, err = story(t, thread.ReplaySafe).add("turn.teleported", struct{}{}).fold()
	require.ErrorIs(t, err, ErrUnknownKind)
	require.ErrorContains(t, err, "1.2.3", "the version that wrote it")

	gap := story(t, thread.ReplaySafe)
	gap.all = append(gap.all[:3], gap.all[4:]...)
	_, err = gap.fold()
	require.ErrorIs(t, err, ErrBroken)
}

// TestFoldErased holds that the fold of a thread goes on over bodies that were erased.
func TestFoldErased(t *testing.T) {
	c := story(t, thread.ReplayUnsafe).
		add(record.ToolFinished, thread.ToolFinished{Call: "6.0", Content: text("secret")}).
		add(record.TurnFinished, thread.TurnFinished{Turn: "t1", State: thread.TurnCompleted}).
		add(record.MessageAccepted, thread.MessageAccepted{ID: "m2", Mode: thread.ModeQueue})
	whole, err := c.fold()
	require.NoError(t, err)
	for i, e := range c.all[:12] {
		if e.Kind != record.MessageAccepted && e.Kind != record.AnswerFinished && e.Kind != record.ToolFinished {
			continue
		}
		s, err := c.fold(i)
		require.NoError(t, err, e.Kind)
		require.Equal(t, whole.Queue, s.Queue)
		require.Nil(t, s.Turn)
		require.Equal(t, whole.Head, s.Head)
	}
}

// TestFoldIgnoresTime holds that the same entries at other times are the same state.
func TestFoldIgnoresTime(t *testing.T) {
	c := story(t, thread.ReplayUnsafe)
	early, err := c.fold()
	require.NoError(t, err)
	later := &chain{t: t, time: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	for _, e := range c.all {
		later.gen = e.Gen
		if e.Kind == record.EngineStarted {
			later.gen--
		}
		later.add(e.Kind, must[map[string]any](e))
	}
	other, err := later.fold()
	require.NoError(t, err)
	early.Head, other.Head = record.Head{}, record.Head{}
	early.Created, other.Created = thread.Created{}, thread.Created{}
	require.Equal(t, early, other)
}

func TestBackoff(t *testing.T) {
	require.Equal(t, MinBackoff, Backoff(1))
	require.Equal(t, 4*MinBackoff, Backoff(3))
	require.Equal(t, MaxBackoff, Backoff(7))
	require.Equal(t, MaxBackoff, Backoff(1<<40))
	require.Equal(t, MinBackoff, Backoff(0))
}

// TestForeign holds that whatever a provider sends becomes a body that a record takes, with strict JSON kept token by
// token.
func TestForeign(t *testing.T) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	r := &Prepared{RequestPrepared: thread.RequestPrepared{Attempt: 1}, Seq: 6}
	for _, native := range []string{
		`{"type":"text","text":"a"}`, "{ \"n\" : 1e5 }", `{"a":"` + "\u2028" + `<\u0000>"}`, // strict
		`{"a":1,"a":2}`, `{"a":"\ud800"}`, "{\"a\":\"\xff\"}", `{"a":` + deep + `}`, `{"a":`, `7`, ``, // not
		`{"a":"` + strings.Repeat("x", record.InlineLimit) + `"}`,
	} {
		a := Answer{
			Native: []json.RawMessage{json.RawMessage(native)}, Diagnostics: json.RawMessage(native), StopReason: "tool_use",
			View: []thread.Block{
				{Type: thread.BlockToolCall, Name: "bash", Input: json.RawMessage(native)},
				{Type: thread.BlockText, Text: strings.Repeat("y", record.InlineLimit+1)},
				{Type: thread.BlockToolCall, Name: "bash", InputText: "{"},
			},
		}
		if len(native) > record.InlineLimit {
			a.Diagnostics = nil
		}
		d := finished(r, a)
		body := thread.Encode(d.Body)
		require.NoError(t, record.CheckBody(body), "%.80s", native)
		_, err := record.Seal(chainThread, record.Head{}, record.Salt{}, record.Draft{Kind: d.Kind, Body: body, Blobs: d.Blobs})
		require.NoError(t, err)
		got := d.Body.(thread.AnswerFinished)
		require.Equal(t, "6.0", got.View[0].Call)
		require.Equal(t, "6.1", got.View[2].Call)
		require.NotEmpty(t, got.View[1].Blob)
	}
	kept := finished(r, Answer{Native: []json.RawMessage{json.RawMessage("{ \"n\" : 1.50e5 , \"s\":\"\\u0041<\" }")}}).Body.(thread.AnswerFinished)
	require.Equal(t, `{"n":1.50e5,"s":"\u0041<"}`, string(kept.Native[0].JSON))
	body := string(thread.Encode(kept))
	require.Contains(t, body, `{"n":1.50e5,"s":"\u0041<"}`)
}

// TestLongResult holds that a tool that does not cut its output does not fill the record.
func TestLongResult(t *testing.T) {
	d := result(&Called{ID: "6.0"}, Result{Content: text(strings.Repeat("a", record.InlineLimit+1))}, false)
	b := d.Body.(thread.ToolFinished)
	require.True(t, b.IsError)
	require.Less(t, len(b.Content[0].Text), 200)
	d = result(&Called{ID: "6.0"}, Result{Content: text(strings.Repeat("a", record.InlineLimit))}, false)
	require.False(t, d.Body.(thread.ToolFinished).IsError)
	twice := record.NewBlob([]byte("x"))
	d = result(&Called{ID: "6.0"}, Result{Blobs: []record.Blob{twice, twice}}, true)
	require.Equal(t, []string{twice.Ref()}, d.Body.(thread.ToolFinished).Blobs, "each blob is listed once")
	require.True(t, d.Body.(thread.ToolFinished).Recovered)
}

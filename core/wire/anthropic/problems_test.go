package anthropic_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire/wiretest"
)

// Every block that would make the provider answer 400 for ever is found with its entry, and its recorded repair lets
// the request through.
func TestProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		blocks []thread.Block // of a message, or
		native []thread.Raw   // of an answer
		want   []string       // repair and block of each problem
		left   string         // part of the repaired request
	}{
		"empty text":       {[]thread.Block{wiretest.Text(""), wiretest.Text("x")}, nil, []string{"drop-block 0"}, `[{"type":"text","text":"x"}]`},
		"blank text":       {[]thread.Block{wiretest.Text("x"), wiretest.Text("\u00a0\u3000\x1f\n")}, nil, []string{"drop-block 1"}, `[{"type":"text","text":"x"}]`},
		"empty message":    {[]thread.Block{wiretest.Text(" "), wiretest.Text("")}, nil, []string{"replace-text 0", "drop-block 1"}, textBlock("(empty message)")},
		"empty answer":     {nil, []thread.Raw{{JSON: json.RawMessage(textBlock(""))}}, []string{"drop-block 0"}, `"stream"`},
		"no text":          {nil, []thread.Raw{{JSON: json.RawMessage(`{"type":"text"}`)}, {JSON: json.RawMessage(textBlock("x"))}}, []string{"drop-block 0"}, textBlock("x")},
		"unsigned":         {nil, []thread.Raw{{JSON: json.RawMessage(`{"type":"thinking","thinking":"x","signature":""}`)}}, []string{"drop-block 0"}, `"stream"`},
		"no signature":     {nil, []thread.Raw{{JSON: json.RawMessage(`{"type":"thinking","thinking":"x"}`)}}, []string{"drop-block 0"}, `"stream"`},
		"redacted":         {nil, []thread.Raw{{JSON: json.RawMessage(`{"type":"redacted_thinking","data":""}`)}}, []string{"drop-block 0"}, `"stream"`},
		"no type":          {nil, []thread.Raw{{JSON: json.RawMessage(`{"text":"x"}`)}}, []string{"drop-block 0"}, `"stream"`},
		"call without id":  {nil, []thread.Raw{{JSON: json.RawMessage(`{"type":"tool_use","id":7,"name":"x","input":{}}`)}}, []string{"drop-block 0"}, `"stream"`},
		"half a block":     {nil, []thread.Raw{{Text: `{"type":"text","te`}}, []string{"drop-block 0"}, `"stream"`},
		"no object":        {nil, []thread.Raw{{Text: `["type"]`}}, []string{"drop-block 0"}, `"stream"`},
		"nothing at all":   {nil, []thread.Raw{{}}, []string{"drop-block 0"}, `"stream"`},
		"nothing is wrong": {[]thread.Block{wiretest.Text("x")}, nil, nil, textBlock("x")},
	} {
		t.Run(name, func(t *testing.T) {
			th := begin(t)
			th.Message(wiretest.Text("hi"))
			e := th.Request()
			var target record.Seq
			if tc.native != nil {
				target = th.Add(record.AnswerFinished, thread.AnswerFinished{Request: e.Seq, Attempt: 1, Native: tc.native}).Seq
			} else {
				target = th.Message(tc.blocks...).Seq
			}
			var got []string
			for _, p := range th.Problems() {
				require.Equal(t, target, p.Repair.Target)
				require.False(t, p.Sent)
				require.NotEmpty(t, p.Repair.Why)
				got = append(got, fmt.Sprintf("%s %d", p.Repair.Repair, p.Repair.Block))
			}
			require.Equal(t, tc.want, got)
			for _, p := range th.Problems() {
				th.Repair(p)
			}
			require.Empty(t, th.Problems())
			e = th.Request()
			require.Empty(t, refusal(th.Bodies[e.Seq]))
			require.Contains(t, string(th.Bodies[e.Seq]), tc.left)
		})
	}
}

// A note without text is found too.
func TestBlankNote(t *testing.T) {
	th := begin(t)
	th.Message(wiretest.Text("hi"))
	th.Add(record.NoteInjected, thread.NoteInjected{Text: "\n"})
	require.Len(t, th.Problems(), 1)
	th.Repair(th.Problems()[0])
	require.Equal(t, userHi, messages(th))
}

// Results that belong to no call, or to one that has a result, are never sent; their entries are named.
func TestOrphanResults(t *testing.T) {
	th := begin(t)
	th.Message(wiretest.Text("hi"))
	th.Request()
	th.Answer(useA)
	th.Result(0, wiretest.Text("first"))
	twice := th.Result(0, wiretest.Text("second"))
	orphan := th.Add(record.ToolUnknown, thread.ToolUnknown{Call: "1.7", Cause: "crash"})
	problems := th.Problems()
	require.Len(t, problems, 2)
	require.Equal(t, twice.Seq, problems[0].Repair.Target)
	require.Contains(t, problems[0].Repair.Why, "already")
	require.Equal(t, orphan.Seq, problems[1].Repair.Target)
	for _, p := range problems {
		require.Equal(t, thread.RepairDropResult, p.Repair.Repair)
		th.Repair(p)
	}
	require.Empty(t, th.Problems())
	require.NotContains(t, messages(th), "second")

	th.Begin(bare())
	require.Empty(t, th.Problems(), "the repair counts in later epochs")
	late := th.Result(0, wiretest.Text("late"))
	require.Len(t, th.Problems(), 1)
	require.Equal(t, late.Seq, th.Problems()[0].Repair.Target)
}

// A problem of a block that is written already stays until it is repaired, and says that a new epoch must follow; the
// epoch keeps its bytes.
func TestProblemOfWrittenBlocks(t *testing.T) {
	th := begin(t)
	bad := th.Message(wiretest.Text("hi"), wiretest.Text(" "))
	first := th.Request() // against the advice of Problems
	require.Len(t, th.Problems(), 1)
	p := th.Problems()[0]
	require.True(t, p.Sent)
	require.Equal(t, bad.Seq, p.Repair.Target)
	th.Repair(p)
	require.Empty(t, th.Problems())
	require.Equal(t, string(th.Bodies[first.Seq]), string(th.Bodies[th.Request().Seq]))
	th.Begin(bare())
	require.Empty(t, th.Problems())
	require.Equal(t, userHi, messages(th))
}

// What stands before an epoch is found when the epoch starts.
func TestProblemsOfHistory(t *testing.T) {
	th := begin(t)
	th.Message(wiretest.Text("hi"), wiretest.Text(" "))
	th.Request()
	th.Begin(bare())
	require.Len(t, th.Problems(), 1)
	require.True(t, th.Problems()[0].Sent)
	th.Repair(th.Problems()[0])
	th.Begin(bare())
	require.Equal(t, userHi, messages(th))
}

// A repair whose text is blank, or which names no block, cannot make things worse.
func TestOddRepairs(t *testing.T) {
	th := begin(t)
	e := th.Message(wiretest.Text("hi"), wiretest.Text("there"))
	th.Add(record.HistoryRepaired, thread.HistoryRepaired{Target: e.Seq, Block: 1, Repair: thread.RepairReplaceText, Text: "  "})
	th.Add(record.HistoryRepaired, thread.HistoryRepaired{Target: e.Seq, Block: 9, Repair: thread.RepairDropBlock})
	th.Add(record.HistoryRepaired, thread.HistoryRepaired{Target: 999, Block: 0, Repair: thread.RepairDropResult})
	require.Equal(t, userHi, messages(th))
}

// A call whose block is dropped takes its result with it.
func TestDroppedCall(t *testing.T) {
	th := begin(t)
	th.Message(wiretest.Text("hi"))
	th.Request()
	e := th.Answer(textBlock("ok"), useA, useB)
	th.Result(0, wiretest.Text("A"))
	th.Result(1, wiretest.Text("B"))
	th.Add(record.HistoryRepaired, thread.HistoryRepaired{Target: e.Seq, Block: 1, Repair: thread.RepairDropBlock})
	got := messages(th)
	require.NotContains(t, got, "toolu_a")
	require.Contains(t, got, `{"type":"tool_result","tool_use_id":"toolu_b"`)
}

// A request over the provider's limit is found before it is sent: the largest text is replaced, first among what is
// new.
func TestTooLargeRequest(t *testing.T) {
	big := func(th *wiretest.Thread, n int) thread.Block {
		return thread.Block{Type: "text", Blob: th.Keep([]byte(strings.Repeat("x", n)))}
	}
	th := begin(t)
	old := th.Message(big(th, 8<<20), big(th, 7<<20))
	th.Request()
	th.Answer(textBlock("ok"))
	th.Message(big(th, 7<<20))
	require.Empty(t, th.Problems())
	th.Message(big(th, 7<<20), big(th, 6<<20))

	for range 5 {
		problems := th.Problems()
		if len(problems) == 0 {
			break
		}
		require.Len(t, problems, 1)
		require.Equal(t, old.Seq, problems[0].Repair.Target, "the largest")
		require.True(t, problems[0].Sent)
		th.Repair(problems[0])
	}
	require.Empty(t, th.Problems())
	th.Begin(bare())
	require.Empty(t, th.Problems())
	e := th.Request()
	require.Less(t, len(th.Bodies[e.Seq]), 32_000_000)
	require.Contains(t, string(th.Bodies[e.Seq]), "[A text of 8388610 bytes was left out: the request would be too large.]")
}

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

const mark = `,"cache_control":{"type":"ephemeral"}}`

// marked returns which blocks of a body, counted from its first, carry a breakpoint.
func marked(t *testing.T, body []byte) (at []int) {
	t.Helper()
	var r request
	require.NoError(t, json.Unmarshal(body, &r))
	n := len(r.System) + len(r.Tools)
	for _, m := range r.Messages {
		for _, b := range m.Content {
			if b.CacheControl != nil {
				at = append(at, n)
			}
			n++
		}
	}
	return at
}

func texts9(n int) (blocks []thread.Block) {
	for i := range n {
		blocks = append(blocks, wiretest.Text(fmt.Sprintf("%d", i)))
	}
	return blocks
}

// The end of the previous request is in reach with up to 19 new blocks. With more, an explicit breakpoint stands as
// late as the reach allows; three of them at most; and they stay.
func TestBreakpoints(t *testing.T) {
	th := wiretest.New(t)
	th.Begin(wiretest.Epoch())
	th.Message(texts9(60)...)
	first := th.Request()
	require.Empty(t, marked(t, th.Bodies[first.Seq]), "there is nothing to reach")
	require.False(t, th.Tails[first.Seq].Reach)

	th.Message(texts9(19)...)
	e := th.Request()
	require.Empty(t, marked(t, th.Bodies[e.Seq]))
	require.True(t, th.Tails[e.Seq].Reach)

	var want []int
	for range 3 {
		end := th.Tails[e.Seq].Blocks
		th.Message(texts9(20)...)
		e = th.Request()
		want = append(want, end+18)
		require.Equal(t, want, marked(t, th.Bodies[e.Seq]), "the last one from which %d is in reach", end-1)
		require.True(t, th.Tails[e.Seq].Reach)
		require.Empty(t, refusal(th.Bodies[e.Seq]))
	}
	th.Message(texts9(30)...)
	e = th.Request()
	require.Equal(t, want, marked(t, th.Bodies[e.Seq]))
	require.False(t, th.Tails[e.Seq].Reach, "a miss is expected")

	th.Message(texts9(3)...)
	e = th.Request()
	require.True(t, th.Tails[e.Seq].Reach)
	require.Equal(t, want, marked(t, th.Bodies[e.Seq]))

	th.Begin(wiretest.Epoch())
	th.Message(texts9(1)...)
	require.Empty(t, marked(t, th.Bodies[th.Request().Seq]), "a new epoch begins without")
}

// A breakpoint stands on a native block that can carry one, never on thinking, and at its end.
func TestBreakpointOnNative(t *testing.T) {
	th := wiretest.New(t)
	th.Begin(wiretest.Epoch())
	th.Message(wiretest.Text("hi"))
	th.Request()
	var native []string
	for i := range 17 {
		native = append(native, fmt.Sprintf(`{"type":"tool_use","id":"toolu_%d","name":"x","input":{}}`, i))
	}
	native = append([]string{textBlock("a")}, native...)
	native = append(native, signed, `{"type":"future_block","x":1}`)
	th.Answer(append(native, textBlock("end"))...)
	e := th.Request()
	body := string(th.Bodies[e.Seq])
	require.Contains(t, body, `{"type":"tool_use","id":"toolu_16","name":"x","input":{}`+mark)
	require.Equal(t, 2, strings.Count(body, "cache_control"))
	require.Contains(t, body, signed+`,{"type":"future_block","x":1}`)
}

// A breakpoint on a result stands behind everything else in it.
func TestBreakpointOnResult(t *testing.T) {
	th := wiretest.New(t)
	th.Begin(wiretest.Epoch())
	th.Message(wiretest.Text("hi"))
	th.Request()
	var native []string
	for i := range 12 {
		native = append(native, fmt.Sprintf(`{"type":"tool_use","id":"toolu_%d","name":"x","input":{}}`, i))
	}
	th.Answer(native...)
	for i := range 12 {
		th.Add(record.ToolFinished, thread.ToolFinished{Call: th.Call(i), IsError: true, Content: texts9(2)})
	}
	e := th.Request()
	require.Contains(t, string(th.Bodies[e.Seq]), `{"type":"tool_result","tool_use_id":"toolu_6","content":[`+
		textBlock("0")+`,`+textBlock("1")+`],"is_error":true`+mark)
}

// Where nothing in reach can carry one there is none, and the miss is expected.
func TestNoBlockForABreakpoint(t *testing.T) {
	th := wiretest.New(t)
	th.Begin(wiretest.Epoch())
	th.Message(wiretest.Text("hi"))
	th.Request()
	var native []string
	for range 25 {
		native = append(native, signed)
	}
	th.Answer(append(native, textBlock("end"))...)
	e := th.Request()
	require.Empty(t, marked(t, th.Bodies[e.Seq]))
	require.False(t, th.Tails[e.Seq].Reach)
}

// Without caching there is no breakpoint anywhere.
func TestNoCaching(t *testing.T) {
	th := begin(t)
	th.Message(texts9(3)...)
	th.Request()
	th.Message(texts9(50)...)
	require.NotContains(t, string(th.Bodies[th.Request().Seq]), "cache_control")
}

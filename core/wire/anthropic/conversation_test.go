package anthropic_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/builder"
	"condensate.dev/cnd/core/wire/wiretest"
)

// bare are settings that make short bodies.
func bare() thread.EpochStarted {
	s := wiretest.Epoch()
	s.System, s.Tools, s.Cache = nil, nil, thread.Cache{}
	return s
}

func begin(t *testing.T) *wiretest.Thread {
	th := wiretest.New(t)
	th.Begin(bare())
	return th
}

// messages returns the messages of the newest request, which the provider must accept, without what surrounds them.
func messages(th *wiretest.Thread) string {
	th.T.Helper()
	body := th.Bodies[th.Request().Seq]
	require.Empty(th.T, refusal(body), "%s", body)
	s := string(body)
	s = s[strings.Index(s, `"messages":[`)+len(`"messages":[`):]
	return s[:strings.Index(s, `],"stream":true`)]
}

const (
	userHi  = `{"role":"user","content":[{"type":"text","text":"hi"}]}`
	useA    = `{"type":"tool_use","id":"toolu_a","name":"bash","input":{"command":"a"}}`
	useB    = `{"type":"tool_use","id":"toolu_b","name":"bash","input":{"n":1.50}}`
	signed  = `{"type":"thinking","thinking":"hm","signature":"c2ln"}`
	cutMark = `{"type":"text","text":"[The answer above was interrupted by the user before it was complete.]"}`
)

func textBlock(s string) string { return `{"type":"text","text":"` + s + `"}` }

// The head holds every setting in its place; the tail asks for the stream and the cache.
func TestHeadAndTail(t *testing.T) {
	th := wiretest.New(t)
	s := wiretest.Epoch()
	s.System = []string{"one \"two\"\n", " \t", "\xff\u2028"}
	s.Thinking = json.RawMessage(`{"type":"adaptive"}`)
	s.Cache = thread.Cache{TTL: "1h", Diagnostics: true}
	s.Tools = append(s.Tools, thread.ToolSpec{Name: "x", InputSchema: json.RawMessage(`{"a":1.0}`)})
	th.Begin(s)
	th.Message(wiretest.Text("hi"))
	first := th.Bodies[th.Request().Seq]
	require.Equal(t, `{"model":"claude-sonnet-5","max_tokens":4096,`+
		`"system":[{"type":"text","text":"one \"two\"\n"},{"type":"text","text":"`+"\ufffd\u2028"+`"}],`+
		`"tools":[{"name":"bash","description":"Run a command","input_schema":{"type":"object"}},`+
		`{"name":"x","description":"","input_schema":{"a":1.0}}],"thinking":{"type":"adaptive"},"messages":[`+userHi+
		`],"stream":true,"cache_control":{"type":"ephemeral","ttl":"1h"},"diagnostics":{"previous_message_id":null}}`, string(first))

	th.Answer(textBlock("ok"))
	th.Message(wiretest.Text("more"))
	e := th.Request()
	require.True(t, strings.HasSuffix(string(th.Bodies[e.Seq]),
		fmt.Sprintf(`"diagnostics":{"previous_message_id":"msg_%d"}}`, first0(th))), "%s", th.Bodies[e.Seq])
	require.Equal(t, 4+3, th.Tails[e.Seq].Blocks, "two system texts, two tools, three messages of one block")
	require.Equal(t, 3, th.Tails[e.Seq].Messages)
}

// first0 returns the seq of the first request.
func first0(th *wiretest.Thread) record.Seq {
	for _, e := range th.Lines {
		if e.Kind == record.RequestPrepared {
			return e.Seq
		}
	}
	return 0
}

// A new epoch does not know the answers of the one before: the provider has nothing to compare with.
func TestDiagnosticsBeginAnewWithTheEpoch(t *testing.T) {
	s := bare()
	s.Cache.Diagnostics = true
	th := wiretest.New(t)
	th.Begin(s)
	th.Message(wiretest.Text("hi"))
	th.Request()
	th.Answer(textBlock("ok"))
	th.Begin(s)
	th.Message(wiretest.Text("more"))
	require.Contains(t, string(th.Bodies[th.Request().Seq]), `"previous_message_id":null`)
}

// Results come in any order and stand in the order of the calls; what was said meanwhile follows them.
func TestResultsStandInCallOrder(t *testing.T) {
	th := begin(t)
	th.Message(wiretest.Text("hi"))
	th.Request()
	th.Answer(signed, textBlock("ok"), useA, useB)
	th.Message(wiretest.Text("and hurry"))
	th.Result(1, wiretest.Text("B"), wiretest.Text("B2"))
	th.Add(record.NoteInjected, thread.NoteInjected{Text: "careful"})
	th.Add(record.ToolFinished, thread.ToolFinished{Call: th.Call(0), IsError: true, Content: []thread.Block{wiretest.Text("A")}})
	require.Equal(t, userHi+`,{"role":"assistant","content":[`+signed+`,`+textBlock("ok")+`,`+useA+`,`+useB+`]},`+
		`{"role":"user","content":[`+
		`{"type":"tool_result","tool_use_id":"toolu_a","content":[`+textBlock("A")+`],"is_error":true},`+
		`{"type":"tool_result","tool_use_id":"toolu_b","content":[`+textBlock("B")+`,`+textBlock("B2")+`]},`+
		textBlock("and hurry")+`,`+textBlock("careful")+`]}`, messages(th))
}

// What was said while the answer was written comes after the answer.
func TestSaidWhileAnswering(t *testing.T) {
	th := begin(t)
	th.Message(wiretest.Text("hi"))
	th.Request()
	th.Message(wiretest.Text("wait"))
	th.Answer(textBlock("ok"))
	require.Equal(t, userHi+`,{"role":"assistant","content":[`+textBlock("ok")+`]},{"role":"user","content":[`+textBlock("wait")+`]}`, messages(th))
}

// A message counts from where it was placed, not from where it was accepted.
func TestMessageIsPlacedLater(t *testing.T) {
	th := begin(t)
	later := th.Accept(wiretest.Text("later"))
	th.Message(wiretest.Text("hi"))
	th.Request()
	th.Answer(textBlock("ok"))
	th.Begin(bare())
	th.Place(later)
	require.Equal(t, userHi+`,{"role":"assistant","content":[`+textBlock("ok")+`]},{"role":"user","content":[`+textBlock("later")+`]}`, messages(th))
}

// A result that nobody knows says so, with what was seen; a result without anything to see says that; a call without
// any result gets one.
func TestResultsWithoutContent(t *testing.T) {
	th := begin(t)
	th.Message(wiretest.Text("hi"))
	th.Request()
	th.Answer(useA, useB, strings.Replace(useA, "toolu_a", "toolu_c", 1), strings.Replace(useA, "toolu_a", "toolu_d", 1))
	th.Add(record.ToolUnknown, thread.ToolUnknown{Call: th.Call(0), Cause: "crash", Partial: "so\nfar"})
	th.Result(1)
	th.Result(2, wiretest.Text(" \n"), wiretest.Text(""))
	result := func(id, text, tail string) string {
		return `{"type":"tool_result","tool_use_id":"` + id + `","content":[` + textBlock(text) + `]` + tail + `}`
	}
	got := messages(th)
	require.Contains(t, got, result("toolu_a", "[It is not known whether this call took effect: it was started and then cut off (crash). "+
		`Check before doing it again.]\nOutput seen before:\nso\nfar`, `,"is_error":true`)+`,`+
		result("toolu_b", "(no output)", "")+`,`+result("toolu_c", "(no output)", "")+`,`+
		result("toolu_d", "[No result of this call was recorded.]", `,"is_error":true`))
}

// Content that is kept outside the body is sent in its place.
func TestBlobs(t *testing.T) {
	th := begin(t)
	th.Message(thread.Block{Type: "text", Blob: th.Keep([]byte("long \"text\"\xff"))})
	th.Request()
	use := `{"type":"tool_use","id":"toolu_a","name":"bash","input":{"x":"` + strings.Repeat("y", 50) + `"}}`
	th.Add(record.AnswerFinished, thread.AnswerFinished{
		Blobs: []string{th.Keep([]byte(use))}, Request: first0(th), Attempt: 1,
		Native: []thread.Raw{{Blob: th.Keep([]byte(use))}},
		View:   []thread.Block{{Type: "tool_call", Call: fmt.Sprintf("%d.0", first0(th))}},
	}, record.NewBlob([]byte(use)))
	th.Add(record.ToolFinished, thread.ToolFinished{
		Blobs: []string{th.Keep(pixel)}, Call: fmt.Sprintf("%d.0", first0(th)),
		Content: []thread.Block{{Type: "image", MediaType: "image/png", Blob: th.Keep(pixel)}},
	}, record.NewBlob(pixel))
	got := messages(th)
	require.Contains(t, got, `{"type":"text","text":"long \"text\"`+"\ufffd"+`"}`)
	require.Contains(t, got, `{"role":"assistant","content":[`+use+`]}`)
	require.Contains(t, got, `{"type":"tool_result","tool_use_id":"toolu_a","content":[{"type":"image","source":{"type":"base64",`+
		`"media_type":"image/png","data":"`+pixel64+`"}}]}`)
}

// Native blocks are sent byte for byte, whatever they hold, also in the forms that a body cannot hold as JSON.
func TestNativeIsVerbatim(t *testing.T) {
	th := begin(t)
	th.Message(wiretest.Text("hi"))
	th.Request()
	odd := []thread.Raw{
		{JSON: json.RawMessage(`{"type":"text","text":"\u2028\ud83d\ude00 \u0041","n":[1.0,1e400,-0,12345678901234567890]}`)},
		{Text: `{"type":"tool_use","id":"toolu_\ud800","id":"toolu_2","name":"x","input":{"a":1,"a":2}}`},
		{JSON: json.RawMessage(`{"type":"redacted_thinking","data":"ZGF0YQ=="}`)},
		{JSON: json.RawMessage(`{"type":"text","text":"end"}`)},
	}
	th.Add(record.AnswerFinished, thread.AnswerFinished{
		Request: first0(th), Attempt: 1, Native: odd,
		View: []thread.Block{{Type: "tool_call", Call: fmt.Sprintf("%d.0", first0(th)), InputText: `{"a":1,"a":2}`}},
	})
	th.Add(record.ToolFinished, thread.ToolFinished{Call: fmt.Sprintf("%d.0", first0(th)), Content: []thread.Block{wiretest.Text("R")}})
	got := messages(th)
	require.Contains(t, got, `{"role":"assistant","content":[`+string(odd[0].JSON)+`,`+odd[1].Text+`,`+string(odd[2].JSON)+`,`+string(odd[3].JSON)+`]}`)
	require.Contains(t, got, `{"type":"tool_result","tool_use_id":"toolu_2","content":[`+textBlock("R")+`]}`)
}

// An interrupted answer keeps its finished blocks and the shown text, but no call and no unsigned thinking.
func TestInterruptedAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		native []string
		shown  string
		want   string // content of the assistant's message; "" for none
	}{
		"text":           {[]string{signed, textBlock("one")}, "tw", signed + `,` + textBlock("one") + `,` + textBlock("tw")},
		"calls":          {[]string{textBlock("one"), useA, useB}, "", textBlock("one")},
		"unsigned":       {[]string{`{"type":"thinking","thinking":"hm"}`, textBlock("one")}, " \n", textBlock("one")},
		"only thinking":  {[]string{signed}, "", ""},
		"thinking, call": {[]string{signed, useA}, "", ""},
		"nothing":        {nil, "", ""},
		"blank":          {[]string{textBlock(`\n`)}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			th := begin(t)
			th.Message(wiretest.Text("hi"))
			th.Request()
			var raw []thread.Raw
			for _, n := range tc.native {
				raw = append(raw, thread.Raw{JSON: json.RawMessage(n)})
			}
			th.Aborted(thread.AnswerAborted{Cause: thread.CauseInterrupt, Native: raw, ShownText: tc.shown})
			th.Message(wiretest.Text("go on"))
			want := userHi + `,`
			if tc.want != "" {
				want += `{"role":"assistant","content":[` + tc.want + `]},`
			}
			require.Equal(t, want+`{"role":"user","content":[`+cutMark+`,`+textBlock("go on")+`]}`, messages(th))
			require.Empty(t, th.Problems())
		})
	}
}

// Any other end of an attempt leaves no trace: the same bytes go out again.
func TestOtherAbortsLeaveNothing(t *testing.T) {
	for _, cause := range []string{
		thread.CauseCrash, thread.CauseOverloaded, thread.CauseRateLimited, thread.CauseInvalid, thread.CauseAuth,
		thread.CauseNetwork, thread.CauseMalformed, thread.CauseShutdown,
	} {
		th := begin(t)
		th.Message(wiretest.Text("hi"))
		first := th.Request()
		th.Aborted(thread.AnswerAborted{Cause: cause, ShownText: "half", Native: []thread.Raw{{JSON: json.RawMessage(textBlock("x"))}}})
		second := th.Request()
		require.Equal(t, string(th.Bodies[first.Seq]), string(th.Bodies[second.Seq]))
		require.Equal(t, th.Tails[first.Seq].Bytes, th.Tails[second.Seq].Bytes)
	}
}

// A request never ends with the assistant and never begins with it.
func TestConversationKeepsItsForm(t *testing.T) {
	th := begin(t)
	gone := th.Message(wiretest.Text("gone"))
	th.Request()
	th.Answer(textBlock("ok"))
	got := messages(th)
	require.True(t, strings.HasSuffix(got, `,{"role":"user","content":[{"type":"text","text":"Continue."}]}`), got)

	th.Add(record.StepUndone, thread.StepUndone{From: gone.Seq, To: gone.Seq + 1})
	th.Begin(bare())
	got = messages(th)
	require.True(t, strings.HasPrefix(got, `{"role":"user","content":[{"type":"text","text":"[The beginning of this conversation was removed.]"}]},`+
		`{"role":"assistant"`), got)
}

// Thinking at the end of an answer is not sent: the provider refuses it there.
func TestTrailingThinkingIsLeftOut(t *testing.T) {
	th := begin(t)
	th.Message(wiretest.Text("hi"))
	th.Request()
	th.Answer(textBlock("ok"), signed, `{"type":"redacted_thinking","data":"ZA=="}`)
	th.Message(wiretest.Text("more"))
	require.Contains(t, messages(th), `{"role":"assistant","content":[`+textBlock("ok")+`]}`)
}

// What was undone is left out from the next epoch on; the epoch in which it was sent keeps its bytes.
func TestUndo(t *testing.T) {
	th := begin(t)
	th.Message(wiretest.Text("hi"))
	th.Request()
	th.Answer(textBlock("ok"))
	queued := th.Accept(wiretest.Text("queued"))
	from := th.Message(wiretest.Text("oops"))
	th.Request()
	last := th.Answer(textBlock("done"))
	th.Add(record.StepUndone, thread.StepUndone{From: queued.Seq, To: last.Seq})
	require.Contains(t, messages(th), "oops")
	_ = from
	th.Begin(bare())
	th.Place(queued)
	got := messages(th)
	require.NotContains(t, got, "oops")
	require.NotContains(t, got, "done")
	require.Contains(t, got, "queued", "it was accepted in the undone part and placed after it")
}

// An epoch that starts after an erasure is built without the entry; the one before cannot be rebuilt.
func TestErased(t *testing.T) {
	th := begin(t)
	th.Message(wiretest.Text("hi"))
	th.Request()
	answer := th.Answer(textBlock("the secret"), useA)
	result := th.Result(0, wiretest.Text("the secret too"))
	old := th.Request()
	th.Answer(textBlock("ok"))
	message := th.Message(wiretest.Text("secret three"))
	for _, seq := range []record.Seq{answer.Seq, result.Seq, message.Seq} {
		th.Erase(seq)
	}
	th.Begin(bare())
	th.Message(wiretest.Text("new"))
	require.Empty(t, th.Problems())
	require.NotContains(t, messages(th), "secret")

	var out bytes.Buffer
	b, err := builder.Open(t.Context(), th, th.Lines[1], &out)
	require.NoError(t, err)
	for _, e := range th.Lines[2:] {
		if e.Kind == record.RequestPrepared {
			_, err := b.Close()
			if e.Seq < old.Seq {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, wire.ErrUnprovable)
				return
			}
		}
		require.NoError(t, b.Add(t.Context(), e))
	}
}

// A message that was erased before it was placed takes no proof away until it is placed.
func TestErasedWhileWaiting(t *testing.T) {
	th := begin(t)
	waiting := th.Accept(wiretest.Text("secret"))
	th.Message(wiretest.Text("hi"))
	th.Request()
	th.Answer(textBlock("ok"))
	th.Erase(waiting.Seq)
	var out bytes.Buffer
	b, err := builder.Open(t.Context(), th, th.Lines[1], &out)
	require.NoError(t, err)
	for _, e := range th.Lines[2:] {
		require.NoError(t, b.Add(t.Context(), e))
	}
	_, err = b.Close()
	require.NoError(t, err)
	require.NoError(t, b.Add(t.Context(), th.Add(record.MessagePlaced, thread.MessagePlaced{Accepted: waiting.Seq})))
	_, err = b.Close()
	require.ErrorIs(t, err, wire.ErrUnprovable)
}

func TestOpenRefuses(t *testing.T) {
	th := wiretest.New(t)
	s := bare()
	s.Builder = "anthropic/1"
	_, err := builder.Open(t.Context(), th, th.Add(record.EpochStarted, s), &bytes.Buffer{})
	require.ErrorIs(t, err, wire.ErrUnknownBuilder)
	require.ErrorContains(t, err, "anthropic/1")

	th = wiretest.New(t)
	e := th.Add(record.EpochStarted, bare())
	_, err = builder.Open(t.Context(), th, e.Erase(7), &bytes.Buffer{})
	require.ErrorIs(t, err, wire.ErrUnprovable)
}

func TestCloseWithoutMessage(t *testing.T) {
	th := wiretest.New(t)
	b, err := builder.Open(t.Context(), th, th.Add(record.EpochStarted, bare()), &bytes.Buffer{})
	require.NoError(t, err)
	_, err = b.Close()
	require.ErrorIs(t, err, wire.ErrHistory)
}

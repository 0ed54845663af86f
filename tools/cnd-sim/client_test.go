package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/anthropic"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/thread"
)

// client is the model client of the runtime, dialling the simulator.
func client(t *testing.T, d daemon) *anthropic.Client {
	t.Helper()
	c := anthropic.New(anthropic.Options{
		Dial:        map[string]string{"https://api.anthropic.com": d.url},
		Key:         func(string) (string, error) { return "sk-canary", nil },
		IdleTimeout: 300 * time.Millisecond, HeaderTimeout: 300 * time.Millisecond,
	})
	t.Cleanup(c.Close)
	return c
}

func requestOf(body string) loop.Request {
	return loop.Request{Body: []byte(body), Epoch: thread.EpochStarted{
		Method: "POST", URL: "https://api.anthropic.com/v1/messages", Account: "anthropic:sim",
		Headers: [][2]string{{"anthropic-version", "2023-06-01"}, {"content-type", "application/json"}},
	}}
}

const everything = `{"model":"claude-opus-5-5","max_tokens":1000,%s"tools":[{"name":"bash","input_schema":{}}],"messages":[{"role":"user","content":"everything"}]}`

// What the client makes of a stream is what the provider answers without streaming, byte for byte.
func TestStreamEqualsAnswer(t *testing.T) {
	d := start(t, "--scenario", "../../testdata/scenarios/flaky.json")
	answer, err := client(t, d).Send(t.Context(), requestOf(strings.Replace(everything, "%s", `"stream":true,`, 1)), func(string, string) {})
	require.NoError(t, err)
	_, text := post(t, d.url+"/v1/messages", strings.Replace(everything, "%s", "", 1))
	var whole struct {
		Content    []json.RawMessage
		StopReason string `json:"stop_reason"`
		Usage      struct {
			Input  int64 `json:"input_tokens"`
			Output int64 `json:"output_tokens"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &whole))
	require.Len(t, answer.Native, len(whole.Content))
	for i := range whole.Content {
		if i == len(whole.Content)-1 { // a call: its id is the answer's own
			var a, b map[string]any
			require.NoError(t, json.Unmarshal(whole.Content[i], &a))
			require.NoError(t, json.Unmarshal(answer.Native[i], &b))
			delete(a, "id")
			delete(b, "id")
			require.Equal(t, a, b)
			continue
		}
		require.Equal(t, string(whole.Content[i]), string(answer.Native[i]))
	}
	require.Equal(t, whole.StopReason, answer.StopReason)
	require.Equal(t, whole.Usage.Output, *answer.Usage.Output)
	require.NotEmpty(t, answer.ProviderRequestID)
}

// Each fault of the simulator is what it says it is, as the client sees it, and the same request then gets its answer.
func TestFaultsAsTheClientSeesThem(t *testing.T) {
	d := start(t)
	c := client(t, d)
	body := strings.Replace(hello, `"max_tokens"`, `"stream":true,"max_tokens"`, 1)
	want, err := c.Send(t.Context(), requestOf(body), func(string, string) {})
	require.NoError(t, err)
	for _, tc := range []struct{ fault, cause string }{
		{`{"kind":"rate_limit","retry_after_s":60}`, thread.CauseRateLimited},
		{`{"kind":"overloaded"}`, thread.CauseOverloaded},
		{`{"kind":"server_error"}`, thread.CauseOverloaded},
		{`{"kind":"auth"}`, thread.CauseAuth},
		{`{"kind":"invalid"}`, thread.CauseInvalid},
		{`{"kind":"stall"}`, thread.CauseNetwork},
		{`{"kind":"stall","after":700}`, thread.CauseNetwork},
		{`{"kind":"reset"}`, thread.CauseNetwork},
		{`{"kind":"reset","after":700}`, thread.CauseNetwork},
		{`{"kind":"truncate","after":700}`, thread.CauseNetwork},
		{`{"kind":"malformed","after":700}`, thread.CauseMalformed},
		{`{"kind":"error_event"}`, thread.CauseOverloaded},
		{`{"kind":"error_event","after":700}`, thread.CauseOverloaded},
	} {
		status, text := post(t, d.url+"/sim/faults", tc.fault)
		require.Equal(t, 204, status, text)
		_, err := c.Send(t.Context(), requestOf(body), func(string, string) {})
		var failure *loop.ModelError
		require.ErrorAs(t, err, &failure, tc.fault)
		require.Equal(t, tc.cause, failure.Cause, "%s: %s", tc.fault, failure.Detail)
		if tc.cause == thread.CauseRateLimited {
			require.WithinDuration(t, time.Now().Add(time.Minute), failure.RetryAt, 30*time.Second)
		}
		got, err := c.Send(t.Context(), requestOf(body), func(string, string) {})
		require.NoError(t, err, "after %s", tc.fault)
		require.Equal(t, want.Native, got.Native)
		require.Equal(t, want.ProviderMessageID, got.ProviderMessageID)
	}
	status, _ := post(t, d.url+"/sim/faults", `{"kind":"slow","delay_ms":1}`)
	require.Equal(t, 204, status)
	short := strings.Replace(body, "1000", "3", 1)
	got, err := c.Send(t.Context(), requestOf(short), func(string, string) {})
	require.NoError(t, err, "a slow stream is still a stream")
	require.Equal(t, "max_tokens", got.StopReason)
}

// An interrupt in a slow story keeps what was shown.
func TestInterruptedStory(t *testing.T) {
	d := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var text strings.Builder
	body := `{"model":"m","max_tokens":5000,"stream":true,"messages":[{"role":"user","content":"a story"}]}`
	_, err := client(t, d).Send(ctx, requestOf(body), func(kind, piece string) {
		if kind == "text" {
			text.WriteString(piece)
			cancel()
		}
	})
	var failure *loop.ModelError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, thread.CauseInterrupt, failure.Cause)
	require.Equal(t, text.String(), failure.ShownText)
	require.Len(t, failure.Partial.Native, 1, "the thinking before it is kept")
}

// A tool input that is no JSON arrives as text.
func TestBrokenInput(t *testing.T) {
	d := start(t, "--scenario", "../../testdata/scenarios/flaky.json")
	body := strings.Replace(strings.Replace(everything, "%s", `"stream":true,`, 1), `"content":"everything"`, `"content":"broken input"`, 1)
	answer, err := client(t, d).Send(t.Context(), requestOf(body), func(string, string) {})
	require.NoError(t, err)
	require.Equal(t, `{"command": "ls`, answer.View[0].InputText)
	require.Contains(t, string(answer.Native[0]), `"input":{}`)
}

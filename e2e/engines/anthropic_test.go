// Package engines drives the vendors' own clients against the simulator (scripts/test-engines.sh), so that its wire
// format, and our model client's reading of it, are what those clients understand.
package engines

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/anthropic"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/thread"
)

// suite is a simulator and the SDK that talks to it.
type suite struct {
	t   *testing.T
	url string
}

// newSuite starts bin/cnd-sim with a scenario file ("" for its own).
func newSuite(t *testing.T, scenario string) *suite {
	t.Helper()
	bin := os.Getenv("CND_BIN")
	if bin == "" || os.Getenv("CND_ENGINES") == "" {
		t.Skip("run by scripts/test-engines.sh (make test-engines)")
	}
	args := []string{"--addr", "127.0.0.1:0", "--chunk-delay", "1ms", "--log-format", "json", "--ready-fd", "3"}
	if scenario != "" {
		args = append(args, "--scenario", scenario)
	}
	ready, write, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(filepath.Join(bin, "cnd-sim"), args...)
	cmd.Env = append(os.Environ(), "CONDENSATE_CONFIG_DIR="+t.TempDir())
	cmd.ExtraFiles = []*os.File{write}
	logs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.NoError(t, write.Close())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		io.Copy(io.Discard, logs)
		require.NoError(t, cmd.Wait())
	})
	newline, err := io.ReadAll(ready)
	require.NoError(t, err)
	require.Equal(t, "\n", string(newline), "the simulator is not ready")
	line, err := bufio.NewReader(logs).ReadBytes('\n')
	require.NoError(t, err)
	var entry struct{ Addr string }
	require.NoError(t, json.Unmarshal(line, &entry))
	return &suite{t, "http://" + entry.Addr}
}

// object is a JSON object whose values do not matter to Go.
type object = map[string]any

// outcome is what a job of client.mjs prints.
type outcome struct {
	Message json.RawMessage
	Events  []string
	Text    string
	Aborted bool
	Error   *struct {
		Name, Type, RequestID, RetryAfter, Message string
		Status                                     int
	}
}

// message is the part of a Message that is compared.
type message struct {
	ID          string
	Content     []json.RawMessage
	StopReason  string `json:"stop_reason"`
	Usage       usage
	Diagnostics json.RawMessage
}

type usage struct {
	Input  int64 `json:"input_tokens"`
	Output int64 `json:"output_tokens"`
	Read   int64 `json:"cache_read_input_tokens"`
	Write  int64 `json:"cache_creation_input_tokens"`
}

func (s *suite) run(job object) outcome {
	s.t.Helper()
	job["baseURL"] = s.url
	in, err := json.Marshal(job)
	require.NoError(s.t, err)
	cmd := exec.Command("node", filepath.Join(os.Getenv("CND_ENGINES"), "anthropic-sdk", "client.mjs"))
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(s.t, err, stderr.String())
	var o outcome
	require.NoError(s.t, json.Unmarshal(out, &o), "%s", out)
	return o
}

// answer runs a job that must succeed.
func (s *suite) answer(op string, params object) (message, outcome) {
	s.t.Helper()
	o := s.run(object{"op": op, "params": params})
	require.Nil(s.t, o.Error, "%+v", o.Error)
	var m message
	require.NoError(s.t, json.Unmarshal(o.Message, &m))
	return m, o
}

func (s *suite) fault(body string) {
	s.t.Helper()
	resp, err := http.Post(s.url+"/sim/faults", "application/json", strings.NewReader(body))
	require.NoError(s.t, err)
	defer resp.Body.Close()
	require.Equal(s.t, 204, resp.StatusCode)
}

// lastBody is the exact body of the newest request.
func (s *suite) lastBody() []byte {
	s.t.Helper()
	var list struct{ Requests []struct{ ID int64 } }
	require.NoError(s.t, json.Unmarshal(s.get("/sim/requests"), &list))
	require.NotEmpty(s.t, list.Requests)
	return s.get(fmt.Sprintf("/sim/requests?body=1&id=%d", list.Requests[len(list.Requests)-1].ID))
}

func (s *suite) get(path string) []byte {
	s.t.Helper()
	resp, err := http.Get(s.url + path)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return text
}

var tools = []object{{"name": "bash", "description": "Runs a command.", "input_schema": object{"type": "object", "properties": object{"command": object{"type": "string"}}}}}

func params(text string, more object) object {
	p := object{"model": "claude-opus-5-5", "max_tokens": 4096, "tools": tools, "messages": []object{{"role": "user", "content": text}}}
	for k, v := range more {
		p[k] = v
	}
	return p
}

const flaky = "../../testdata/scenarios/flaky.json"

// The SDK's streamed message, its message without streaming, and what our client makes of the same bytes, are one.
func TestAnthropicSDKReadsTheSameMessage(t *testing.T) {
	s := newSuite(t, flaky)
	for _, text := range []string{"everything", "hello"} {
		streamed, o := s.answer("stream", params(text, nil))
		require.Equal(t, []string{"message_start", "content_block_start"}, o.Events[:2])
		require.Equal(t, []string{"message_delta", "message_stop"}, o.Events[len(o.Events)-2:])
		body := s.lastBody()

		c := anthropic.New(anthropic.Options{
			Dial: map[string]string{"https://api.anthropic.com": s.url},
			Key:  func(string) (string, error) { return "sk-ant-test", nil },
		})
		defer c.Close()
		ours, err := c.Send(t.Context(), loop.Request{Body: body, Epoch: thread.EpochStarted{
			Method: "POST", URL: "https://api.anthropic.com/v1/messages", Account: "anthropic:sim",
			Headers: [][2]string{{"anthropic-version", "2023-06-01"}, {"content-type", "application/json"}},
		}}, func(string, string) {})
		require.NoError(t, err)
		require.Len(t, ours.Native, len(streamed.Content))
		for i := range ours.Native {
			require.JSONEq(t, string(streamed.Content[i]), string(ours.Native[i]))
		}
		require.Equal(t, streamed.ID, ours.ProviderMessageID)
		require.Equal(t, streamed.StopReason, ours.StopReason)
		require.Equal(t, streamed.Usage, usage{*ours.Usage.Input, *ours.Usage.Output, *ours.Usage.CacheRead, *ours.Usage.CacheWrite})

		whole, _ := s.answer("create", params(text, nil))
		require.Equal(t, len(streamed.Content), len(whole.Content))
		for i := range whole.Content {
			require.JSONEq(t, withoutID(t, streamed.Content[i]), withoutID(t, whole.Content[i]))
		}
		require.Equal(t, streamed.StopReason, whole.StopReason)
	}
}

// withoutID drops the id of a call, which depends on the body.
func withoutID(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var o object
	require.NoError(t, json.Unmarshal(raw, &o))
	delete(o, "id")
	text, err := json.Marshal(o)
	require.NoError(t, err)
	return string(text)
}

// A conversation with thinking and a tool goes on with the blocks as the SDK holds them, and reads the cache that it
// left behind; a changed system text is named as the reason of the miss.
func TestAnthropicSDKConverses(t *testing.T) {
	s := newSuite(t, flaky)
	more := object{
		"cache_control": object{"type": "ephemeral"}, "system": strings.Repeat("You are careful. ", 400),
		"thinking": object{"type": "enabled", "budget_tokens": 1024}, "diagnostics": object{"previous_message_id": nil},
	}
	first, _ := s.answer("stream", params("everything", more))
	require.Equal(t, "tool_use", first.StopReason)
	require.Positive(t, first.Usage.Write)
	var call struct{ ID string }
	require.NoError(t, json.Unmarshal(first.Content[len(first.Content)-1], &call))
	more["messages"] = []object{
		{"role": "user", "content": "everything"}, {"role": "assistant", "content": first.Content},
		{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": call.ID, "content": "a\né"}}},
	}
	more["diagnostics"] = object{"previous_message_id": first.ID}
	second, _ := s.answer("stream", params("", more))
	require.Equal(t, "end_turn", second.StopReason)
	require.Contains(t, string(second.Content[len(second.Content)-1]), `Done: a\né`)
	require.Equal(t, first.Usage.Write, second.Usage.Read)
	require.Equal(t, "null", string(second.Diagnostics))

	more["system"] = more["system"].(string) + "Very."
	more["diagnostics"] = object{"previous_message_id": second.ID}
	third, _ := s.answer("create", params("", more))
	require.Zero(t, third.Usage.Read)
	require.Contains(t, string(third.Diagnostics), `"system_changed"`)
}

// The SDK maps each failure to the class that it has for the real provider's.
func TestAnthropicSDKErrors(t *testing.T) {
	s := newSuite(t, "")
	for _, tc := range []struct {
		fault, op string
		name      string
		status    int
		kind      string
	}{
		{`{"kind":"rate_limit","retry_after_s":7}`, "create", "RateLimitError", 429, "rate_limit_error"},
		{`{"kind":"overloaded"}`, "create", "OverloadedError", 529, "overloaded_error"},
		{`{"kind":"server_error"}`, "create", "InternalServerError", 500, "api_error"},
		{`{"kind":"auth"}`, "create", "AuthenticationError", 401, "authentication_error"},
		{`{"kind":"invalid"}`, "create", "BadRequestError", 400, "invalid_request_error"},
		{`{"kind":"reset"}`, "create", "APIConnectionError", 0, ""},
		{`{"kind":"rate_limit"}`, "stream", "RateLimitError", 429, "rate_limit_error"},
		{`{"kind":"error_event","after":900}`, "stream", "APIError", 0, "overloaded_error"},
	} {
		s.fault(tc.fault)
		o := s.run(object{"op": tc.op, "params": params("hello", nil)})
		require.NotNil(t, o.Error, tc.fault)
		require.Equal(t, tc.name, o.Error.Name, "%s: %s", tc.fault, o.Error.Message)
		require.Equal(t, tc.status, o.Error.Status, tc.fault)
		require.Equal(t, tc.kind, o.Error.Type, tc.fault)
		if tc.status != 0 {
			require.NotEmpty(t, o.Error.RequestID, tc.fault)
		}
		if strings.Contains(tc.fault, "retry_after") {
			require.Equal(t, "7", o.Error.RetryAfter)
		}
	}
	for _, fault := range []string{`{"kind":"reset","after":900}`, `{"kind":"truncate","after":900}`, `{"kind":"malformed","after":900}`} {
		s.fault(fault)
		require.NotNil(t, s.run(object{"op": "stream", "params": params("hello", nil)}).Error, fault)
	}
	bad := s.run(object{"op": "create", "params": object{"model": "m", "max_tokens": 0, "messages": []object{{"role": "user", "content": "x"}}}})
	require.Equal(t, "BadRequestError", bad.Error.Name)
}

// The SDK retries what it retries with the real provider, and then gets its answer.
func TestAnthropicSDKRetries(t *testing.T) {
	s := newSuite(t, "")
	s.fault(`{"kind":"overloaded","count":2}`)
	o := s.run(object{"op": "stream", "params": params("hello", nil), "maxRetries": 2})
	require.Nil(t, o.Error, "%+v", o.Error)
	require.Equal(t, 3, strings.Count(string(s.get("/sim/requests")), `"body_sha256"`))
}

// An aborted stream ends at once, and the next request is answered.
func TestAnthropicSDKAborts(t *testing.T) {
	s := newSuite(t, "")
	o := s.run(object{"op": "abort", "params": params("tell me a story", nil)})
	require.True(t, o.Aborted)
	require.NotEmpty(t, o.Text)
	require.Less(t, len(o.Text), 1000)
	m, _ := s.answer("create", params("hello", nil))
	require.Equal(t, "end_turn", m.StopReason)
}

// The smaller routes.
func TestAnthropicSDKCountsAndLists(t *testing.T) {
	s := newSuite(t, "")
	o := s.run(object{"op": "count", "params": object{"model": "claude-opus-5-5", "messages": []object{{"role": "user", "content": "count me"}}}})
	require.Nil(t, o.Error, "%+v", o.Error)
	require.JSONEq(t, `{"input_tokens":9}`, string(o.Message))
	o = s.run(object{"op": "models"})
	require.Nil(t, o.Error, "%+v", o.Error)
	require.Contains(t, string(o.Message), "claude-opus-5-5")
}

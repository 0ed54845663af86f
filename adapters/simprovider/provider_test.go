package simprovider

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// canary is the credential of all tests: the provider must not show it.
const canary = "sk-ant-canary-0123456789"

type server struct {
	t *testing.T
	*httptest.Server
	provider *Provider
}

func serve(t *testing.T, o Options) *server {
	t.Helper()
	p := New(o)
	s := &server{t, httptest.NewServer(p), p}
	t.Cleanup(func() {
		p.Close()
		s.Server.Close()
	})
	return s
}

// do sends a request and returns status, headers and body.
func (s *server) do(method, path, body string, headers ...string) (int, http.Header, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(body))
	require.NoError(s.t, err)
	for i := 0; i < len(headers); i += 2 {
		if req.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := s.Client().Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, resp.Header, string(text)
}

func (s *server) ask(body string) (int, http.Header, string) {
	s.t.Helper()
	return s.do("POST", "/v1/messages", body, "x-api-key", canary, "anthropic-version", "2023-06-01")
}

// reply is a decoded message.
type reply struct {
	ID         string
	Content    []block
	StopReason string `json:"stop_reason"`
	Usage      struct {
		Input      int `json:"input_tokens"`
		Read       int `json:"cache_read_input_tokens"`
		Write      int `json:"cache_creation_input_tokens"`
		Output     int `json:"output_tokens"`
		CacheWrite struct {
			Short int `json:"ephemeral_5m_input_tokens"`
			Long  int `json:"ephemeral_1h_input_tokens"`
		} `json:"cache_creation"`
	}
	Diagnostics json.RawMessage
}

func (s *server) message(body string) reply {
	s.t.Helper()
	status, _, text := s.ask(body)
	require.Equal(s.t, 200, status, text)
	var m reply
	require.NoError(s.t, json.Unmarshal([]byte(text), &m))
	return m
}

// events parses a stream into its data lines.
func events(t *testing.T, text string) []map[string]any {
	t.Helper()
	var all []map[string]any
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	name := ""
	for lines.Scan() {
		if v, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			name = v
		}
		if v, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var e map[string]any
			require.NoError(t, json.Unmarshal([]byte(v), &e), v)
			require.Equal(t, name, e["type"])
			all = append(all, e)
		}
	}
	return all
}

const bashTool = `"tools":[{"name":"bash","input_schema":{"type":"object"}}]`

// The same body gets the same answer, streamed or not, and its parts in the order of the wire format.
func TestAnswersAreAFunctionOfTheBody(t *testing.T) {
	s := serve(t, Options{})
	body := bodyOf(`{"role":"user","content":"run echo hi"}`, bashTool)
	first, again := s.message(body), s.message(body)
	require.Equal(t, first, again)
	require.Equal(t, "tool_use", first.StopReason)
	require.Len(t, first.Content, 2)
	require.JSONEq(t, `{"command":"echo hi"}`, string(first.Content[1].Input))

	_, header, text := s.ask(bodyOf(`{"role":"user","content":"run echo hi"}`, bashTool, `"stream":true`))
	require.Equal(t, "text/event-stream; charset=utf-8", header.Get("Content-Type"))
	require.NotEmpty(t, header.Get("request-id"))
	require.Equal(t, "4000", header.Get("anthropic-ratelimit-requests-limit"))
	var order, input strings.Builder
	for _, e := range events(t, text) {
		fmt.Fprintln(&order, e["type"])
		if d, ok := e["delta"].(map[string]any); ok && d["partial_json"] != nil {
			input.WriteString(d["partial_json"].(string))
		}
	}
	require.Equal(t, "message_start\ncontent_block_start\nping\ncontent_block_delta\ncontent_block_stop\n"+
		"content_block_start\ncontent_block_delta\ncontent_block_delta\ncontent_block_stop\nmessage_delta\nmessage_stop\n", order.String())
	require.JSONEq(t, `{"command":"echo hi"}`, input.String())
}

// The whole conversation of the demo passes the provider's own checks.
func TestConversationGoesOn(t *testing.T) {
	for _, thinking := range []string{"", `"thinking":{"type":"enabled","budget_tokens":1024}`} {
		s := serve(t, Options{})
		more := []string{`"tools":[{"name":"write","input_schema":{}},{"name":"read","input_schema":{}},{"name":"grep","input_schema":{}},{"name":"edit","input_schema":{}},{"name":"bash","input_schema":{}}]`, `"cache_control":{"type":"ephemeral"}`}
		if thinking != "" {
			more = append(more, thinking)
		}
		require.Equal(t, []string{"write", "grep", "read", "edit", "bash"}, s.converse(`{"role":"user","content":"demo"}`, more))
	}
}

// converse answers all calls until the turn ends and returns the names of the tools.
func (s *server) converse(messages string, more []string) []string {
	s.t.Helper()
	var tools []string
	for range 20 {
		status, _, text := s.ask(bodyOf(messages, more...))
		require.Equal(s.t, 200, status, text)
		var m struct {
			Content    []json.RawMessage
			StopReason string `json:"stop_reason"`
		}
		require.NoError(s.t, json.Unmarshal([]byte(text), &m))
		content, _ := json.Marshal(m.Content)
		var results []string
		for _, raw := range m.Content {
			var b block
			require.NoError(s.t, json.Unmarshal(raw, &b))
			if b.Type == "tool_use" {
				tools = append(tools, b.Name)
				results = append(results, resultOf(b.ID))
			}
		}
		require.Equal(s.t, len(results) > 0, m.StopReason == "tool_use")
		if len(results) == 0 {
			return tools
		}
		messages += `,{"role":"assistant","content":` + string(content) + `},` + userOf(results...)
	}
	s.t.Fatal("the turn does not end")
	return nil
}

// Seeded turns end, are valid, and depend on seed and body alone.
func TestSeeded(t *testing.T) {
	more := []string{`"tools":[{"name":"bash","input_schema":{}},{"name":"edit","input_schema":{}},{"name":"mystery","input_schema":{}}]`}
	distinct := map[string]bool{}
	for seed := range uint64(30) {
		s := serve(t, Options{Seed: &seed})
		tools := s.converse(hello, more)
		require.LessOrEqual(t, len(tools), 3*maxSeededSteps)
		again := serve(t, Options{Seed: &seed})
		require.Equal(t, tools, again.converse(hello, more))
		distinct[fmt.Sprint(tools)] = true
	}
	require.Greater(t, len(distinct), 10, "seeds make a difference")
}

// An answer over max_tokens is cut, also in the middle of a call.
func TestMaxTokens(t *testing.T) {
	s := serve(t, Options{})
	m := s.message(strings.Replace(bodyOf(hello), "4096", "5", 1))
	require.Equal(t, "max_tokens", m.StopReason)
	require.Len(t, *m.Content[0].Text, 20)
	require.Equal(t, 5, m.Usage.Output)

	_, _, text := s.ask(strings.Replace(bodyOf(`{"role":"user","content":"run echo a long command that is cut"}`, bashTool, `"stream":true`), "4096", "12", 1))
	require.Contains(t, text, `"stop_reason":"max_tokens"`)
	require.NotContains(t, text, "that is cut")
}

// Who has no credential, no version, another method or another path is told so in the provider's form.
func TestDoor(t *testing.T) {
	s := serve(t, Options{Models: []string{"claude-opus-5-5"}})
	version := []string{"anthropic-version", "2023-06-01"}
	for _, tc := range []struct {
		method, path, body string
		headers            []string
		status             int
		kind, message      string
	}{
		{"POST", "/v1/messages", bodyOf(hello), version, 401, "authentication_error", "x-api-key header is required"},
		{"POST", "/v1/messages", bodyOf(hello), []string{"x-api-key", "k"}, 400, "invalid_request_error", "anthropic-version: header is required"},
		{"POST", "/v1/messages", bodyOf(hello), append([]string{"Origin", "https://evil.example", "x-api-key", "k"}, version...), 401, "authentication_error", "CORS requests are not allowed"},
		{"GET", "/v1/messages", "", append([]string{"x-api-key", "k"}, version...), 405, "invalid_request_error", "Method Not Allowed"},
		{"GET", "/v1/nope", "", nil, 404, "not_found_error", "Not Found"},
		{"GET", "/v1/models/nope", "", nil, 404, "not_found_error", "nope"},
		{"POST", "/v1/messages", strings.Replace(bodyOf(hello), "opus-5-5", "opus-9", 1), append([]string{"x-api-key", "k"}, version...), 404, "not_found_error", "model: claude-opus-9"},
		{"POST", "/v1/messages", strings.Repeat(" ", MaxBody+1), append([]string{"x-api-key", "k"}, version...), 413, "request_too_large", "Request exceeds the maximum size"},
		{"POST", "/v1/messages", `{"model":1}`, append([]string{"Authorization", "Bearer t"}, version...), 400, "invalid_request_error", "model: Input should be a valid value"},
	} {
		status, header, text := s.do(tc.method, tc.path, tc.body, tc.headers...)
		require.Equal(t, tc.status, status, text)
		var e struct {
			Type  string
			Error struct{ Type, Message string }
			ID    string `json:"request_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(text), &e))
		require.Equal(t, "error", e.Type)
		require.Equal(t, tc.kind, e.Error.Type)
		require.Contains(t, e.Error.Message, tc.message)
		require.Equal(t, header.Get("request-id"), e.ID)
	}
	open := serve(t, Options{Open: true})
	status, _, _ := open.do("POST", "/v1/messages", bodyOf(hello), version...)
	require.Equal(t, 200, status)
}

// The smaller routes.
func TestOtherRoutes(t *testing.T) {
	s := serve(t, Options{})
	_, _, text := s.do("GET", "/v1/models", "")
	require.Contains(t, text, `"has_more":false`)
	_, _, text = s.do("GET", "/v1/models/claude-opus-5-5", "")
	require.Contains(t, text, `"display_name"`)
	_, _, text = s.do("GET", "/health", "")
	require.JSONEq(t, `{"status":"ready"}`, text)
	_, _, text = s.do("POST", "/v1/messages/count_tokens", `{"model":"m","messages":[`+hello+`]}`, "x-api-key", "k", "anthropic-version", "2023-06-01")
	require.JSONEq(t, `{"input_tokens":8}`, text)
	status, _, _ := s.do("POST", "/v1/messages/count_tokens", `{"model":"m"}`, "x-api-key", "k", "anthropic-version", "2023-06-01")
	require.Equal(t, 400, status)
}

// Usage and diagnostics on the wire agree with the cache.
func TestCacheOnTheWire(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := serve(t, Options{Now: func() time.Time { return now }})
	first := s.message(talk(0, `"diagnostics":{"previous_message_id":null}`))
	require.Positive(t, first.Usage.Write)
	require.Equal(t, first.Usage.Write, first.Usage.CacheWrite.Short)
	require.Equal(t, "null", string(first.Diagnostics))
	second := s.message(talk(2, fmt.Sprintf(`"diagnostics":{"previous_message_id":%q}`, first.ID)))
	require.Equal(t, first.Usage.Write, second.Usage.Read)
	require.Equal(t, "null", string(second.Diagnostics))
	changed := s.message(talk(2, `"system":"other"`, fmt.Sprintf(`"diagnostics":{"previous_message_id":%q}`, second.ID)))
	require.Zero(t, changed.Usage.Read)
	require.Contains(t, string(changed.Diagnostics), `"system_changed"`)

	s = serve(t, Options{})
	s.addFault(`{"kind":"overloaded"}`)
	status, _, _ := s.ask(talk(0))
	require.Equal(t, 529, status)
	require.Zero(t, s.message(talk(0)).Usage.Read, "a refused request leaves nothing in the cache")
}

func (s *server) addFault(body string) {
	s.t.Helper()
	status, _, text := s.do("POST", "/sim/faults", body)
	require.Equal(s.t, 204, status, text)
}

// A client that goes away ends what hangs on purpose; so does Close.
func TestStallEnds(t *testing.T) {
	s := serve(t, Options{})
	s.addFault(`{"kind":"stall","count":2}`)
	for name, end := range map[string]func(cancel func()){
		"client": func(cancel func()) { cancel() }, "close": func(func()) { s.provider.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			sent := make(chan struct{})
			ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { close(sent) }})
			req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v1/messages", strings.NewReader(bodyOf(hello)))
			require.NoError(t, err)
			req.Header.Set("x-api-key", "k")
			req.Header.Set("anthropic-version", "2023-06-01")
			done := make(chan struct{})
			go func() {
				defer close(done)
				if resp, err := s.Client().Do(req); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			<-sent
			end(cancel)
			<-done
		})
	}
}

// What was received is shown, without any credential, and only to this machine.
func TestLog(t *testing.T) {
	s := serve(t, Options{})
	body := bodyOf(`{"role":"user","content":"log me"}`)
	s.ask(body)
	s.ask(body)
	s.do("POST", "/v1/messages", body, "Authorization", "Bearer "+canary, "anthropic-version", "2023-06-01", "Cookie", canary)
	_, _, text := s.do("GET", "/sim/requests", "")
	require.NotContains(t, text, canary)
	require.NotContains(t, text, "log me")
	var list struct{ Requests []LoggedRequest }
	require.NoError(t, json.Unmarshal([]byte(text), &list))
	require.Len(t, list.Requests, 3)
	require.Equal(t, 3, list.Requests[2].Attempt)
	require.Equal(t, 200, list.Requests[0].Status)
	require.Equal(t, len(body), list.Requests[0].BodyBytes)
	require.Equal(t, "2023-06-01", list.Requests[0].Headers["anthropic-version"])
	require.NotNil(t, list.Requests[0].Cache)
	_, _, text = s.do("GET", fmt.Sprintf("/sim/requests?body=1&id=%d", list.Requests[1].ID), "")
	require.Equal(t, body, text)
	status, _, _ := s.do("GET", "/sim/requests?body=1&id=99", "")
	require.Equal(t, 404, status)
	status, _, _ = s.do("GET", "/sim/requests", "", "Host", "evil.example")
	require.Equal(t, 404, status)
	s.do("DELETE", "/sim/requests", "")
	_, _, text = s.do("GET", "/sim/requests", "")
	require.JSONEq(t, `{"requests":[]}`, text)
}

// The log forgets the oldest first and keeps no more bodies than it says.
func TestLogIsBounded(t *testing.T) {
	l := requestLog{attempts: map[string]int{}}
	r := httptest.NewRequest("POST", "/v1/messages", nil)
	for range maxLogged + 5 {
		l.add(r, []byte("x"), "req", time.Unix(0, 0))
	}
	require.Len(t, l.entries, maxLogged)
	require.EqualValues(t, 6, l.entries[0].ID)
	require.Equal(t, maxLogged, l.bodies)
	big := make([]byte, maxBodies/2+1)
	l.add(r, big, "req", time.Unix(0, 0))
	l.add(r, big, "req", time.Unix(0, 0))
	require.LessOrEqual(t, l.bodies, maxBodies)
	_, ok := l.body(l.next)
	require.True(t, ok, "the newest body is kept")
}

// Faults wait for their request, strike as often as they should, and say what is wrong with them.
func TestFaultQueue(t *testing.T) {
	s := serve(t, Options{})
	ask := func(text string) int {
		status, _, _ := s.ask(bodyOf(fmt.Sprintf(`{"role":"user","content":%q}`, text)))
		return status
	}
	s.addFault(`{"kind":"overloaded","count":2,"text":"^only"}`)
	s.addFault(`{"kind":"server_error","skip":1}`)
	require.Equal(t, 200, ask("other"))
	require.Equal(t, 529, ask("only this"))
	require.Equal(t, 529, ask("only this"))
	require.Equal(t, 500, ask("only this"))
	require.Equal(t, 200, ask("only this"))
	s.addFault(`{"kind":"auth","count":-1}`)
	require.Equal(t, 401, ask("x"))
	require.Equal(t, 401, ask("x"))
	s.do("DELETE", "/sim/faults", "")
	require.Equal(t, 200, ask("x"))

	s.addFault(`{"kind":"rate_limit","retry_after_s":90}`)
	_, header, _ := s.ask(bodyOf(hello))
	require.Equal(t, "90", header.Get("retry-after"))
	require.Equal(t, "0", header.Get("anthropic-ratelimit-requests-remaining"))

	_, _, text := s.do("GET", "/sim/faults", "")
	for kind := range faultKinds {
		require.Contains(t, text, fmt.Sprintf("%q", kind))
	}
	for body, want := range map[string]string{
		`{"kind":"meteor"}`:                 "fault kind",
		`{"kind":"stall","after":-1}`:       "must not be negative",
		`{"kind":"stall","text":"("}`:       "fault text",
		`{"kind":"stall","unknown":1}`:      "unknown field",
		`not json`:                          "invalid character",
		`{"kind":"overloaded","count":-17}`: "must not be negative",
	} {
		status, _, text := s.do("POST", "/sim/faults", body)
		require.Equal(t, 400, status, body)
		require.Contains(t, text, want)
	}
}

package anthropic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/thread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// canary is the credential of all tests: it must not appear in anything that a client returns.
const canary = "sk-ant-canary-0123456789"

var testNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// provider serves handle and counts requests.
type provider struct {
	*httptest.Server
	hits atomic.Int64
}

func serve(t *testing.T, handle http.HandlerFunc) *provider {
	t.Helper()
	p := &provider{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.hits.Add(1)
		io.Copy(io.Discard, r.Body)
		w.Header().Set("request-id", "req_1")
		handle(w, r)
	}))
	t.Cleanup(p.Server.Close)
	return p
}

func clientOf(t *testing.T, p *provider, change ...func(*Options)) *Client {
	t.Helper()
	o := Options{
		Dial: map[string]string{"https://api.anthropic.com": p.URL},
		Key:  func(string) (string, error) { return canary, nil },
		Now:  func() time.Time { return testNow },
	}
	for _, f := range change {
		f(&o)
	}
	c := New(o)
	t.Cleanup(c.Close)
	return c
}

func request(body string) loop.Request {
	return loop.Request{Body: []byte(body), Epoch: thread.EpochStarted{
		Method: "POST", URL: "https://api.anthropic.com/v1/messages", Account: "anthropic:work",
		Headers: [][2]string{{"anthropic-version", "2023-06-01"}, {"content-type", "application/json"}},
	}}
}

// fail sends a request that must fail, and checks that the failure holds no credential.
func fail(t *testing.T, c *Client, ctx context.Context) *loop.ModelError {
	t.Helper()
	answer, err := c.Send(ctx, request("{}"), func(string, string) {})
	var failure *loop.ModelError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, loop.Answer{}, answer)
	require.NotContains(t, fmt.Sprintf("%+v %s %s", *failure, failure, failure.Partial.Native), canary)
	require.LessOrEqual(t, len(failure.Detail), MaxDetail+len("…"))
	return failure
}

func events(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	io.WriteString(w, text)
	http.NewResponseController(w).Flush()
}

func recorded(t *testing.T, name string) string {
	t.Helper()
	stream, err := os.ReadFile(filepath.Join(wireDir, name+".sse"))
	require.NoError(t, err)
	return string(stream)
}

// The body is posted as it is, with the pinned headers and the credential, and nothing that was not asked for.
func TestRequestOnTheWire(t *testing.T) {
	const body = "{\"a\":\t1.50,\"b\":\"\\u00e9\u2028\"}\n"
	var got []byte
	var header http.Header
	stream := recorded(t, "text")
	p := &provider{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		header = r.Header
		require.Equal(t, "/base/v1/messages?beta=true", r.URL.String())
		w.Header().Set("request-id", "req_7")
		events(w, stream)
	}))
	defer p.Server.Close()
	c := clientOf(t, p, func(o *Options) { o.Dial["https://api.anthropic.com"] = p.URL + "/base/" })
	require.Nil(t, c.transport.Proxy, "a proxy of the environment would see the request")
	r := request(body)
	r.Epoch.URL += "?beta=true"
	answer, err := c.Send(t.Context(), r, func(string, string) {})
	require.NoError(t, err)
	require.Equal(t, body, string(got))
	require.Equal(t, http.Header{
		"Anthropic-Version": {"2023-06-01"}, "Content-Type": {"application/json"}, "X-Api-Key": {canary},
		"User-Agent": {UserAgent}, "Content-Length": {fmt.Sprint(len(body))},
	}, header)
	require.Equal(t, "req_7", answer.ProviderRequestID)
	require.Equal(t, "msg_01Text", answer.ProviderMessageID)
	require.Equal(t, int64(30), *answer.Usage.Output)
}

// Connections are used again, also when the end of a stream comes a little after its last event: a turn of many
// requests connects once.
func TestConnectionIsReused(t *testing.T) {
	stream := recorded(t, "text")
	flushed, release := make(chan struct{}), make(chan struct{})
	var connections atomic.Int64
	p := &provider{Server: httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		events(w, stream)
		flushed <- struct{}{}
		<-release
	}))}
	p.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	p.Start()
	defer p.Server.Close()
	c := clientOf(t, p)
	for range 5 {
		_, err := c.Send(t.Context(), request("{}"), func(_, text string) {
			if text == "Hello" {
				<-flushed
				time.AfterFunc(5*time.Millisecond, func() { release <- struct{}{} })
			}
		})
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, connections.Load())
}

// Every refusal is sent once, classified, and described in the provider's words.
func TestRefusals(t *testing.T) {
	type want struct {
		cause, detail string
		retryIn       time.Duration // after testNow; 0: unknown
	}
	type header = map[string]string
	for name, tc := range map[string]struct {
		status int
		header header
		body   string
		want   want
	}{
		"400": {400, nil, `{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: Field required"}}`, want{thread.CauseInvalid, "400 invalid_request_error: max_tokens: Field required", 0}},
		"404": {404, nil, `{"type":"error","error":{"type":"not_found_error","message":"model: x"}}`, want{thread.CauseInvalid, "404 not_found_error: model: x", 0}},
		"413": {413, nil, `<html>`, want{thread.CauseInvalid, "413 Request Entity Too Large", 0}},
		"422": {422, nil, ``, want{thread.CauseInvalid, "422 Unprocessable Entity", 0}},
		"401": {401, nil, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, want{thread.CauseAuth, "401 authentication_error: invalid x-api-key", 0}},
		"402": {402, nil, ``, want{thread.CauseAuth, "402 Payment Required", 0}},
		"403": {403, nil, ``, want{thread.CauseAuth, "403 Forbidden", 0}},
		"500": {500, nil, ``, want{thread.CauseOverloaded, "500 Internal Server Error", 0}},
		"502": {502, nil, ``, want{thread.CauseOverloaded, "502 Bad Gateway", 0}},
		"503": {503, header{"Retry-After": "7"}, ``, want{thread.CauseOverloaded, "503 Service Unavailable", 7 * time.Second}},
		"503 unified": {503, header{
			"Anthropic-Ratelimit-Unified-Reset": fmt.Sprint(testNow.Add(time.Hour).Unix()),
		}, ``, want{thread.CauseOverloaded, "503 Service Unavailable", 0}},
		"529":              {529, nil, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, want{thread.CauseOverloaded, "529 overloaded_error: Overloaded", 0}},
		"redirect":         {302, header{"Location": "https://elsewhere.example/"}, ``, want{thread.CauseInvalid, "302: the provider redirects, and redirects are not followed", 0}},
		"204":              {204, nil, ``, want{thread.CauseMalformed, "204 No Content", 0}},
		"429 without when": {429, nil, ``, want{thread.CauseRateLimited, "429 Too Many Requests", 0}},
		"429 seconds":      {429, header{"Retry-After": "1.5", "Anthropic-Ratelimit-Requests-Reset": "2026-11-30T13:00:00Z", "Anthropic-Ratelimit-Requests-Remaining": "0"}, ``, want{thread.CauseRateLimited, "429 Too Many Requests", 1500 * time.Millisecond}},
		"429 date":         {429, header{"Retry-After": "Mon, 30 Nov 2026 12:01:00 GMT"}, ``, want{thread.CauseRateLimited, "429 Too Many Requests", time.Minute}},
		"429 nonsense":     {429, header{"Retry-After": "soon"}, ``, want{thread.CauseRateLimited, "429 Too Many Requests", 0}},
		"429 absurd":       {429, header{"Retry-After": "1e300"}, ``, want{thread.CauseRateLimited, "429 Too Many Requests", 0}},
		"429 latest of the used up": {429, header{
			"Anthropic-Ratelimit-Requests-Reset": "2026-11-30T12:00:10Z", "Anthropic-Ratelimit-Requests-Remaining": "0",
			"Anthropic-Ratelimit-Input-Tokens-Reset": "2026-11-30T12:00:20Z", "Anthropic-Ratelimit-Input-Tokens-Remaining": "0",
			"Anthropic-Ratelimit-Output-Tokens-Reset": "2026-11-30T12:00:30Z", "Anthropic-Ratelimit-Output-Tokens-Remaining": "5",
		}, ``, want{thread.CauseRateLimited, "429 Too Many Requests", 20 * time.Second}},
		"429 unified": {429, header{
			"Anthropic-Ratelimit-Unified-Reset":    fmt.Sprint(testNow.Add(time.Hour).Unix()),
			"Anthropic-Ratelimit-Unified-7d-Reset": fmt.Sprint(testNow.Add(96 * time.Hour).Unix()),
		}, ``, want{thread.CauseRateLimited, "429 Too Many Requests", time.Hour}},
		"echoed credential": {400, nil, `{"type":"error","error":{"type":"invalid_request_error","message":"bad key ` + canary + `\nand more"}}`, want{thread.CauseInvalid, "400 invalid_request_error: bad key [redacted] and more", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, func(w http.ResponseWriter, r *http.Request) {
				for k, v := range tc.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(tc.status)
				io.WriteString(w, tc.body)
			})
			got := fail(t, clientOf(t, p), t.Context())
			require.Equal(t, tc.want.cause, got.Cause)
			require.Equal(t, tc.want.detail, got.Detail)
			require.Equal(t, "req_1", got.ProviderRequestID)
			require.EqualValues(t, 1, p.hits.Load(), "sent more than once")
			if tc.want.retryIn == 0 {
				require.True(t, got.RetryAt.IsZero(), "%s", got.RetryAt)
				return
			}
			require.Equal(t, tc.want.retryIn, got.RetryAt.Sub(testNow))
		})
	}
}

// Errors inside a 200, and streams that break, with what was finished before.
func TestBrokenStreams(t *testing.T) {
	tools := recorded(t, "tools")
	cut := strings.Index(tools, "toolu_01A") // in the middle of the event that starts the third block
	for name, tc := range map[string]struct {
		handle        http.HandlerFunc
		cause, detail string
		finished      int
	}{
		"error event first": {func(w http.ResponseWriter, r *http.Request) {
			events(w, eventText("error", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`))
		}, thread.CauseOverloaded, "overloaded_error: Overloaded", 0},
		"error event in the middle": {func(w http.ResponseWriter, r *http.Request) {
			events(w, tools[:strings.LastIndex(tools[:cut], "event:")]+eventText("error", `{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`))
		}, thread.CauseRateLimited, "rate_limit_error: slow down", 2},
		"error of a new type": {func(w http.ResponseWriter, r *http.Request) {
			events(w, eventText("error", `{"type":"error","error":{"type":"moon_phase_error","message":"wrong moon"}}`))
		}, thread.CauseOverloaded, "moon_phase_error: wrong moon", 0},
		"ends too early": {func(w http.ResponseWriter, r *http.Request) {
			events(w, tools[:cut])
		}, thread.CauseNetwork, "the stream ended before the answer was complete", 2},
		"connection closed": {func(w http.ResponseWriter, r *http.Request) {
			events(w, tools[:cut])
			panic(http.ErrAbortHandler)
		}, thread.CauseNetwork, "unexpected EOF", 2},
		"connection reset": {func(w http.ResponseWriter, r *http.Request) {
			events(w, tools[:cut])
			conn, _, _ := http.NewResponseController(w).Hijack()
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}, thread.CauseNetwork, "connection reset by peer", 2},
		"no answer at all": {func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, thread.CauseNetwork, "EOF", 0},
		"wrong content length": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100000")
			events(w, tools[:cut])
		}, thread.CauseNetwork, "unexpected EOF", 2},
		"not an event stream": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<html>captive portal</html>")
		}, thread.CauseMalformed, `the answer is "text/html", not an event stream`, 0},
		"not JSON": {func(w http.ResponseWriter, r *http.Request) {
			events(w, opening+eventText("content_block_start", "{"))
		}, thread.CauseMalformed, "malformed stream: content_block_start: unexpected end of JSON input", 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, tc.handle)
			got := fail(t, clientOf(t, p), t.Context())
			require.Equal(t, tc.cause, got.Cause)
			require.Contains(t, got.Detail, tc.detail)
			require.Len(t, got.Partial.Native, tc.finished)
			require.EqualValues(t, 1, p.hits.Load(), "sent more than once")
			if tc.finished > 0 {
				require.Equal(t, int64(472), *got.Usage.Input)
				require.Nil(t, got.Usage.Output, "how much was written is not known before the end")
			}
		})
	}
}

// A provider that accepts and never answers, and one that falls silent, are given up.
func TestSilence(t *testing.T) {
	released := make(chan struct{})
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("speak") != "" {
			events(w, opening)
		}
		select {
		case <-r.Context().Done():
		case <-released:
		}
	})
	defer close(released)
	c := clientOf(t, p, func(o *Options) { o.HeaderTimeout, o.IdleTimeout = 20*time.Millisecond, 30*time.Millisecond })
	got := fail(t, c, t.Context())
	require.Equal(t, [2]string{thread.CauseNetwork, "no answer in time"}, [2]string{got.Cause, got.Detail})

	r := request("{}")
	r.Epoch.Headers = append(r.Epoch.Headers, [2]string{"speak", "1"})
	_, err := c.Send(t.Context(), r, func(string, string) {})
	var failure *loop.ModelError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, [2]string{thread.CauseNetwork, "the stream fell silent"}, [2]string{failure.Cause, failure.Detail})
}

// Bytes, and not events, keep a stream alive: one that drips is read to its end.
func TestSlowDrip(t *testing.T) {
	stream := recorded(t, "text")
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		ctl := http.NewResponseController(w)
		for i := range stream {
			io.WriteString(w, stream[i:i+1])
			ctl.Flush()
		}
	})
	_, err := clientOf(t, p).Send(t.Context(), request("{}"), func(string, string) {})
	require.NoError(t, err)

	synctest.Test(t, func(t *testing.T) {
		var fired atomic.Bool
		body := &watchedBody{limit: time.Minute, timer: time.AfterFunc(time.Minute, func() { fired.Store(true) })}
		body.r = readerFunc(func(p []byte) (int, error) {
			time.Sleep(59 * time.Second)
			return 1, nil
		})
		for range 5 {
			body.Read(make([]byte, 1))
		}
		require.False(t, fired.Load(), "each byte starts the time anew")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, fired.Load())
	})
}

// Over TLS and HTTP/2, as real providers speak, answers, breaks and silence look the same.
func TestHTTP2(t *testing.T) {
	stream := recorded(t, "tools")
	var protocol string
	p := &provider{Server: httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol = r.Proto
		switch r.Header.Get("mood") {
		case "break":
			events(w, stream[:1500])
			panic(http.ErrAbortHandler)
		case "silence":
			events(w, stream[:1500])
			<-r.Context().Done()
		default:
			events(w, stream)
		}
	}))}
	p.EnableHTTP2 = true
	p.StartTLS()
	defer p.Server.Close()
	c := clientOf(t, p, func(o *Options) { o.IdleTimeout = 500 * time.Millisecond })
	c.transport.TLSClientConfig = p.Client().Transport.(*http.Transport).TLSClientConfig
	answer, err := c.Send(t.Context(), request("{}"), func(string, string) {})
	require.NoError(t, err)
	require.Equal(t, "HTTP/2.0", protocol)
	require.Len(t, answer.Native, 4)
	for mood, detail := range map[string]string{"break": "stream error", "silence": "the stream fell silent"} {
		r := request("{}")
		r.Epoch.Headers = append(r.Epoch.Headers, [2]string{"mood", mood})
		_, err := c.Send(t.Context(), r, func(string, string) {})
		var failure *loop.ModelError
		require.ErrorAs(t, err, &failure)
		require.Equal(t, thread.CauseNetwork, failure.Cause)
		require.Contains(t, failure.Detail, detail)
		require.Len(t, failure.Partial.Native, 2)
	}
}

// An interrupt gives what was finished and what was shown of the rest.
func TestInterrupt(t *testing.T) {
	tools := recorded(t, "tools")
	upTo := func(mark string) string { return tools[:strings.Index(tools, mark)+len(mark)] }
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		events(w, upTo("\"text\":\"check.\"}}\n\n"))
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	var seen strings.Builder
	_, err := clientOf(t, p).Send(ctx, request("{}"), func(kind, text string) {
		if seen.WriteString(text); strings.HasSuffix(text, "check.") {
			cancel()
		}
	})
	var failure *loop.ModelError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, thread.CauseInterrupt, failure.Cause)
	require.Len(t, failure.Partial.Native, 1)
	require.Equal(t, "Let me check.", failure.ShownText)
	require.EqualValues(t, len("Let me check."), failure.TextBytes)
	require.Equal(t, "First I look,\nthen I act.Let me check.", seen.String())
	require.Equal(t, "req_1", failure.ProviderRequestID)

	again := fail(t, clientOf(t, p), ctx)
	require.Equal(t, thread.CauseInterrupt, again.Cause, "stopped before it was sent")
}

// Nothing is sent, and no credential leaves, when the request has no safe place to go.
func TestNothingIsSent(t *testing.T) {
	p := serve(t, func(w http.ResponseWriter, r *http.Request) { t.Error("sent") })
	for name, tc := range map[string]struct {
		change func(*Options)
		url    string
		cause  string
	}{
		"no key":             {func(o *Options) { o.Key = func(string) (string, error) { return "", nil } }, "", thread.CauseAuth},
		"key fails":          {func(o *Options) { o.Key = func(string) (string, error) { return "", errors.New("locked") } }, "", thread.CauseAuth},
		"key with a newline": {func(o *Options) { o.Key = func(string) (string, error) { return canary + "\nX: y", nil } }, "", thread.CauseAuth},
		"plain http":         {func(o *Options) { o.Dial = nil }, "http://api.anthropic.com/v1/messages", thread.CauseInvalid},
		"dialled plain http": {func(o *Options) { o.Dial["https://api.anthropic.com"] = "http://192.0.2.1" }, "", thread.CauseInvalid},
		"dialled nonsense":   {func(o *Options) { o.Dial["https://api.anthropic.com"] = "://" }, "", thread.CauseInvalid},
		"no URL":             {nil, "v1/messages", thread.CauseInvalid},
		"URL with a login":   {nil, "https://user:" + canary + "@api.anthropic.com/", thread.CauseInvalid},
		"nobody listens":     {func(o *Options) { o.Dial["https://api.anthropic.com"] = "http://127.0.0.1:1" }, "", thread.CauseNetwork},
	} {
		t.Run(name, func(t *testing.T) {
			c := clientOf(t, p, func(o *Options) {
				if tc.change != nil {
					tc.change(o)
				}
			})
			r := request("{}")
			if tc.url != "" {
				r.Epoch.URL = tc.url
			}
			_, err := c.Send(t.Context(), r, func(string, string) {})
			var failure *loop.ModelError
			require.ErrorAs(t, err, &failure)
			require.Equal(t, tc.cause, failure.Cause, failure.Detail)
			require.NotContains(t, fmt.Sprintf("%+v", *failure), canary)
		})
	}
}

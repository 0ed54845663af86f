package httpapi

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// TestRoutesAreDocumented holds docs/API.md and the routes against each other.
func TestRoutesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/API.md")
	require.NoError(t, err)
	var documented, served []string
	for _, heading := range regexp.MustCompile("(?m)^### `((?:GET|POST) [^`]+)`$").FindAllSubmatch(text, -1) {
		documented = append(documented, string(heading[1]))
	}
	for _, r := range (&api{}).routes() {
		served = append(served, r.method+" "+r.path)
	}
	require.ElementsMatch(t, served, documented)
	for _, code := range []string{"bad-key", "foreign-host", "foreign-origin", "no-such-route", "method-not-allowed",
		"wrong-content-type", "body-broke-off", "body-too-large", "malformed-request", "message-too-large", "too-many-items", "invalid-id"} {
		require.Contains(t, string(text), "`"+code+"`")
	}
	for _, class := range fault.Classes() {
		require.Contains(t, string(text), "`"+class.String()+"`")
	}
}

// TestRoutes asks each route once for what it is there.
func TestRoutes(t *testing.T) {
	id := string(threadN(1))
	for _, c := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"GET", "/health", "", 200, `{"ready":true,"version":"v0.1.0","isolation":"none"}`},
		{"POST", "/v1/threads", `{"cwd":"/w"}`, 201, `{"id":"` + id + `"}`},
		{"POST", "/v1/threads/" + id + "/messages", `{"content":"hi"}`, 202, `{"seq":7,"state":"accepted"}`},
		{"POST", "/v1/threads/" + id + "/interrupt", `{"id":"stop-1"}`, 202, `{"seq":7,"state":"accepted"}`},
		{"POST", "/v1/threads/" + id + "/resume", "", 202, `{"seq":7,"state":"accepted"}`},
		{"POST", "/v1/threads/" + id + "/resume", "{}", 202, `{"seq":7,"state":"accepted"}`},
		{"POST", "/v1/threads/" + id + "/approvals/12.3", `{"verdict":"deny","reason":"no"}`, 202, `{"seq":7,"state":"accepted"}`},
		{"POST", "/v1/reindex", "", 200, `{"threads":3}`},
		{"GET", "/v1/threads/" + id + "/export", "", 200, "export of " + id},
	} {
		b := newBed(t)
		answer := b.ask(c.method, c.path, c.body, nil)
		require.Equal(t, c.status, answer.status, answer.text)
		require.Equal(t, c.answer+"\n", answer.text)
		require.Equal(t, "no-store", answer.header.Get("Cache-Control"))
	}
	b := newBed(t)
	b.ask("POST", "/v1/threads/"+id+"/approvals/12.3", `{"verdict":"deny","reason":"no"}`, nil)
	b.ask("POST", "/v1/threads/"+id+"/interrupt", `{"id":"stop-1"}`, nil)
	require.Equal(t, []string{"answer " + id + " 12.3 deny owner no", "interrupt " + id + " owner stop-1"}, b.asked)
	require.Equal(t, "stream of "+id+" after=3", b.ask("GET", "/v1/threads/"+id+"/follow?after=3", "", nil).text)
}

// TestNotReady says so in status and body.
func TestNotReady(t *testing.T) {
	b := newBed(t)
	b.err = record.ErrReadOnly
	answer := b.ask("GET", "/health", "", nil)
	require.Equal(t, 503, answer.status)
	require.Contains(t, answer.text, `"ready":false`)
}

// TestWrongRoutes are answered in JSON as all failures are.
func TestWrongRoutes(t *testing.T) {
	b := newBed(t)
	id := string(threadN(1))
	for _, c := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"GET", "/", 404, "no-such-route", ""},
		{"GET", "/v1/threads/" + id + "/nothing", 404, "no-such-route", ""},
		{"POST", "/v1/threads/" + id + "/fork", 404, "no-such-route", ""},
		{"POST", "/v1/threads/" + id + "/undo", 404, "no-such-route", ""},
		{"POST", "/v1/threads/" + id + "/archive", 404, "no-such-route", ""},
		{"POST", "/v1/threads/" + id + "/erase", 404, "no-such-route", ""},
		{"DELETE", "/v1/threads/" + id, 405, "method-not-allowed", "GET"},
		{"PUT", "/v1/threads", 405, "method-not-allowed", "GET, POST"},
		{"GET", "/v1/threads/" + id + "/messages", 405, "method-not-allowed", "POST"},
		{"GET", "/v1/threads/thr_1", 400, "invalid-id", ""},
		{"GET", "/v1/threads/" + string(threadN(2)), 404, "no-such-thread", ""},
		{"GET", "/v1/threads/" + string(threadN(2)) + "/entries", 404, "no-such-thread", ""},
		{"GET", "/v1/threads/" + id + "?x=1", 400, "malformed-request", ""},
	} {
		answer := b.ask(c.method, c.path, "", nil)
		require.Equal(t, c.status, answer.status, c.path)
		_, code := answer.code(t)
		require.Equal(t, c.code, code, c.path)
		require.Equal(t, c.allow, answer.header.Get("Allow"))
	}
	answer := b.ask("POST", "/v1/threads/"+id+"/approvals/12", `{"verdict":"deny"}`, nil)
	_, code := answer.code(t)
	require.Equal(t, "malformed-request", code)
	require.Empty(t, b.asked)
}

// TestThreadList pages by id.
func TestThreadList(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct {
		query  string
		status int
		first  int
		n      int
		more   bool
	}{
		{"", 200, 0, 10, false},
		{"?limit=4", 200, 0, 4, true},
		{"?limit=4&after=" + string(threadN(3)), 200, 4, 4, true},
		{"?limit=4&after=" + string(threadN(5)), 200, 6, 4, false},
		{"?after=" + string(threadN(9)), 200, 0, 0, false},
		{"?limit=0", 400, 0, 0, false},
		{"?limit=1001", 400, 0, 0, false},
		{"?limit=x", 400, 0, 0, false},
		{"?limit=1&limit=2", 400, 0, 0, false},
		{"?after=thr_", 400, 0, 0, false},
	} {
		answer := b.ask("GET", "/v1/threads"+c.query, "", nil)
		require.Equal(t, c.status, answer.status, answer.text)
		if c.status != 200 {
			continue
		}
		page := decodeAs[struct {
			Threads []thread.Summary
			More    bool
		}](t, answer.text)
		require.NotNil(t, page.Threads, "an empty list is []")
		require.Len(t, page.Threads, c.n)
		require.Equal(t, c.more, page.More)
		if c.n > 0 {
			require.Equal(t, threadN(c.first), page.Threads[0].ID)
		}
	}
}

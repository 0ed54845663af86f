package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

func decodeAs[T any](t *testing.T, text string) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

var png = "\x89PNG\x0d\x0a\x1a\x0a rest"

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// TestMalformedBodies are refused by the place of what is wrong, and never reach the loop.
func TestMalformedBodies(t *testing.T) {
	messages, threads := "/v1/threads/"+string(threadN(1))+"/messages", "/v1/threads"
	interrupt, approval := "/v1/threads/"+string(threadN(1))+"/interrupt", "/v1/threads/"+string(threadN(1))+"/approvals/1.0"
	for _, c := range []struct{ path, body, says string }{
		{messages, ` `, "body: is empty"},
		{messages, `[]`, "body: must be an object"},
		{messages, `"hi"`, "body: must be an object"},
		{messages, `{"content":"hi"`, "body: not JSON at byte 15"},
		{messages, `{"content":"hi"} x`, "body: not JSON at byte 18"},
		{messages, `{"content":"hi"}{}`, "body: not JSON at byte 17"},
		{messages, "{\"content\":\"\xff\"}", "body: not UTF-8 at byte 12"},
		{messages, "{\"content\":\"h\ni\"}", "body: not JSON at byte 14"},
		{messages, `{}`, "content: is missing"},
		{messages, `{"content":"hi","content":"ho"}`, `body: field "content" stands there twice`},
		{messages, `{"content":"hi","Mode":"queue"}`, `body: unknown field "Mode"; it takes id, mode, content`},
		{messages, `{"content":"hi","extra":1}`, `body: unknown field "extra"`},
		{messages, `{"content":null}`, "content: must be an array"},
		{messages, `{"content":7}`, "content: must be an array"},
		{messages, `{"content":""}`, "content: is blank"},
		{messages, `{"content":" \n\t"}`, "content: is blank"},
		{messages, `{"content":[]}`, "content: is empty"},
		{messages, `{"content":["hi"]}`, "content[0]: must be an object"},
		{messages, `{"content":[{"text":"hi"}]}`, "content[0].type: is missing"},
		{messages, `{"content":[{"type":"tool_call"}]}`, `content[0].type: "tool_call" is not one of text, image`},
		{messages, `{"content":[{"type":"text"}]}`, "content[0].text: is missing"},
		{messages, `{"content":[{"type":"text","text":"a"},{"type":"text","text":7}]}`, "content[1].text: must be a string"},
		{messages, `{"content":[{"type":"text","text":"a"},{"type":"text","text":""}]}`, "content[1].text: is blank"},
		{messages, `{"content":[{"type":"text","text":"a","text":"b"}]}`, `content[0]: field "text" stands there twice`},
		{messages, `{"content":[{"type":"text","text":"a","blob":"sha256:00"}]}`, `content[0]: unknown field "blob"`},
		{messages, `{"content":[{"type":"text","text":"a","data":""}]}`, "content[0]: a block of type text takes text only"},
		{messages, `{"content":[{"type":"text","text":"\ud83d"}]}`, "content[0].text: has half of a surrogate pair"},
		{messages, `{"content":[{"type":"text","text":"\ude00\ud83d"}]}`, "content[0].text: has half of a surrogate pair"},
		{messages, `{"content":[{"type":"text","text":"\ud83d\u0041"}]}`, "content[0].text: has half of a surrogate pair"},
		{messages, `{"content":[{"type":"image","media_type":"image/png"}]}`, "content[0].data: is missing"},
		{messages, `{"content":[{"type":"image","data":"aa"}]}`, "content[0].media_type: is missing"},
		{messages, `{"content":[{"type":"image","media_type":"image/bmp","data":""}]}`, `content[0].media_type: "image/bmp" is not one of`},
		{messages, `{"content":[{"type":"image","media_type":"image/png","data":"a b"}]}`, "content[0].data: not base64"},
		{messages, `{"content":[{"type":"image","media_type":"image/png","data":"` + b64("GIF89a...") + `"}]}`, "content[0].data: is image/gif, media_type says image/png"},
		{messages, `{"content":"hi","mode":"now"}`, `mode: "now" is not one of queue, steer, start-if-idle, reject`},
		{messages, `{"content":"hi","mode":1}`, "mode: must be a string"},
		{messages, `{"content":"hi","id":"msg_1"}`, `id: "msg_1" is not msg_ and 26 of`},
		{messages, `{"content":"hi","id":""}`, `id: "" is not msg_ and 26 of`},
		{messages, `{"content":"hi","id":null}`, "id: must be a string"},
		{threads, `{}`, "cwd: an absolute path is needed"},
		{threads, `{"cwd":"work"}`, "cwd: an absolute path is needed"},
		{threads, `{"cwd":"/w","id":"thr_x"}`, `id: "thr_x" is not thr_ and 26 of`},
		{threads, `{"cwd":"/w","allow":"bash"}`, "allow: must be an array"},
		{threads, `{"cwd":"/w","allow":["bash",1]}`, "allow[1]: must be a string"},
		{threads, `{"cwd":"/w","allow":[""]}`, "allow[0]: is empty"},
		{threads, `{"cwd":"/w","resume":"never"}`, `resume: "never" is not one of auto, ask`},
		{threads, `{"cwd":"/w","title":"` + strings.Repeat("t", MaxName+1) + `"}`, "title: over 256 bytes"},
		{threads, `{"cwd":"/w","isolation":"none"}`, `unknown field "isolation"`},
		{interrupt, `{}`, "id: 1 to 256 of"},
		{interrupt, `{"id":"a b"}`, "id: 1 to 256 of"},
		{approval, `{}`, "verdict: is missing"},
		{approval, `{"verdict":"ask"}`, `verdict: "ask" is not one of allow, deny`},
		{approval, `{"verdict":"allow","reason":"` + strings.Repeat("r", MaxReason+1) + `"}`, "reason: over 4096 bytes"},
	} {
		b := newBed(t)
		answer := b.ask("POST", c.path, c.body, nil)
		require.Equal(t, 400, answer.status, "%s: %s", c.body, answer.text)
		class, code := answer.code(t)
		require.Equal(t, "invalid malformed-request", class+" "+code)
		require.Contains(t, decodeAs[errorBody](t, answer.text).Error.Message, c.says, c.body)
		require.Empty(t, b.asked)
		require.Zero(t, b.created)
	}
}

// TestBodiesHaveTypesAndLimits refuses by 415 and 413 before anything is decoded.
func TestBodiesHaveTypesAndLimits(t *testing.T) {
	path := "/v1/threads/" + string(threadN(1))
	big := func(n int) string { return `{"content":"` + strings.Repeat("x", n) + `"}` }
	contentType := func(s string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Content-Type", s) }
	}
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	for _, c := range []struct {
		path, body string
		change     func(*http.Request)
		status     int
		code       string
	}{
		{path + "/messages", `{"content":"hi"}`, contentType("application/json; charset=UTF-8"), 202, ""},
		{path + "/messages", `{"content":"hi"}`, contentType("text/plain"), 415, "wrong-content-type"},
		{path + "/messages", `{"content":"hi"}`, contentType(""), 415, "wrong-content-type"},
		{path + "/messages", `{"content":"hi"}`, contentType("application/x-www-form-urlencoded"), 415, "wrong-content-type"},
		{path + "/messages", `{"content":"hi"}`, contentType("application/json; charset=latin1"), 415, "wrong-content-type"},
		{path + "/messages", `{"content":"hi"}`, func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, 415, "wrong-content-type"},
		{path + "/messages", big(MaxMessageBody), nil, 413, "body-too-large"},
		{path + "/messages", big(MaxMessageBody), chunked, 413, "body-too-large"},
		{path + "/messages", `{"content":[` + strings.Repeat(`{"type":"text","text":"a"},`, loop.MaxBlocks) + `{"type":"text","text":"a"}]}`, nil, 413, "too-many-items"},
		{path + "/interrupt", big(MaxBody), nil, 413, "body-too-large"},
		{path + "/resume", `{"id":"x"}`, nil, 413, "body-too-large"},
		{"/v1/threads", big(MaxBody), chunked, 413, "body-too-large"},
		{"/v1/import", "line\n", nil, 415, "wrong-content-type"},
	} {
		b := newBed(t)
		answer := b.ask("POST", c.path, c.body, c.change)
		require.Equal(t, c.status, answer.status, answer.text)
		if c.code != "" {
			_, code := answer.code(t)
			require.Equal(t, c.code, code, answer.text)
			require.Empty(t, b.asked)
		}
	}
	b := newBed(t)
	require.Contains(t, b.ask("POST", path+"/messages", big(MaxMessageBody), nil).text, "over 33554432 bytes (MaxMessageBody)")
}

// TestMessage shows what the loop gets of a message.
func TestMessage(t *testing.T) {
	long := strings.Repeat("long ", record.InlineLimit)
	hostile := "\u2028\x00<&>😀\ufffd"
	image := record.NewBlob([]byte(png))
	for _, c := range []struct {
		name, body string
		want       loop.Message
	}{
		{"shorthand", `{"content":"hi"}`,
			loop.Message{Mode: "queue", Content: []thread.Block{{Type: "text", Text: "hi"}}}},
		{"hostile text", ` {"mode":"steer","content":"\u2028\u0000<&>\ud83d\ude00` + "\ufffd" + `"} `,
			loop.Message{Mode: "steer", Content: []thread.Block{{Type: "text", Text: hostile}}}},
		{"id and blocks", `{"id":"msg_00000000000000000000000001","content":[{"type":"text","text":"look"},` +
			`{"type":"image","media_type":"image/png","data":"` + b64(png) + `"},{"data":"` + b64(png) + `","media_type":"image/png","type":"image"}]}`,
			loop.Message{ID: "msg_00000000000000000000000001", Mode: "queue", Blobs: []record.Blob{image}, Content: []thread.Block{
				{Type: "text", Text: "look"}, {Type: "image", MediaType: "image/png", Blob: image.Ref()}, {Type: "image", MediaType: "image/png", Blob: image.Ref()}}}},
		{"long text", `{"content":[{"type":"text","text":"first"},{"type":"text","text":"` + long + `"},{"type":"text","text":"last"}]}`,
			loop.Message{Mode: "queue", Content: []thread.Block{
				{Type: "text", Text: "first"}, {Type: "text", Text: long}, {Type: "text", Text: "last"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			answer := b.ask("POST", "/v1/threads/"+string(threadN(1))+"/messages", c.body, nil)
			require.Equal(t, 202, answer.status, answer.text)
			c.want.By = "owner"
			require.Equal(t, c.want, b.submitted)
		})
	}
}

// TestNewThread shows what the owner's configuration gets to complete.
func TestNewThread(t *testing.T) {
	b := newBed(t)
	answer := b.ask("POST", "/v1/threads", `{"id":"thr_00000000000000000000000001","title":"T","cwd":"/w","model":"m","account":"a:b","allow":["bash"],"resume":"ask"}`, nil)
	require.Equal(t, 201, answer.status, answer.text)
	require.Equal(t, "/v1/threads/"+string(threadN(1)), answer.header.Get("Location"))
	require.Equal(t, loop.NewThread{ID: threadN(1), Created: thread.Created{Title: "T", Cwd: "/w", Allow: []string{"bash"}, Resume: "ask"},
		Epoch: thread.EpochStarted{Model: "m", Account: "a:b"}}, b.created)
}

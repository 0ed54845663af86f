package httpapi

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// FuzzRequests feeds any bytes to the decoders of all bodies. Whatever they take must be sound: valid UTF-8, fields
// that encoding/json reads the same, content that an entry can hold. Whatever they refuse is the client's fault.
func FuzzRequests(f *testing.F) {
	for _, seed := range []string{
		`{"id":"msg_00000000000000000000000001","mode":"steer","content":"hi"}`,
		`{"content":[{"type":"text","text":"a\ud83d\ude00"},{"type":"image","media_type":"image/png","data":"` + b64(png) + `"}]}`,
		`{"id":"thr_00000000000000000000000001","title":"t","cwd":"/w","model":"m","account":"a","allow":["bash"],"resume":"ask"}`,
		`{"id":"stop-1"}`, `{"verdict":"allow","reason":"fine"}`, `{"verdict":"deny","verdict":"allow"}`, `{"content":"\udc00"}`,
		"{\"content\":\"\xc3\x28\"}", `{"content":"x"}}`, `{"CONTENT":"x"}`, `null`, ``, `[[[[`, `{"content":{"content":{}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := decodeMessage(body)
		sound(t, body, err)
		if err == nil {
			text := thread.Encode(thread.MessageAccepted{Content: m.Content, Mode: m.Mode, ID: m.ID})
			if len(m.Content) == 0 || len(text) > record.MaxLine-1000 {
				t.Fatalf("content of %d blocks, %d bytes", len(m.Content), len(text))
			}
			if err := record.CheckBody(text); err != nil {
				t.Fatalf("not fit for an entry: %v", err)
			}
			var plain struct{ Content json.RawMessage }
			if err := json.Unmarshal(body, &plain); err != nil || plain.Content == nil {
				t.Fatalf("encoding/json does not read it: %v", err)
			}
		}
		r, err := decodeThread(body)
		sound(t, body, err)
		if err == nil && (!strings.HasPrefix(r.Cwd, "/") || !utf8.ValidString(r.Title)) {
			t.Fatalf("%+v", r)
		}
		_, err = decodeInterrupt(body)
		sound(t, body, err)
		a, err := decodeAnswer(body)
		sound(t, body, err)
		if err == nil {
			var plain struct{ Verdict, Reason string }
			if json.Unmarshal(body, &plain) != nil || plain.Verdict != a.Verdict || plain.Reason != a.Reason {
				t.Fatalf("%s read as %+v", body, a)
			}
		}
	})
}

func sound(t *testing.T, body []byte, err error) {
	t.Helper()
	if err == nil && !(utf8.Valid(body) && json.Valid(body)) {
		t.Fatalf("took %q", body)
	}
	if err == nil {
		return
	}
	if class := fault.ClassOf(err); class != fault.Invalid && class != fault.TooLarge {
		t.Fatalf("%v is of class %v", err, class)
	}
}

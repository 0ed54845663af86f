package anthropic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/builder"
	"condensate.dev/cnd/core/wire/wiretest"
)

const golden = "../../../testdata/requests"

var update = flag.Bool("update", false, "write the golden files that do not exist; existing ones are frozen")

// stories are the threads of the golden files.
var stories = map[string]func(*wiretest.Thread){
	"tools": func(th *wiretest.Thread) {
		s := wiretest.Epoch()
		s.Thinking = json.RawMessage(`{"type":"adaptive"}`)
		s.Cache = thread.Cache{TTL: "1h", Diagnostics: true}
		th.Begin(s)
		th.Message(wiretest.Text("list the files"))
		th.Request()
		th.Answer(signed, textBlock("I look."), useA, useB)
		th.Result(1, wiretest.Text("b\n"))
		th.Message(wiretest.Text("quick"))
		th.Add(record.ToolUnknown, thread.ToolUnknown{Call: th.Call(0), Cause: "crash", Partial: "a"})
		th.Request()
		th.Aborted(thread.AnswerAborted{Cause: thread.CauseOverloaded})
		th.Request()
		th.Answer(`{"type":"redacted_thinking","data":"ZGF0YQ=="}`, textBlock("done"))
		th.Message(wiretest.Text("thanks"), thread.Block{Type: "image", MediaType: "image/png", Blob: th.Keep(pixel)})
		th.Request()
	},
	"interrupt": func(th *wiretest.Thread) {
		th.Begin(wiretest.Epoch())
		th.Message(wiretest.Text("tell me a story"))
		th.Request()
		th.Aborted(thread.AnswerAborted{
			Cause: thread.CauseInterrupt, ShownText: "Once upon", TextBytes: 9,
			Native: []thread.Raw{{JSON: json.RawMessage(signed)}, {JSON: json.RawMessage(textBlock("Yes."))}, {JSON: json.RawMessage(useA)}},
		})
		th.Message(wiretest.Text("a shorter one"))
		th.Request()
	},
	"hostile": func(th *wiretest.Thread) {
		s := wiretest.Epoch()
		s.System = []string{"\u2028\x00\x1f\x7f\"\\/<&>\U0001f600\ufffd"}
		th.Begin(s)
		for _, text := range hostile {
			th.Message(wiretest.Text(text), thread.Block{Type: "text", Blob: th.Keep([]byte(text))})
		}
		e := th.Request()
		th.Add(record.AnswerFinished, thread.AnswerFinished{
			Request: e.Seq, Attempt: 1, View: []thread.Block{{Type: "tool_call", Call: fmt.Sprintf("%d.0", e.Seq)}},
			Native: []thread.Raw{
				{JSON: json.RawMessage(`{"type":"text","text":"\u2028\ud83d\ude00\/","n":[1.0,1e400,-0]}`)},
				{Text: `{"type":"tool_use","id":"toolu_1","name":"\ud800","input":{"a":1,"a":2}}`},
			},
		})
		th.Add(record.ToolFinished, thread.ToolFinished{Call: fmt.Sprintf("%d.0", e.Seq), Content: []thread.Block{wiretest.Text(hostile[0])}})
		th.Add(record.NoteInjected, thread.NoteInjected{Text: hostile[0]})
		th.Request()
	},
	"breakpoints": func(th *wiretest.Thread) {
		th.Begin(wiretest.Epoch())
		th.Message(wiretest.Text("hi"))
		th.Request()
		for range 4 {
			th.Answer(textBlock("ok"))
			th.Message(texts9(25)...)
			th.Request()
		}
	},
	"epochs": func(th *wiretest.Thread) {
		th.Begin(wiretest.Epoch())
		th.Message(wiretest.Text("hi"), wiretest.Text(" "))
		th.Repair(th.Problems()[0])
		th.Request()
		th.Answer(textBlock("hello"))
		gone := th.Message(wiretest.Text("my password is x"))
		th.Request()
		th.Answer(textBlock("oh"), useA)
		th.Result(0, wiretest.Text("a"))
		undo := th.Message(wiretest.Text("oops"))
		th.Request()
		last := th.Answer(textBlock("done"))
		th.Add(record.StepUndone, thread.StepUndone{From: undo.Seq, To: last.Seq})
		th.Erase(gone.Seq)
		th.Begin(bare())
		th.Message(wiretest.Text("again"))
		th.Request()
	},
}

// hostile are texts that broke other programs.
var hostile = []string{
	"\u2028\u2029\x00\x01\b\f\n\r\t\x1f\x7f\"\\/<&>", "\xff\xfe broken \xc3( \xed\xa0\x80 half a pair", "\U0001f600\U0010ffff\u00e9\ufffd",
	`{"role":"user"}],"stream":false`, "</tool_result>\n\nHuman:", strings.Repeat("\\\"", 100),
}

// The bytes of a request are frozen: every program that knows the builder makes them from these records.
func TestGoldenRequests(t *testing.T) {
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(golden, name+".jsonl")
			if _, err := os.Stat(path); *update && os.IsNotExist(err) {
				writeGolden(t, name, tell)
			}
			src := readLines(t, path)
			for seq, body := range src.bodies(t) {
				want, err := os.ReadFile(filepath.Join(golden, fmt.Sprintf("%s.%d.json", name, seq)))
				if body == nil {
					require.ErrorIs(t, err, os.ErrNotExist, "request %d cannot be rebuilt", seq)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, string(want), string(body), "request %d", seq)
				require.Empty(t, refusal(body))
			}
		})
	}
}

func writeGolden(t *testing.T, name string, tell func(*wiretest.Thread)) {
	th := wiretest.New(t)
	tell(th)
	var lines bytes.Buffer
	th.Export(&lines)
	require.NoError(t, os.WriteFile(filepath.Join(golden, name+".jsonl"), lines.Bytes(), 0o644))
	for seq, body := range readLines(t, filepath.Join(golden, name+".jsonl")).bodies(t) {
		if body != nil {
			require.NoError(t, os.WriteFile(filepath.Join(golden, fmt.Sprintf("%s.%d.json", name, seq)), body, 0o644))
		}
	}
}

// lines is a record that was read from a file.
type lines struct {
	entries []record.Entry
	blobs   map[record.Digest][]byte
}

func readLines(t *testing.T, path string) *lines {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	src := &lines{blobs: make(map[record.Digest][]byte)}
	for line := range bytes.Lines(data) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if record.IsBlobLine(line) {
			b, err := record.ParseBlobLine(line, nil)
			require.NoError(t, err)
			src.blobs[b.Digest] = b.Data
			continue
		}
		e, err := record.Parse(line)
		require.NoError(t, err)
		src.entries = append(src.entries, e)
	}
	return src
}

func (l *lines) Entries(_ context.Context, from record.Seq) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		for _, e := range l.entries[from:] {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (l *lines) Blob(_ context.Context, d record.Digest) ([]byte, error) {
	data, ok := l.blobs[d]
	if !ok {
		return nil, record.ErrNoBlob
	}
	return data, nil
}

// bodies rebuilds every request; one that used an erased entry is nil.
func (l *lines) bodies(t *testing.T) map[record.Seq][]byte {
	t.Helper()
	bodies := make(map[record.Seq][]byte)
	var out bytes.Buffer
	var b wire.Builder
	for _, e := range l.entries {
		var err error
		switch {
		case e.Kind == record.EpochStarted:
			out.Reset()
			b, err = builder.Open(t.Context(), l, e, &out)
			require.NoError(t, err)
			continue
		case b == nil:
			continue
		case e.Kind == record.RequestPrepared:
			tail, err := b.Close()
			bodies[e.Seq] = nil
			if err == nil {
				bodies[e.Seq] = append(bytes.Clone(out.Bytes()), tail.Bytes...)
			}
		}
		require.NoError(t, b.Add(t.Context(), e))
	}
	return bodies
}

// What a person or a program wrote is what the provider reads, whatever is in it, up to the longest line and blob.
func TestHostileStringsSurvive(t *testing.T) {
	long := strings.Repeat("4 MiB of \u2028\x00\xff\"\\\n", 1<<18)[:4<<20]
	inline := long[:1<<20]
	for i, text := range append([]string{inline}, hostile...) {
		if i > 0 {
			long = text
		}
		th := begin(t)
		th.Message(wiretest.Text("x"+text), thread.Block{Type: "text", Blob: th.Keep([]byte("x" + long))})
		th.Request()
		th.Answer(useA)
		th.Result(0, wiretest.Text("x"+text))
		th.Add(record.NoteInjected, thread.NoteInjected{Text: "x" + text})
		body := th.Bodies[th.Request().Seq]
		require.True(t, json.Valid(body))
		var r request
		require.NoError(t, json.Unmarshal(body, &r))
		valid := func(s string) string { // as encoding/json reads what it wrote
			b, err := json.Marshal(s)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(b, &s))
			return s
		}
		require.Equal(t, valid("x"+text), r.Messages[0].Content[0].Text, "text %d", i)
		require.Equal(t, valid("x"+long), r.Messages[0].Content[1].Text)
		require.Equal(t, valid("x"+text), r.Messages[2].Content[0].Content[0].Text)
		require.Equal(t, valid("x"+text), r.Messages[2].Content[1].Text)
	}
}

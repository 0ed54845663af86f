package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/thread"
)

var rewrite = flag.Bool("rewrite", false, "write what the streams of testdata/wire give as what they must give")

const wireDir = "../../testdata/wire/anthropic"

// golden is what a client must make of a stream.
type golden struct {
	Native      []string        `json:"native"`
	View        []thread.Block  `json:"view"`
	Shown       []shown         `json:"shown"`
	StopReason  string          `json:"stop_reason"`
	MessageID   string          `json:"message_id"`
	Model       string          `json:"model"`
	Usage       thread.Usage    `json:"usage"`
	Diagnostics json.RawMessage `json:"diagnostics,omitempty"`
}

// shown is text of one kind that followers saw without a break.
type shown struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// assemble reads a stream and returns the answer and what was shown.
func assemble(r io.Reader) (loop.Answer, []shown, error) {
	var seen []shown
	a := &assembly{limit: 1 << 20, deltas: func(kind, text string) {
		if n := len(seen); n > 0 && seen[n-1].Kind == kind {
			seen[n-1].Text += text
			return
		}
		seen = append(seen, shown{kind, text})
	}}
	err := a.read(r)
	return a.answer, seen, err
}

func goldenOf(a loop.Answer, seen []shown) golden {
	g := golden{View: a.View, Shown: seen, StopReason: a.StopReason, MessageID: a.ProviderMessageID, Model: a.Model, Usage: a.Usage, Diagnostics: a.Diagnostics}
	for _, n := range a.Native {
		g.Native = append(g.Native, string(n))
	}
	return g
}

// Every recorded stream gives the blocks that the provider would have sent without streaming, byte for byte, however
// the stream is cut into reads.
func TestStreams(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(wireDir, "*.sse"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".sse"), func(t *testing.T) {
			stream, err := os.ReadFile(file)
			require.NoError(t, err)
			answer, seen, err := assemble(bytes.NewReader(stream))
			require.NoError(t, err)
			got := indented(t, goldenOf(answer, seen))
			path := strings.TrimSuffix(file, ".sse") + ".json"
			if *rewrite {
				require.NoError(t, os.WriteFile(path, got, 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))
			for _, n := range answer.Native {
				require.True(t, json.Valid(n), "%s", n)
			}
			for name, r := range map[string]io.Reader{
				"one byte": iotest.OneByteReader(bytes.NewReader(stream)), "half": iotest.HalfReader(bytes.NewReader(stream)),
				"data with the error": iotest.DataErrReader(bytes.NewReader(stream)),
			} {
				again, seen, err := assemble(r)
				require.NoError(t, err, name)
				require.Equal(t, string(got), string(indented(t, goldenOf(again, seen))), name)
			}
		})
	}
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	require.NoError(t, enc.Encode(v))
	return b.Bytes()
}

// A stream that ends anywhere before its last event gives no answer, and what was finished before.
func TestStreamsCutShort(t *testing.T) {
	stream, err := os.ReadFile(filepath.Join(wireDir, "tools.sse"))
	require.NoError(t, err)
	whole, _, err := assemble(bytes.NewReader(stream))
	require.NoError(t, err)
	for n := range len(stream) {
		part, _, err := assemble(bytes.NewReader(stream[:n]))
		require.ErrorIs(t, err, io.EOF, "%d bytes", n)
		require.LessOrEqual(t, len(part.Native), len(whole.Native))
		require.Equal(t, whole.Native[:len(part.Native)], append([]json.RawMessage{}, part.Native...), "%d bytes", n)
	}
}

const opening = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"m\"}}\n\n"

func eventText(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

// What does not follow the format is malformed, never a half-believed answer.
func TestMalformedStreams(t *testing.T) {
	start := eventText("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
	stop := eventText("content_block_stop", `{"type":"content_block_stop","index":0}`)
	end := eventText("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`)
	last := eventText("message_stop", `{"type":"message_stop"}`)
	for name, stream := range map[string]string{
		"content before the message":    start,
		"two messages":                  opening + opening,
		"event that is not JSON":        opening + eventText("content_block_start", `{"type":`),
		"event that is no object":       opening + eventText("content_block_start", `[]`),
		"block without a type":          opening + eventText("content_block_start", `{"index":0,"content_block":{"text":""}}`),
		"no block":                      opening + eventText("content_block_start", `{"index":0}`),
		"wrong index":                   opening + eventText("content_block_start", `{"index":1,"content_block":{"type":"text","text":""}}`),
		"no index":                      opening + eventText("content_block_start", `{"content_block":{"type":"text","text":""}}`),
		"block in a block":              opening + start + start,
		"delta of a closed block":       opening + start + stop + eventText("content_block_delta", `{"index":0,"delta":{"type":"text_delta","text":"x"}}`),
		"delta of another block":        opening + start + eventText("content_block_delta", `{"index":1,"delta":{"type":"text_delta","text":"x"}}`),
		"delta without a type":          opening + start + eventText("content_block_delta", `{"index":0,"delta":{"text":"x"}}`),
		"delta with a number for text":  opening + start + eventText("content_block_delta", `{"index":0,"delta":{"type":"text_delta","text":7}}`),
		"citation that is missing":      opening + start + eventText("content_block_delta", `{"index":0,"delta":{"type":"citations_delta"}}`),
		"stop of no block":              opening + stop,
		"end in a block":                opening + start + end + last,
		"end without a stop reason":     opening + start + stop + last,
		"message that is no object":     eventText("message_start", `{"type":"message_start","message":7}`),
		"error event without an error":  opening + eventText("error", `{"type":"error"}`),
		"an event over the limit":       opening + eventText("content_block_start", `{"pad":"`+strings.Repeat("x", MaxEvent)+`"}`),
		"message_delta that is no dict": opening + eventText("message_delta", `{"delta":[]}`),
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := assemble(strings.NewReader(stream))
			require.ErrorIs(t, err, errMalformed)
		})
	}
}

// An answer over the limit is refused while it comes, not after it has filled the memory.
func TestAnswerOverLimit(t *testing.T) {
	delta := eventText("content_block_delta", `{"index":0,"delta":{"type":"text_delta","text":"`+strings.Repeat("x", 1<<10)+`"}}`)
	sent := 0
	endless := readerFunc(func(p []byte) (int, error) {
		n := copy(p, delta[sent%len(delta):])
		sent += n
		return n, nil
	})
	start := eventText("content_block_start", `{"index":0,"content_block":{"type":"text","text":""}}`)
	_, _, err := assemble(io.MultiReader(strings.NewReader(opening+start), endless))
	require.ErrorIs(t, err, errMalformed)
	require.Less(t, sent, 2<<20)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Comments may keep a stream alive for ever without filling an event.
func TestCommentsDoNotCount(t *testing.T) {
	comments := strings.Repeat(": still here "+strings.Repeat("x", 1<<10)+"\n", MaxEvent>>10+100)
	s := newSplitter(strings.NewReader(comments + eventText("ping", "{}")))
	e, err := s.next()
	require.NoError(t, err)
	require.Equal(t, "ping", e.name)
}

// The details of the event stream format.
func TestSplitter(t *testing.T) {
	type want struct{ name, data string }
	for name, tc := range map[string]struct {
		in   string
		want []want
	}{
		"LF, CRLF and CR":         {"event: a\ndata: 1\n\nevent: b\r\ndata: 2\r\n\r\nevent: c\rdata: 3\r\r", []want{{"a", "1"}, {"b", "2"}, {"c", "3"}}},
		"several data lines":      {"data: 1\ndata\ndata:2\ndata:  3\n\n", []want{{"", "1\n\n2\n 3"}}},
		"no data is no event":     {"event: a\n\ndata: 1\n\n", []want{{"", "1"}}},
		"empty data is one":       {"data:\n\n", []want{{"", ""}}},
		"comments and more":       {":x\nid: 1\nretry: 5\nfoo: bar\ndata: 1\n\n", []want{{"", "1"}}},
		"byte order mark":         {"\uFEFFdata: 1\n\n\uFEFFdata: 2\n\n", []want{{"", "1"}}},
		"last event name wins":    {"event: a\nevent: b\ndata: 1\n\n", []want{{"b", "1"}}},
		"an unfinished one is no": {"data: 1\n\ndata: 2\n", []want{{"", "1"}}},
		"bytes that are no UTF-8": {"data: \xff\n\n", []want{{"", "\uFFFD"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, cut := range []int{1, 2, 3, 1000} {
				var got []want
				s := newSplitter(&cutReader{[]byte(tc.in), cut})
				for {
					e, err := s.next()
					if err != nil {
						require.Equal(t, io.EOF, err)
						break
					}
					got = append(got, want{e.name, string(e.data)})
				}
				require.Equal(t, tc.want, got, "reads of %d bytes", cut)
			}
		})
	}
}

// cutReader gives at most n bytes a read.
type cutReader struct {
	rest []byte
	n    int
}

func (r *cutReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest[:min(r.n, len(r.rest))])
	r.rest = r.rest[n:]
	return n, nil
}

// FuzzSplitter: the events do not depend on how the stream is cut into reads.
func FuzzSplitter(f *testing.F) {
	f.Add([]byte("event: a\r\ndata: 1\r\n\r\ndata: 2\r\rdata: 3\n\n"), uint8(1))
	f.Add([]byte("\uFEFF:c\ndata: \xe2\x80\xa8\n\n"), uint8(2))
	f.Fuzz(func(t *testing.T, in []byte, cut uint8) {
		whole := split(t, &cutReader{in, len(in) + 1})
		pieces := split(t, &cutReader{in, int(cut) + 1})
		require.Equal(t, whole, pieces)
	})
}

func split(t *testing.T, r io.Reader) []string {
	t.Helper()
	var all []string
	s := newSplitter(r)
	for {
		e, err := s.next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, e.name+"\x00"+string(e.data))
	}
}

// FuzzAssembly: no stream makes the client panic, and what it believes of one is valid JSON.
func FuzzAssembly(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join(wireDir, "*.sse"))
	for _, file := range files {
		stream, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(stream)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		answer, _, _ := assemble(bytes.NewReader(stream))
		calls := 0
		for _, n := range answer.Native {
			require.True(t, json.Valid(n), "%q", n)
			var head struct {
				Type string `json:"type"`
			}
			if json.Unmarshal(n, &head) == nil && head.Type == "tool_use" {
				calls++
			}
		}
		for _, v := range answer.View {
			if v.Type == thread.BlockToolCall {
				calls--
				require.True(t, v.InputText != "" || strict(v.Input), "%q", v.Input)
			}
		}
		require.Zero(t, calls, "each call of the answer is in its view once")
	})
}

package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"iter"
	"strings"
	"time"

	"condensate.dev/cnd/core/fingerprint"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/builder"
)

// replayBody is the size of the bodies that hold text, in bytes: of messages, answers and results.
const replayBody = 4 << 10

// threadWriter writes a thread as lines, with the requests that the live builder makes of it.
type threadWriter struct {
	out      io.Writer
	head     record.Head
	settings thread.EpochStarted
	body     hash.Hash
	n        int64
	builder  wire.Builder
	err      error // the first one
}

// Write implements io.Writer for the builder.
func (t *threadWriter) Write(p []byte) (int, error) {
	t.n += int64(len(p))
	return t.body.Write(p)
}

// Entries implements builder.Source: the only epoch begins before all messages.
func (t *threadWriter) Entries(context.Context, record.Seq) iter.Seq2[record.Entry, error] {
	return func(func(record.Entry, error) bool) {}
}

// Blob implements builder.Source.
func (t *threadWriter) Blob(context.Context, record.Digest) ([]byte, error) {
	return nil, record.ErrNoBlob
}

// writeThread writes a thread of that many turns, each with a question, a tool call and two answers.
func writeThread(w io.Writer, turns int) error {
	t := &threadWriter{out: w, body: sha256.New(), settings: thread.EpochStarted{
		Reason: thread.EpochCreated, Builder: "anthropic/0", Provider: "anthropic", Account: "anthropic:bench",
		Model: "claude-sonnet-5", Method: "POST", URL: "https://api.anthropic.com/v1/messages",
		Headers: [][2]string{{"anthropic-version", "2023-06-01"}}, MaxTokens: 4096, Cache: thread.Cache{TTL: "5m"},
	}}
	t.add(record.ThreadCreated, thread.Created{Cwd: "/work", Engine: "loop", Isolation: "none"})
	epoch := t.add(record.EpochStarted, t.settings)
	if t.builder, t.err = builder.Open(context.Background(), t, epoch, t); t.err != nil {
		return t.err
	}
	text := thread.Block{Type: "text", Text: code(replayBody - 400)}
	half := thread.Block{Type: "text", Text: code((replayBody - 600) / 2)}
	for i := range turns {
		id := fmt.Sprintf("msg_%026d", i)
		accepted := t.add(record.MessageAccepted, thread.MessageAccepted{ID: id, Mode: thread.ModeQueue, By: "owner", Content: []thread.Block{text}})
		t.add(record.MessagePlaced, thread.MessagePlaced{ID: id, Accepted: accepted.Seq})
		t.turn(half, text)
	}
	return t.err
}

// turn adds a request whose answer calls a tool, and one whose answer does not.
func (t *threadWriter) turn(half, text thread.Block) {
	native := []thread.Raw{{JSON: encode(map[string]string{"type": "text", "text": half.Text})}}
	request := t.request()
	call := fmt.Sprintf("%d.0", request.Seq)
	use := encode(map[string]any{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", request.Seq), "name": "bash", "input": map[string]string{"command": "make"}})
	t.add(record.AnswerFinished, thread.AnswerFinished{
		Request: request.Seq, Attempt: 1, StopReason: "tool_use", Native: append(native[:1:1], thread.Raw{JSON: use}),
		View: []thread.Block{half, {Type: "tool_call", Call: call, Name: "bash", Input: json.RawMessage(`{"command":"make"}`)}},
	})
	t.add(record.ToolStarted, thread.ToolStarted{Call: call, Name: "bash", Replay: thread.ReplayUnsafe})
	t.add(record.ToolFinished, thread.ToolFinished{Call: call, Content: []thread.Block{text}})
	request = t.request()
	t.add(record.AnswerFinished, thread.AnswerFinished{
		Request: request.Seq, Attempt: 1, StopReason: "end_turn", Native: native, View: []thread.Block{half},
	})
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// sample is what messages, answers and results are made of: code and prose, tabs, quotes and line ends.
const sample = `// Append makes entries durable as one unit if the thread's head is still expect, then returns
// the new head. The same bytes at the same place succeed again; another head fails.
func (s *Store) Append(ctx context.Context, id ThreadID, expect Head, entries ...Entry) (Head, error) {
	if err := check(expect, entries); err != nil {
		return Head{}, fmt.Errorf("append to %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()

I read the test first: it fails because the head moves between reading it and appending. The fix is
to compare it under the lock, which is what the method promises anyway. I will run the suite again.
`

// code returns about n bytes of text.
func code(n int) string { return strings.Repeat(sample, n/len(sample)+1)[:n] }

// request adds the request.prepared of what the builder has.
func (t *threadWriter) request() record.Entry {
	if t.err != nil {
		return record.Entry{}
	}
	var tail wire.Tail
	if tail, t.err = t.builder.Close(); t.err != nil {
		return record.Entry{}
	}
	var h hash.Cloner
	if h, t.err = t.body.(hash.Cloner).Clone(); t.err != nil {
		return record.Entry{}
	}
	h.Write(tail.Bytes)
	sum := record.Digest(h.Sum(nil))
	return t.add(record.RequestPrepared, thread.RequestPrepared{
		Epoch: 1, Attempt: 1, BodySHA256: sum.String(), Fingerprint: fingerprint.Of(t.settings, sum).String(),
		BodyBytes: t.n + int64(len(tail.Bytes)), Messages: tail.Messages, Blocks: tail.Blocks,
	})
}

// add writes the next entry.
func (t *threadWriter) add(kind record.Kind, body any) record.Entry {
	if t.err != nil {
		return record.Entry{}
	}
	var salt record.Salt
	binary.BigEndian.PutUint64(salt[:], uint64(t.head.Next()))
	e, err := record.Seal("thr_00000000000000000000000000", t.head, salt, record.Draft{
		Time: time.Unix(int64(t.head.Next()), 0), Kind: kind, Body: thread.Encode(body),
	})
	if err == nil && t.builder != nil {
		err = t.builder.Add(context.Background(), e)
	}
	if err == nil {
		_, err = t.out.Write(append(e.Line, '\n'))
	}
	t.head, t.err = e.Head(), err
	return e
}

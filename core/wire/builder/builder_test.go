package builder_test

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/builder"
)

// history is a Source in memory. Its entries have no hashes: builders do not look at them.
type history struct {
	entries []record.Entry
	blobs   map[record.Digest][]byte
	reads   int
}

func (h *history) add(kind record.Kind, body any) record.Entry {
	e := record.Entry{Seq: record.Seq(len(h.entries)), Kind: kind, Body: thread.Encode(body)}
	h.entries = append(h.entries, e)
	return e
}

func (h *history) blob(data []byte) string {
	b := record.NewBlob(data)
	if h.blobs == nil {
		h.blobs = make(map[record.Digest][]byte)
	}
	h.blobs[b.Digest] = data
	return b.Ref()
}

func (h *history) Entries(_ context.Context, from record.Seq) iter.Seq2[record.Entry, error] {
	h.reads++
	return func(yield func(record.Entry, error) bool) {
		for _, e := range h.entries[from:] {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (h *history) Blob(_ context.Context, d record.Digest) ([]byte, error) {
	data, ok := h.blobs[d]
	if !ok {
		return nil, record.ErrNoBlob
	}
	return data, nil
}

// message adds an accepted and placed message.
func (h *history) message(id string, content ...thread.Block) record.Seq {
	e := h.add(record.MessageAccepted, thread.MessageAccepted{ID: id, Mode: thread.ModeQueue, Content: content})
	h.add(record.MessagePlaced, thread.MessagePlaced{ID: id, Accepted: e.Seq})
	return e.Seq
}

func text(s string) thread.Block { return thread.Block{Type: "text", Text: s} }

func native(blocks ...string) (raw []thread.Raw) {
	for _, b := range blocks {
		raw = append(raw, thread.Raw{JSON: json.RawMessage(b)})
	}
	return raw
}

func epoch() thread.EpochStarted {
	return thread.EpochStarted{
		Builder: "anthropic/0", Model: "claude-sonnet-5", MaxTokens: 1024, Method: "POST",
		URL: "https://api.anthropic.com/v1/messages",
	}
}

// body returns the body of the request that would be prepared after the last entry.
func (h *history) body(t *testing.T, at record.Seq) string {
	t.Helper()
	var out bytes.Buffer
	b, err := builder.Open(t.Context(), h, h.entries[at], &out)
	require.NoError(t, err)
	var tail wire.Tail
	for _, e := range h.entries[at+1:] {
		if e.Kind == record.RequestPrepared {
			_, err = b.Close()
			require.NoError(t, err)
		}
		require.NoError(t, b.Add(t.Context(), e))
	}
	tail, err = b.Close()
	require.NoError(t, err)
	require.True(t, json.Valid(append(out.Bytes(), tail.Bytes...)))
	return out.String() + string(tail.Bytes)
}

func TestConversation(t *testing.T) {
	h := &history{}
	at := h.add(record.EpochStarted, epoch()).Seq
	h.message("msg_1", text("hello \"you\"\n"))
	request := h.add(record.RequestPrepared, thread.RequestPrepared{Epoch: at, Attempt: 1})
	h.add(record.AnswerFinished, thread.AnswerFinished{
		Request: request.Seq, Attempt: 1,
		Native: native(`{"type":"text","text":"ok"}`, `{"type":"tool_use","id":"toolu_1","name":"bash","input":{"a":1.0}}`),
		View:   []thread.Block{text("ok"), {Type: "tool_call", Call: "3.0", Name: "bash"}},
	})
	h.add(record.ToolFinished, thread.ToolFinished{Call: "3.0", Content: []thread.Block{text("done")}})
	require.Equal(t, `{"model":"claude-sonnet-5","max_tokens":1024,"messages":[`+
		`{"role":"user","content":[{"type":"text","text":"hello \"you\"\n"}]},`+
		`{"role":"assistant","content":[{"type":"text","text":"ok"},`+
		`{"type":"tool_use","id":"toolu_1","name":"bash","input":{"a":1.0}}]},`+
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"done"}]}]}`+
		`],"stream":true}`, h.body(t, at))
}

package follow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/memstore"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// bed is a hub over a store, with a writer that does what the loop does: append, then announce.
type bed struct {
	t     *testing.T
	store *memstore.Store
	hub   *Hub
	ended chan string // queries of requests that were served to their end
}

func newBed(t *testing.T, o Options) *bed {
	store := memstore.New()
	b := &bed{t, store, NewHub(store, o), make(chan string, 100)}
	t.Cleanup(b.hub.Close)
	return b
}

// threadN returns the id of a thread of the test.
func threadN(n int) record.ThreadID {
	return record.ThreadID(fmt.Sprintf("thr_%026d", n))
}

var created = thread.Created{Cwd: "/work", Engine: "loop", Isolation: "none", HeadKey: "key"}

// append appends an entry and does not announce it.
func (b *bed) append(id record.ThreadID, kind record.Kind, body any) record.Entry {
	b.t.Helper()
	head, err := b.store.Head(b.t.Context(), id)
	if err != nil {
		head = record.Head{}
	}
	e, err := record.Seal(id, head, record.Salt{}, record.Draft{Time: time.Unix(1e9, 0), Kind: kind, Body: thread.Encode(body)})
	require.NoError(b.t, err)
	_, err = b.store.Append(context.Background(), id, head, e)
	require.NoError(b.t, err)
	return e
}

// write appends an entry and announces it.
func (b *bed) write(id record.ThreadID, kind record.Kind, body any) record.Entry {
	b.t.Helper()
	e := b.append(id, kind, body)
	b.hub.Appended(id, []record.Entry{e})
	return e
}

// create starts a thread with n entries.
func (b *bed) create(id record.ThreadID, n int) {
	b.t.Helper()
	b.write(id, record.ThreadCreated, created)
	for range n - 1 {
		b.note(id, "entry")
	}
}

func (b *bed) note(id record.ThreadID, text string) record.Entry {
	b.t.Helper()
	return b.write(id, record.NoteInjected, thread.NoteInjected{Text: text})
}

func (b *bed) lines(id record.ThreadID) (lines []string) {
	for e, err := range b.store.Entries(context.Background(), id, 0) {
		require.NoError(b.t, err)
		lines = append(lines, string(e.Line))
	}
	return lines
}

// text is a delta of an answer.
func text(request record.Seq, attempt int, s string) loop.Delta {
	return loop.Delta{Request: request, Attempt: attempt, Kind: "text", Text: s}
}

// seen is what a client makes of a stream: it obeys the protocol of docs/API.md.
type seen struct {
	lines   []string
	kinds   []string // types of all messages
	beats   []record.Seq
	shown   map[string]string // by kind and call, what the deltas add up to
	attempt string
	cut     int64
}

func (s *seen) take(t *testing.T, m message) {
	t.Helper()
	require.NotContains(t, string(m.data), "\n", "a message is one line")
	var head struct {
		V        *int
		Type     string
		Seq      record.Seq
		Request  record.Seq
		Attempt  int
		CutBytes int64 `json:"cut_bytes"`
		Kind     string
		Call     string
		Text     string
		Parts    []part
		Entry    json.RawMessage
	}
	dec := json.NewDecoder(bytes.NewReader(m.data))
	require.NoError(t, dec.Decode(&head), "%s", m.data)
	require.NotNil(t, head.V)
	require.Zero(t, *head.V)
	require.Equal(t, m.kind, head.Type)
	s.kinds = append(s.kinds, head.Type)
	attempt := fmt.Sprint(head.Request, "/", head.Attempt)
	switch head.Type {
	case "entry":
		line, ok := strings.CutPrefix(string(m.data), `{"v":0,"type":"entry","entry":`)
		require.True(t, ok)
		line = strings.TrimSuffix(line, "}")
		e, err := record.Parse([]byte(line))
		require.NoError(t, err)
		require.Equal(t, m.seq, e.Seq)
		s.lines = append(s.lines, line)
	case "delta":
		if s.attempt != attempt {
			s.attempt, s.shown = attempt, map[string]string{}
		}
		s.shown[head.Kind+head.Call] += head.Text
	case "snapshot":
		s.attempt, s.shown, s.cut = attempt, map[string]string{}, head.CutBytes
		for _, p := range head.Parts {
			s.shown[p.Kind+p.Call] += p.Text
		}
	case "reset":
		s.attempt, s.shown = "", nil
	case "heartbeat":
		s.beats = append(s.beats, head.Seq)
	}
}

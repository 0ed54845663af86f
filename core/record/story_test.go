package record_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/memstore"
	"condensate.dev/cnd/core/fingerprint"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire/builder"
)

// signer made the heads of all records of these tests.
var signer = recordtest.NewSigner("condensate.dev/record", 1)

// story writes a thread as the runtime would: real bodies, real requests, but fixed times and dice.
type story struct {
	t       *testing.T
	store   *memstore.Store
	id      record.ThreadID
	head    record.Head
	gen     uint64
	now     time.Time
	dice    uint64
	turn    string
	request record.Entry // newest request.prepared
	erased  map[record.Seq]record.Seq
}

func newStory(t *testing.T, title string) *story {
	s := &story{
		t: t, store: memstore.New(), now: time.Date(2026, 11, 30, 20, 48, 23, 123456000, time.UTC),
		erased: make(map[record.Seq]record.Seq),
	}
	s.id = record.ThreadID(s.newID(record.PrefixThread))
	s.add(record.ThreadCreated, thread.Created{
		Title: title, Cwd: "/home/ada/engine", Engine: "loop", Isolation: "none", Allow: []string{"bash"},
		Resume: thread.ResumeAuto, HeadKey: signer.VerifierKey(), CreatedBy: "owner",
	})
	s.engine(thread.EngineCreated)
	s.epoch(thread.EpochCreated)
	return s
}

// Read gives the bytes that stand for randomness.
func (s *story) Read(b []byte) (int, error) {
	for i := range b {
		s.dice++
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, s.dice))
		b[i] = sum[0]
	}
	return len(b), nil
}

func (s *story) newID(prefix string) string {
	id, err := record.NewID(prefix, s.now, s)
	require.NoError(s.t, err)
	return id
}

func (s *story) add(kind record.Kind, body any, blobs ...record.Blob) record.Entry {
	s.t.Helper()
	var salt record.Salt
	s.Read(salt[:])
	e, err := record.Seal(s.id, s.head, salt, record.Draft{Gen: s.gen, Time: s.now, Kind: kind, Body: thread.Encode(body), Blobs: blobs})
	require.NoError(s.t, err)
	s.head, err = s.store.Append(context.Background(), s.id, s.head, e)
	require.NoError(s.t, err)
	s.now = s.now.Add(137*time.Millisecond + time.Duration(e.Seq*e.Seq%911)*time.Microsecond)
	return e
}

func (s *story) engine(reason string) {
	s.gen++
	s.add(record.EngineStarted, thread.EngineStarted{Engine: "loop", Version: "0.1.0", Reason: reason})
}

func (s *story) epoch(reason string) {
	s.add(record.EpochStarted, thread.EpochStarted{
		Reason: reason, Builder: "anthropic/0", Provider: "anthropic", Account: "anthropic:home", Model: "claude-sonnet-5",
		Method: "POST", URL: "https://api.anthropic.com/v1/messages",
		Headers: [][2]string{{"anthropic-version", "2023-06-01"}}, MaxTokens: 4096,
		System: []string{"You are a careful engineer. Say what you did."},
		Tools: []thread.ToolSpec{{
			Name: "bash", Description: "Run a command",
			InputSchema: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`),
		}, {
			Name: "edit", Description: "Replace text in a file",
			InputSchema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"old":{"type":"string"},"new":{"type":"string"}}}`),
		}},
		Cache: thread.Cache{TTL: "5m"},
	})
}

func text(s string) thread.Block { return thread.Block{Type: "text", Text: s} }

func (s *story) accept(mode string, blobs []record.Blob, content ...thread.Block) (id string, e record.Entry) {
	s.t.Helper()
	id = s.newID(record.PrefixMessage)
	sum := sha256.Sum256(thread.Encode(content))
	return id, s.add(record.MessageAccepted, thread.MessageAccepted{
		Blobs: refs(blobs), ID: id, Mode: mode, By: "owner", Content: content, BodySHA256: record.Digest(sum).String(),
	}, blobs...)
}

func refs(blobs []record.Blob) (names []string) {
	for _, b := range blobs {
		names = append(names, b.Ref())
	}
	return names
}

// ask begins a turn with a message and prepares its first request.
func (s *story) ask(content ...thread.Block) record.Entry { return s.askWith(nil, content...) }

func (s *story) askWith(blobs []record.Blob, content ...thread.Block) record.Entry {
	s.t.Helper()
	id, accepted := s.accept(thread.ModeQueue, blobs, content...)
	s.turn = s.newID(record.PrefixTurn)
	s.add(record.TurnStarted, thread.TurnStarted{Turn: s.turn})
	s.add(record.MessagePlaced, thread.MessagePlaced{ID: id, Accepted: accepted.Seq, Turn: s.turn})
	s.prepare(1, 0)
	return accepted
}

// source is the thread of a story as the builder reads it.
type source struct{ *story }

func (s source) Entries(ctx context.Context, from record.Seq) iter.Seq2[record.Entry, error] {
	return s.through(ctx, from)
}

func (s source) Blob(ctx context.Context, d record.Digest) ([]byte, error) {
	return s.store.Blob(ctx, d)
}

// through reads the thread with its erased entries erased.
func (s *story) through(ctx context.Context, from record.Seq) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		for e, err := range record.ReadThrough(ctx, s.store, s.id, from) {
			if by, ok := s.erased[e.Seq]; ok && err == nil {
				e = e.Erase(by)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// prepare builds the request that the record now describes and records its fingerprint.
func (s *story) prepare(attempt int, first record.Seq) {
	s.t.Helper()
	ctx := context.Background()
	var epoch record.Entry
	var after []record.Entry
	for e, err := range s.through(ctx, 0) {
		require.NoError(s.t, err)
		after = append(after, e)
		if e.Kind == record.EpochStarted {
			epoch, after = e, nil
		}
	}
	var body bytes.Buffer
	b, err := builder.Open(ctx, source{s}, epoch, &body)
	require.NoError(s.t, err)
	for _, e := range after {
		if e.Kind == record.RequestPrepared {
			_, err = b.Close()
			require.NoError(s.t, err)
		}
		require.NoError(s.t, b.Add(ctx, e))
	}
	require.Empty(s.t, b.Problems())
	tail, err := b.Close()
	require.NoError(s.t, err)
	body.Write(tail.Bytes)
	settings, err := thread.Decode[thread.EpochStarted](epoch)
	require.NoError(s.t, err)
	sum := record.Digest(sha256.Sum256(body.Bytes()))
	s.request = s.add(record.RequestPrepared, thread.RequestPrepared{
		Turn: s.turn, Epoch: epoch.Seq, Attempt: attempt, BodySHA256: sum.String(),
		Fingerprint: fingerprint.Of(settings, sum).String(), BodyBytes: int64(body.Len()),
		Messages: tail.Messages, Blocks: tail.Blocks, First: first,
	})
}

// answer records the answer to the newest request: text, or a call of a tool with that input.
func (s *story) answer(said, tool, input string) (call string) {
	s.t.Helper()
	a := thread.AnswerFinished{
		Request: s.request.Seq, Attempt: 1, StopReason: "end_turn", Model: "claude-sonnet-5",
		ProviderMessageID: fmt.Sprintf("msg_sim_%04d", s.request.Seq), ProviderRequestID: fmt.Sprintf("req_sim_%04d", s.request.Seq),
		Usage: usage(40+int64(s.request.Seq), 25),
	}
	if said != "" {
		a.Native = append(a.Native, raw(map[string]any{"type": "text", "text": said}))
		a.View = append(a.View, text(said))
	}
	if tool != "" {
		call = fmt.Sprintf("%d.0", s.request.Seq)
		a.StopReason = "tool_use"
		a.Native = append(a.Native, raw(map[string]any{
			"type": "tool_use", "id": fmt.Sprintf("toolu_%04d", s.request.Seq), "name": tool, "input": json.RawMessage(input),
		}))
		a.View = append(a.View, thread.Block{Type: "tool_call", Call: call, Name: tool, Input: json.RawMessage(input)})
	}
	s.add(record.AnswerFinished, a)
	return call
}

func raw(v any) thread.Raw { return thread.Raw{JSON: thread.Encode(v)} }

func usage(in, out int64) thread.Usage {
	var none int64
	return thread.Usage{Input: &in, Output: &out, CacheRead: &none, CacheWrite: &none}
}

// allow records that a call may run and that it has started.
func (s *story) allow(call, tool string, effect *thread.FileEffect) {
	s.add(record.PolicyDecided, thread.PolicyDecided{Call: call, Verdict: thread.VerdictAllow, Rule: "allow bash", Reason: "the owner allowed it"})
	s.add(record.ToolStarted, thread.ToolStarted{Call: call, Name: tool, Replay: thread.ReplayUnsafe, Effect: effect})
}

func (s *story) result(call, output string, code int) {
	s.add(record.ToolFinished, thread.ToolFinished{
		Call: call, IsError: code != 0, Content: []thread.Block{text(output)}, ExitCode: &code, ElapsedMS: 41,
	})
}

func (s *story) finish() {
	s.add(record.TurnFinished, thread.TurnFinished{Turn: s.turn, State: thread.TurnCompleted, StopReason: "end_turn"})
}

// fork goes on as another thread after the newest entry.
func (s *story) fork() {
	forked := thread.Forked{Parent: s.id, Seq: s.head.Seq, Hash: s.head.Hash.String()}
	s.id = record.ThreadID(s.newID(record.PrefixThread))
	s.add(record.ThreadForked, forked)
}

// erase takes the body of an entry away.
func (s *story) erase(e record.Entry, reason string) {
	by := s.add(record.EntryErased, thread.EntryErased{Seq: e.Seq, Hash: e.Hash.String(), Reason: reason})
	s.erased[e.Seq] = by.Seq
}

// export returns the whole record, with a signed head.
func (s *story) export() []byte {
	s.t.Helper()
	var out bytes.Buffer
	head, err := record.SignHead(signer, s.id, s.head, record.Digest(sha256.Sum256([]byte("the note before"))))
	require.NoError(s.t, err)
	require.NoError(s.t, record.WriteExport(context.Background(), &out, erasing{s.store, s.erased}, s.id, head))
	return out.Bytes()
}

// erasing is a store some of whose entries are erased.
type erasing struct {
	record.Store
	erased map[record.Seq]record.Seq
}

func (s erasing) Entries(ctx context.Context, id record.ThreadID, from record.Seq) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		for e, err := range s.Store.Entries(ctx, id, from) {
			if by, ok := s.erased[e.Seq]; ok && err == nil {
				e = e.Erase(by)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// lines returns the lines of an export, each with its newline.
func lines(export []byte) [][]byte {
	all := bytes.SplitAfter(export, []byte("\n"))
	return slices.DeleteFunc(all, func(l []byte) bool { return len(l) == 0 })
}

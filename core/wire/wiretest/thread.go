// Package wiretest writes threads for the tests of request builders and of their verification: real, sealed entries,
// with the requests that the live builder makes of them. It is deterministic.
package wiretest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"testing"
	"time"

	"condensate.dev/cnd/core/fingerprint"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/builder"
)

// ID is the id of every thread of this package.
const ID record.ThreadID = "thr_00000000000000000000000000"

// Start is the time of the first entry; each entry is a second after the one before.
var Start = time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)

// Thread is a growing thread in memory. It is a builder.Source.
type Thread struct {
	T testing.TB
	// Forge, when set, changes what is recorded of the next requests.
	Forge  func(*thread.RequestPrepared)
	Lines  []record.Entry
	Now    time.Time             // of the next entry
	Bodies map[record.Seq][]byte // of each request.prepared, as the live builder made it
	Tails  map[record.Seq]wire.Tail

	blobs map[record.Digest][]byte
	live  wire.Builder
	body  bytes.Buffer
	epoch record.Entry
	last  request
}

// request is the newest one.
type request struct {
	seq, first record.Seq
	attempt    int
	body       []byte
}

// New returns a thread that holds its thread.created.
func New(t testing.TB) *Thread { return Signed(t, "") }

// Signed returns a thread whose heads are to be signed by the holder of the verifier key.
func Signed(t testing.TB, key string) *Thread {
	th := &Thread{
		T: t, Now: Start, Bodies: make(map[record.Seq][]byte), Tails: make(map[record.Seq]wire.Tail),
		blobs: make(map[record.Digest][]byte),
	}
	th.Add(record.ThreadCreated, thread.Created{Cwd: "/work", Engine: "loop", Isolation: "none", HeadKey: key})
	return th
}

// Add appends an entry; a body of type []byte is taken as it is.
func (th *Thread) Add(kind record.Kind, body any, blobs ...record.Blob) record.Entry {
	th.T.Helper()
	e := th.seal(kind, body, blobs...)
	if th.live != nil {
		th.check(th.live.Add(context.Background(), e))
	}
	return e
}

// Try appends an entry and returns what the live builder says of it.
func (th *Thread) Try(kind record.Kind, body any) error {
	th.T.Helper()
	return th.live.Add(context.Background(), th.seal(kind, body))
}

// seal makes the next entry and keeps it.
func (th *Thread) seal(kind record.Kind, body any, blobs ...record.Blob) record.Entry {
	th.T.Helper()
	raw, ok := body.([]byte)
	if !ok {
		raw = thread.Encode(body)
	}
	var salt record.Salt
	binary.BigEndian.PutUint64(salt[8:], uint64(len(th.Lines)))
	e, err := record.Seal(ID, th.Head(), salt, record.Draft{Time: th.Now, Kind: kind, Body: raw, Blobs: blobs})
	th.check(err)
	for _, b := range blobs {
		th.blobs[b.Digest] = b.Data
	}
	th.Now = th.Now.Add(time.Second)
	th.Lines = append(th.Lines, e)
	return e
}

func (th *Thread) check(err error) {
	th.T.Helper()
	if err != nil {
		th.T.Fatal(err)
	}
}

// Head returns the place of the newest entry.
func (th *Thread) Head() record.Head {
	if len(th.Lines) == 0 {
		return record.Head{}
	}
	return th.Lines[len(th.Lines)-1].Head()
}

// Epoch returns usual settings.
func Epoch() thread.EpochStarted {
	return thread.EpochStarted{
		Reason: "created", Builder: "anthropic/0", Provider: "anthropic", Account: "anthropic:test",
		Model: "claude-sonnet-5", Method: "POST", URL: "https://api.anthropic.com/v1/messages",
		Headers: [][2]string{{"anthropic-version", "2023-06-01"}}, MaxTokens: 4096,
		System: []string{"You are a careful engineer."},
		Tools: []thread.ToolSpec{{
			Name: "bash", Description: "Run a command", InputSchema: json.RawMessage(`{"type":"object"}`),
		}},
		Cache: thread.Cache{TTL: "5m"},
	}
}

// Begin starts an epoch and its live builder.
func (th *Thread) Begin(settings thread.EpochStarted) record.Entry {
	th.T.Helper()
	th.live = nil
	th.epoch = th.Add(record.EpochStarted, settings)
	th.body.Reset()
	var err error
	th.live, err = builder.Open(context.Background(), th, th.epoch, &th.body)
	th.check(err)
	return th.epoch
}

// Message adds a message that is accepted and placed at once, and returns its message.accepted.
func (th *Thread) Message(content ...thread.Block) record.Entry {
	th.T.Helper()
	e := th.Accept(content...)
	th.Place(e)
	return e
}

// Accept adds a message.accepted.
func (th *Thread) Accept(content ...thread.Block) record.Entry {
	th.T.Helper()
	body := thread.MessageAccepted{ID: fmt.Sprintf("msg_%026d", len(th.Lines)), Mode: thread.ModeQueue, By: "owner", Content: content}
	var blobs []record.Blob
	body.Blobs, blobs = th.used(content)
	return th.Add(record.MessageAccepted, body, blobs...)
}

// used returns the blobs of a list of blocks: their names and their contents, each once.
func (th *Thread) used(content []thread.Block) (names []string, blobs []record.Blob) {
	for _, b := range content {
		if b.Blob == "" || slices.Contains(names, b.Blob) {
			continue
		}
		d, err := record.ParseDigest(b.Blob[len(record.BlobPrefix):])
		th.check(err)
		names = append(names, b.Blob)
		blobs = append(blobs, record.Blob{Digest: d, Data: th.blobs[d]})
	}
	return names, blobs
}

// Place adds the message.placed of a message.accepted.
func (th *Thread) Place(accepted record.Entry) record.Entry {
	th.T.Helper()
	body, err := thread.Decode[thread.MessageAccepted](accepted)
	th.check(err)
	return th.Add(record.MessagePlaced, thread.MessagePlaced{ID: body.ID, Accepted: accepted.Seq})
}

// Request ends the message and adds the request.prepared of the live builder's request. The same bytes as the newest
// request are its next attempt.
func (th *Thread) Request() record.Entry {
	th.T.Helper()
	tail, err := th.live.Close()
	th.check(err)
	body := append(bytes.Clone(th.body.Bytes()), tail.Bytes...)
	settings, err := thread.Decode[thread.EpochStarted](th.epoch)
	th.check(err)
	sum := record.Digest(sha256.Sum256(body))
	prepared := thread.RequestPrepared{
		Epoch: th.epoch.Seq, Attempt: 1, BodySHA256: sum.String(), Fingerprint: fingerprint.Of(settings, sum).String(),
		BodyBytes: int64(len(body)), Messages: tail.Messages, Blocks: tail.Blocks,
	}
	r := request{seq: record.Seq(len(th.Lines)), attempt: 1, body: body}
	r.first = r.seq
	if bytes.Equal(body, th.last.body) {
		r.first, r.attempt = th.last.first, th.last.attempt+1
		prepared.First, prepared.Attempt = r.first, r.attempt
	}
	th.last = r
	if th.Forge != nil {
		th.Forge(&prepared)
	}
	e := th.Add(record.RequestPrepared, prepared)
	th.Bodies[e.Seq], th.Tails[e.Seq] = body, tail
	return e
}

// Answer adds the answer to the newest request with these native blocks. Blocks of type tool_use become the calls.
func (th *Thread) Answer(native ...string) record.Entry {
	th.T.Helper()
	body := thread.AnswerFinished{
		Request: th.last.seq, Attempt: th.last.attempt, StopReason: "end_turn",
		ProviderMessageID: fmt.Sprintf("msg_%d", th.last.seq),
	}
	for _, raw := range native {
		body.Native = append(body.Native, thread.Raw{JSON: json.RawMessage(raw)})
	}
	body.View = th.View(body.Native)
	return th.Add(record.AnswerFinished, body)
}

// View returns the neutral form of native blocks of the newest request.
func (th *Thread) View(native []thread.Raw) (view []thread.Block) {
	calls := 0
	for _, raw := range native {
		var b struct {
			Type, Text, Name string
			Input            json.RawMessage
		}
		th.check(json.Unmarshal(append(raw.JSON, raw.Text...), &b))
		switch b.Type {
		case "text":
			view = append(view, Text(b.Text))
		case "tool_use":
			view = append(view, thread.Block{Type: "tool_call", Call: th.Call(calls), Name: b.Name, Input: b.Input})
			calls++
		}
	}
	return view
}

// Call returns our id of a call of the newest answer.
func (th *Thread) Call(index int) string { return fmt.Sprintf("%d.%d", th.last.seq, index) }

// Result adds the result of a call of the newest answer.
func (th *Thread) Result(index int, content ...thread.Block) record.Entry {
	th.T.Helper()
	names, blobs := th.used(content)
	return th.Add(record.ToolFinished, thread.ToolFinished{Blobs: names, Call: th.Call(index), Content: content}, blobs...)
}

// Aborted adds the end of the newest request without an answer.
func (th *Thread) Aborted(body thread.AnswerAborted) record.Entry {
	th.T.Helper()
	body.Request, body.Attempt = th.last.seq, th.last.attempt
	return th.Add(record.AnswerAborted, body)
}

// Repair adds a repair.
func (th *Thread) Repair(p wire.Problem) record.Entry {
	th.T.Helper()
	return th.Add(record.HistoryRepaired, p.Repair)
}

// Erase takes the body of an entry away and adds the entry.erased that says so.
func (th *Thread) Erase(seq record.Seq) {
	th.T.Helper()
	by := th.Add(record.EntryErased, thread.EntryErased{Seq: seq, Hash: th.Lines[seq].Hash.String(), Reason: "test"})
	th.Lines[seq] = th.Lines[seq].Erase(by.Seq)
}

// Problems returns those of the live builder.
func (th *Thread) Problems() []wire.Problem { return th.live.Problems() }

// Text returns a text block.
func Text(s string) thread.Block { return thread.Block{Type: "text", Text: s} }

// Forget takes a blob away from the source.
func (th *Thread) Forget(d record.Digest) { delete(th.blobs, d) }

// Keep stores content as a blob and returns its name.
func (th *Thread) Keep(data []byte) string {
	b := record.NewBlob(data)
	th.blobs[b.Digest] = b.Data
	return b.Ref()
}

// Entries implements builder.Source.
func (th *Thread) Entries(_ context.Context, from record.Seq) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		for _, e := range th.Lines[from:] {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Blob implements builder.Source.
func (th *Thread) Blob(_ context.Context, d record.Digest) ([]byte, error) {
	data, ok := th.blobs[d]
	if !ok {
		return nil, fmt.Errorf("blob %s: %w", d, record.ErrNoBlob)
	}
	return data, nil
}

// Export writes the thread as an export without a head.
func (th *Thread) Export(w io.Writer) {
	th.T.Helper()
	written := make(map[record.Digest]bool)
	for _, e := range th.Lines {
		for _, d := range record.ListedBlobs(e.Body) {
			if !written[d] {
				written[d] = true
				b := record.Blob{Digest: d, Data: th.blobs[d]}
				_, err := w.Write(append(b.AppendLine(nil), '\n'))
				th.check(err)
			}
		}
		_, err := w.Write(append(bytes.Clone(e.Line), '\n'))
		th.check(err)
	}
}

// Package anthropic builds requests of the Anthropic Messages API from the entries of a thread.
//
// A body is head (model, max_tokens, system, tools, thinking), messages and tail (stream, cache_control, diagnostics),
// in this order. An answer is sent back as the provider's own blocks, byte for byte. All results of an answer stand in
// one user message in the order of the calls, then what was said or noted meanwhile; the message ends where a request
// was prepared. The bytes are frozen by [Version]: another rendering is another version.
package anthropic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/rawjson"
)

// Version names this builder in an epoch.
const Version = "anthropic/0"

var _ wire.Builder = (*Builder)(nil)

// Builder implements [wire.Builder].
type Builder struct {
	epoch thread.EpochStarted
	at    record.Seq // of the epoch.started
	amend *wire.Amendments
	blobs wire.Blobs
	out   *rawjson.Writer

	kept      []byte                 // copies of the bodies that pending pieces are slices of
	accepted  map[record.Seq]message // accepted and not placed
	answering bool                   // an answer is pending, perhaps an empty one
	answer    []piece                // its blocks
	calls     []call                 // its calls, in order
	user      []piece                // what follows the results

	messages int
	blocks   int  // tools, system and content blocks written
	last     role // of the last message written
	first    bool // the next block is the first of its message

	sent     int // value of blocks when the epoch's last request ended; 0 before the first
	markers  int // explicit cache breakpoints in the bytes
	reach    bool
	previous []byte // literal: the provider's id of the epoch's last answer

	problems   problems
	unprovable error // set by the first erased entry that the epoch's requests used
}

// message is one that was accepted.
type message struct {
	body     []byte     // of the message.accepted; nil when it is erased
	erasedBy record.Seq // meaningful when body is nil
}

// role of a message.
type role uint8

const (
	nobody role = iota
	user
	assistant
)

// New returns the builder of the epoch that starts at seq at. Amendments are shared with the caller and grow with
// [Builder.Add]. The head is written to w at once.
func New(epoch thread.EpochStarted, at record.Seq, amend *wire.Amendments, blobs wire.Blobs, w io.Writer) *Builder {
	b := &Builder{
		epoch: epoch, at: at, amend: amend, blobs: blobs, out: rawjson.NewWriter(w),
		accepted: make(map[record.Seq]message),
	}
	b.writeHead()
	return b
}

// Add implements [wire.Builder].
func (b *Builder) Add(ctx context.Context, e record.Entry) error {
	if e.Kind == record.RequestPrepared {
		return b.endMessages()
	}
	if e.Body == nil {
		b.erased(e)
		return nil
	}
	var err error
	switch e.Kind {
	case record.MessageAccepted:
		b.accepted[e.Seq] = message{body: bytes.Clone(e.Body)}
	case record.MessagePlaced:
		err = b.placed(ctx, e)
	case record.AnswerFinished:
		err = b.answered(ctx, e)
	case record.AnswerAborted:
		err = b.aborted(ctx, e)
	case record.ToolFinished:
		err = b.finished(ctx, e)
	case record.ToolUnknown:
		err = b.unknown(e)
	case record.NoteInjected:
		err = b.noted(e)
	case record.HistoryRepaired:
		err = b.amend.Add(e)
	}
	if err != nil {
		return fmt.Errorf("build from entry %d (%s): %w", e.Seq, e.Kind, err)
	}
	return nil
}

// Close implements [wire.Builder].
func (b *Builder) Close() (wire.Tail, error) {
	if b.unprovable != nil {
		return wire.Tail{}, b.unprovable
	}
	if err := b.endMessages(); err != nil {
		return wire.Tail{}, err
	}
	if b.messages == 0 {
		return wire.Tail{}, fmt.Errorf("no message before the request: %w", wire.ErrHistory)
	}
	b.sent = b.blocks
	return wire.Tail{Bytes: b.tail(), Messages: b.messages, Blocks: b.blocks, Reach: b.reach}, nil
}

// erased takes an entry without its body.
func (b *Builder) erased(e record.Entry) {
	switch e.Kind {
	case record.MessageAccepted:
		b.accepted[e.Seq] = message{erasedBy: e.ErasedBy}
	case record.MessagePlaced, record.AnswerFinished, record.AnswerAborted, record.ToolFinished, record.ToolUnknown,
		record.NoteInjected, record.HistoryRepaired:
		b.lose(e.Seq, e.ErasedBy)
	}
}

// lose takes note that the entry at seq, which is part of the conversation, was erased by the one at by. What was
// erased before the epoch was never part of its requests; what was erased later was, and takes the proof away.
func (b *Builder) lose(seq, by record.Seq) {
	if by > b.at && b.unprovable == nil {
		b.unprovable = fmt.Errorf("entry %d is erased: %w", seq, wire.ErrUnprovable)
	}
}

// placed moves an accepted message into the conversation.
func (b *Builder) placed(ctx context.Context, e record.Entry) error {
	at, err := field(e.Body, "accepted")
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(string(at), 10, 64)
	seq := record.Seq(n)
	accepted, ok := b.accepted[seq]
	if err != nil || !ok {
		return fmt.Errorf("no message was accepted at entry %.20s: %w", at, wire.ErrHistory)
	}
	delete(b.accepted, seq)
	if accepted.body == nil {
		b.lose(seq, accepted.erasedBy)
		return nil
	}
	var pieces []piece
	var failed error
	c := rawjson.NewCursor(accepted.body)
	c.Fields(func(key []byte) {
		if string(key) == "content" {
			pieces, failed = b.content(ctx, seq, c)
		}
	})
	if err := errors.Join(failed, c.End()); err != nil {
		return err
	}
	checkMessage(pieces)
	b.user = append(b.user, pieces...)
	return nil
}

func (b *Builder) noted(e record.Entry) error {
	body, err := thread.Decode[thread.NoteInjected](e)
	if err == nil {
		note := textPiece(e.Seq, 0, rawjson.Quote(body.Text))
		if isBlank(note.text) {
			note.refuse(blankText, thread.RepairDropBlock, "")
		}
		b.user = append(b.user, note)
	}
	return err
}

// maxKept bounds the memory that is kept for the next message, in bytes.
const maxKept = 1 << 20

// keep returns a copy of body that lasts until the pending messages end.
func (b *Builder) keep(body []byte) []byte {
	if cap(b.kept)-len(b.kept) < len(body) { // slices of the old array stay what they are
		b.kept = make([]byte, 0, max(2*cap(b.kept), len(body)))
	}
	from := len(b.kept)
	b.kept = append(b.kept, body...)
	return b.kept[from:len(b.kept):len(b.kept)]
}

// release gives up the copies.
func (b *Builder) release() {
	if b.kept = b.kept[:0]; cap(b.kept) > maxKept {
		b.kept = nil
	}
}

// field returns the bytes of one field of the body.
func field(body []byte, name string) (found []byte, err error) {
	err = rawjson.Fields(body, func(key, value []byte) {
		if string(key) == name {
			found = value
		}
	})
	if err == nil && found == nil {
		err = fmt.Errorf("no field %q: %w", name, wire.ErrHistory)
	}
	return found, err
}

package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire/rawjson"
)

// Types of native blocks that are treated in a way of their own.
const (
	kindText     = "text"
	kindToolUse  = "tool_use"
	kindThinking = "thinking"
	kindRedacted = "redacted_thinking"
)

// interruptedText stands in the next user message after an answer that a person interrupted.
const interruptedText = "[The answer above was interrupted by the user before it was complete.]"

// answered takes an answer: its native blocks, and its calls in the order of the view.
func (b *Builder) answered(ctx context.Context, e record.Entry) error {
	if err := b.beginAnswer(); err != nil {
		return err
	}
	var ids [][]byte // ours, of the calls
	var provider []byte
	var failed error
	c := rawjson.NewCursor(b.keep(e.Body))
	c.Fields(func(key []byte) {
		switch string(key) {
		case "native":
			failed = b.native(ctx, e.Seq, c)
		case "view":
			ids = callIDs(c)
		case "provider_message_id":
			provider = c.Value()
		}
	})
	if err := errors.Join(failed, c.End()); err != nil {
		return err
	}
	b.number(ids)
	if e.Seq > b.at && rawjson.IsString(provider) {
		b.previous = bytes.Clone(provider)
	}
	return nil
}

// beginAnswer ends what stands before an answer. What was said while it was written stays for after it; a second
// answer without a request between them ends the first.
func (b *Builder) beginAnswer() error {
	if b.answering {
		if err := b.endMessages(); err != nil {
			return err
		}
	}
	b.answering = true
	return nil
}

// native reads the native blocks at the cursor into the answer, and its calls.
func (b *Builder) native(ctx context.Context, seq record.Seq, c *rawjson.Cursor) (failed error) {
	index := 0
	c.Elements(func() {
		if failed != nil {
			return
		}
		var p piece
		var id []byte
		if p, id, failed = b.raw(ctx, c); failed != nil {
			return
		}
		p.seq, p.index = seq, index
		index++
		if p.kind == kindToolUse {
			b.calls = append(b.calls, call{use: len(b.answer), provider: id})
		}
		b.answer = append(b.answer, p)
	})
	return failed
}

// raw reads a [thread.Raw] at the cursor, and the id if it is a tool_use.
func (b *Builder) raw(ctx context.Context, c *rawjson.Cursor) (p piece, id []byte, failed error) {
	c.Fields(func(key []byte) {
		switch string(key) {
		case "json":
			from := c.Offset()
			p, id = nativePiece(c)
			p.raw = c.Since(from)
		case "text":
			text, _ := rawjson.Text(c.Value())
			p, id = foreignPiece(text)
		case "blob":
			var text []byte
			if text, failed = b.blob(ctx, c.Value()); failed == nil {
				p, id = foreignPiece(text)
			}
		}
	})
	if p.raw == nil {
		p = piece{raw: notJSON, problem: "native block is empty", repair: thread.RepairDropBlock}
	}
	return p, id, failed
}

// foreignPiece reads a native block that does not stand in the body as JSON.
func foreignPiece(text []byte) (p piece, id []byte) {
	if json.Valid(text) && bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		c := rawjson.NewCursor(text)
		p, id = nativePiece(c)
		p.raw = bytes.TrimSpace(text)
		return p, id
	}
	p.raw = notJSON
	p.refuse("native block is no JSON object", thread.RepairDropBlock, "")
	return p, nil
}

// notJSON takes the place of a native block that is no JSON, which nothing that we record can be.
var notJSON = []byte(`{}`)

// nativePiece reads the native block at the cursor as far as it matters here, and the id of a tool_use. The caller
// adds the bytes.
func nativePiece(c *rawjson.Cursor) (p piece, id []byte) {
	var typ, text, signature, data []byte
	c.Fields(func(key []byte) {
		switch string(key) {
		case "type":
			typ = c.Value()
		case "id":
			id = c.Value()
		case "text":
			text = c.Value()
		case "signature":
			signature = c.Value()
		case "data":
			data = c.Value()
		}
	})
	switch p.kind = kindOf(typ); {
	case p.kind == "":
		p.refuse("native block has no type", thread.RepairDropBlock, "")
	case p.kind == kindToolUse && !rawjson.IsString(id):
		p.kind = "" // a call that no result can name is none
		p.refuse("call without an id", thread.RepairDropBlock, "")
	case p.kind == kindText && isBlank(text):
		p.refuse(blankText, thread.RepairDropBlock, "")
	case p.kind == kindThinking && len(signature) <= len(`""`):
		p.refuse("thinking block without a signature", thread.RepairDropBlock, "")
	case p.kind == kindRedacted && len(data) <= len(`""`):
		p.refuse("redacted thinking block without data", thread.RepairDropBlock, "")
	}
	return p, id
}

// kindOf returns the type that a literal names; "" when it is no string.
func kindOf(literal []byte) string {
	switch string(literal) {
	case `"text"`:
		return kindText
	case `"tool_use"`:
		return kindToolUse
	}
	name, _ := rawjson.Text(literal)
	return string(name)
}

// aborted takes an answer that a person interrupted: finished blocks stay, but neither calls nor unsigned thinking; the
// shown text of the unfinished block becomes a text block. Any other cause leaves nothing.
func (b *Builder) aborted(ctx context.Context, e record.Entry) error {
	body, err := thread.Decode[thread.AnswerAborted](e)
	if err != nil || body.Cause != thread.CauseInterrupt {
		return err
	}
	if err := b.beginAnswer(); err != nil {
		return err
	}
	var failed error
	c := rawjson.NewCursor(b.keep(e.Body))
	c.Fields(func(key []byte) {
		if string(key) == "native" {
			failed = b.native(ctx, e.Seq, c)
		}
	})
	if err := errors.Join(failed, c.End()); err != nil {
		return err
	}
	b.calls = b.calls[:0]
	kept := b.answer[:0]
	for _, p := range b.answer {
		if p.kind != kindToolUse && p.problem == "" {
			kept = append(kept, p)
		}
	}
	if shown := rawjson.Quote(body.ShownText); !isBlank(shown) {
		kept = append(kept, textPiece(e.Seq, len(body.Native), shown))
	}
	b.answer = kept
	b.user = append(b.user, fixedPiece(interruptedText))
	return nil
}

func isThinking(kind string) bool { return kind == kindThinking || kind == kindRedacted }

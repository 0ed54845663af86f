package anthropic

import (
	"bytes"
	"context"
	"encoding/json"

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
	var native, view, id []byte
	err := rawjson.Fields(b.keep(e.Body), func(key, value []byte) {
		switch string(key) {
		case "native":
			native = value
		case "view":
			view = value
		case "provider_message_id":
			id = value
		}
	})
	if err != nil {
		return err
	}
	uses, err := b.native(ctx, e.Seq, native)
	if err != nil {
		return err
	}
	if err := b.number(uses, view); err != nil {
		return err
	}
	if e.Seq > b.at && rawjson.IsString(id) {
		b.previous = bytes.Clone(id)
	}
	return nil
}

// beginAnswer ends what stands before an answer. What was said while it was written stays for after it; a second
// answer without a request between them ends the first.
func (b *Builder) beginAnswer() error {
	if b.answer == nil {
		return nil
	}
	return b.endMessages()
}

// native appends the native blocks to the answer and returns its calls without their numbers.
func (b *Builder) native(ctx context.Context, seq record.Seq, list []byte) (uses []call, err error) {
	var failed error
	index := 0
	err = rawjson.Elements(list, func(value []byte) {
		if failed != nil {
			return
		}
		var raw []byte
		if raw, failed = b.raw(ctx, value); failed != nil {
			return
		}
		p, id := nativePiece(seq, index, raw)
		if p.kind == kindToolUse {
			uses = append(uses, call{use: len(b.answer), provider: id})
		}
		b.answer = append(b.answer, p)
		index++
	})
	if failed != nil {
		return nil, failed
	}
	return uses, err
}

// raw returns the bytes of a [thread.Raw].
func (b *Builder) raw(ctx context.Context, value []byte) (raw []byte, err error) {
	var failed error
	err = rawjson.Fields(value, func(key, value []byte) {
		switch string(key) {
		case "json":
			raw = value
		case "text":
			if raw, _ = rawjson.Text(value); !json.Valid(raw) {
				raw = notJSON
			}
		case "blob":
			if raw, failed = b.blob(ctx, value); !json.Valid(raw) {
				raw = notJSON
			}
		}
	})
	if failed != nil {
		return nil, failed
	}
	return bytes.TrimSpace(raw), err
}

// notJSON takes the place of a native block that is no JSON, which nothing that we record can be.
var notJSON = []byte(`{}`)

// nativePiece looks at a native block as far as it matters here, and returns the id of a tool_use.
func nativePiece(seq record.Seq, index int, raw []byte) (p piece, id []byte) {
	p = piece{seq: seq, index: index, raw: raw}
	var typ, text, signature, data []byte
	err := rawjson.Fields(raw, func(key, value []byte) {
		switch string(key) {
		case "type":
			typ = value
		case "id":
			id = value
		case "text":
			text = value
		case "signature":
			signature = value
		case "data":
			data = value
		}
	})
	name, ok := rawjson.Text(typ)
	if err != nil || !ok {
		p.raw = notJSON
		p.refuse("native block has no type", thread.RepairDropBlock, "")
		return p, nil
	}
	p.kind = string(name)
	switch {
	case p.kind == kindText && isBlank(text):
		p.refuse(blankText, thread.RepairDropBlock, "")
	case p.kind == kindThinking && len(signature) <= len(`""`):
		p.refuse("thinking block without a signature", thread.RepairDropBlock, "")
	case p.kind == kindRedacted && len(data) <= len(`""`):
		p.refuse("redacted thinking block without data", thread.RepairDropBlock, "")
	}
	return p, id
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
	if native, err := field(b.keep(e.Body), "native"); err == nil {
		if _, err := b.native(ctx, e.Seq, native); err != nil {
			return err
		}
	}
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

// sendable returns the answer as it is sent: amended, and without thinking at its end, which the provider refuses.
func (b *Builder) sendable() []piece {
	var kept []piece
	for _, p := range b.answer {
		if p, ok := b.amended(p); ok {
			kept = append(kept, p)
		}
	}
	for len(kept) > 0 && isThinking(kept[len(kept)-1].kind) {
		kept = kept[:len(kept)-1]
	}
	return kept
}

func isThinking(kind string) bool { return kind == kindThinking || kind == kindRedacted }

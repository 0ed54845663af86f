package anthropic

import (
	"context"
	"errors"
	"fmt"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire/rawjson"
)

// Texts of results that are ours.
const (
	noOutputText = "(no output)"
	noResultText = "[No result of this call was recorded.]"
	unknownText  = "[It is not known whether this call took effect: it was started and then cut off (%s). " +
		"Check before doing it again.]"
	partialText = "\nOutput seen before:\n"
)

// call is one tool call of the answer that is not yet written, with its result.
type call struct {
	id       string // ours
	provider []byte // literal: the provider's id
	use      int    // index of its tool_use in the answer
	done     bool
	seq      record.Seq // of the result
	isError  bool
	result   []piece
}

// callIDs reads our ids of the calls of a view at the cursor.
func callIDs(c *rawjson.Cursor) (ids [][]byte) {
	c.Elements(func() {
		var typ, id []byte
		c.Fields(func(key []byte) {
			switch string(key) {
			case "type":
				typ = c.Value()
			case "call":
				id = c.Value()
			}
		})
		if string(typ) == `"tool_call"` {
			ids = append(ids, id)
		}
	})
	return ids
}

// number gives the calls our ids, in order.
func (b *Builder) number(ids [][]byte) {
	for i := range b.calls[:min(len(b.calls), len(ids))] {
		name, _ := rawjson.Text(ids[i])
		b.calls[i].id = string(name)
	}
}

// finished takes the result of a call.
func (b *Builder) finished(ctx context.Context, e record.Entry) error {
	var id, isError []byte
	var list []piece
	var failed error
	c := rawjson.NewCursor(b.keep(e.Body))
	c.Fields(func(key []byte) {
		switch string(key) {
		case "call":
			id = c.Value()
		case "is_error":
			isError = c.Value()
		case "content":
			list, failed = b.content(ctx, e.Seq, c)
		}
	})
	if err := errors.Join(failed, c.End()); err != nil {
		return err
	}
	name, _ := rawjson.Text(id)
	if of := b.open(e.Seq, string(name)); of != nil {
		of.isError, of.result = string(isError) == "true", list
	}
	return nil
}

// unknown takes the news that nobody knows whether a call took effect.
func (b *Builder) unknown(e record.Entry) error {
	body, err := thread.Decode[thread.ToolUnknown](e)
	if err != nil {
		return err
	}
	c := b.open(e.Seq, body.Call)
	if c == nil {
		return nil
	}
	text := fmt.Sprintf(unknownText, body.Cause)
	if body.Partial != "" {
		text += partialText + body.Partial
	}
	c.isError = true
	c.result = []piece{textPiece(e.Seq, 0, rawjson.Quote(text))}
	return nil
}

// open returns the call that waits for the result in the entry at seq, or nil: then it is an orphan.
func (b *Builder) open(seq record.Seq, id string) *call {
	why := "result belongs to no call"
	for i := range b.calls {
		c := &b.calls[i]
		if c.id != id {
			continue
		}
		if b.amend.ResultDropped(seq) {
			return nil
		}
		if !c.done {
			c.done, c.seq = true, seq
			return c
		}
		why = "call has a result already"
		break
	}
	if !b.amend.ResultDropped(seq) {
		b.problems.orphan(seq, why)
	}
	return nil
}

// writeResult writes the result of c. Text without a visible character is left out, because the provider refuses it;
// a result without content says so.
func (b *Builder) writeResult(c call, marked bool) {
	w := b.out
	w.Raw(`{"type":"tool_result","tool_use_id":`)
	w.Bytes(c.provider)
	w.Raw(`,"content":[`)
	n := 0
	for _, p := range c.result {
		p, ok := b.amended(p)
		if !ok || p.text != nil && isBlank(p.text) {
			continue
		}
		if n > 0 {
			w.Raw(`,`)
		}
		b.writePiece(p, false)
		n++
	}
	switch {
	case n > 0:
	case c.done:
		b.writePiece(fixedPiece(noOutputText), false)
	default:
		b.writePiece(fixedPiece(noResultText), false)
	}
	w.Raw(`]`)
	if c.isError || !c.done {
		w.Raw(`,"is_error":true`)
	}
	if marked {
		w.Raw(b.marker())
	}
	w.Raw(`}`)
}

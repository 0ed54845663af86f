package anthropic

import (
	"context"
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

// number gives the calls the ids that the view has for them.
func (b *Builder) number(uses []call, view []byte) error {
	b.calls = uses
	if len(uses) == 0 {
		return nil
	}
	n := 0
	return rawjson.Elements(view, func(block []byte) {
		var typ, id []byte
		_ = rawjson.Fields(block, func(key, value []byte) { // checked when the view was walked
			switch string(key) {
			case "type":
				typ = value
			case "call":
				id = value
			}
		})
		if string(typ) == `"tool_call"` && n < len(uses) {
			name, _ := rawjson.Text(id)
			uses[n].id = string(name)
			n++
		}
	})
}

// finished takes the result of a call.
func (b *Builder) finished(ctx context.Context, e record.Entry) error {
	var id, isError, list []byte
	err := rawjson.Fields(b.keep(e.Body), func(key, value []byte) {
		switch string(key) {
		case "call":
			id = value
		case "is_error":
			isError = value
		case "content":
			list = value
		}
	})
	if err != nil {
		return err
	}
	name, _ := rawjson.Text(id)
	c := b.open(e.Seq, string(name))
	if c == nil {
		return nil
	}
	c.isError = string(isError) == "true"
	c.result, err = b.content(ctx, e.Seq, list)
	return err
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
	w.Literal(c.provider)
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

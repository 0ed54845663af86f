package anthropic

import (
	"bytes"
	"context"
	"fmt"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/rawjson"
)

// piece is one content block as it will be sent, before repairs. Exactly one of text, raw and image is set.
type piece struct {
	seq   record.Seq // the entry and
	index int        // the block that a repair names
	fixed bool       // a text of ours, which no repair names

	text  []byte // literal
	raw   []byte // a native block, verbatim
	kind  string // type of the native block; only the ones that matter here
	image []byte // content
	media string // of the image, as in the record

	problem string // why the provider would refuse it; "" when it would not
	repair  string // what to do then
	instead string // text of a replacement
}

func textPiece(seq record.Seq, index int, literal []byte) piece {
	return piece{seq: seq, index: index, text: literal}
}

func fixedPiece(text string) piece { return piece{fixed: true, text: rawjson.Quote(text)} }

// size estimates the bytes that p takes in a request.
func (p piece) size() int64 {
	return int64(len(p.text) + len(p.raw) + base64Len(len(p.image)))
}

// content reads the list of neutral blocks at the cursor: the content of a message or of a tool's result.
func (b *Builder) content(ctx context.Context, seq record.Seq, c *rawjson.Cursor) (pieces []piece, failed error) {
	c.Elements(func() {
		if failed == nil {
			var p piece
			p, failed = b.block(ctx, seq, len(pieces), c)
			pieces = append(pieces, p)
		}
	})
	return pieces, failed
}

// block reads one neutral block.
func (b *Builder) block(ctx context.Context, seq record.Seq, index int, c *rawjson.Cursor) (piece, error) {
	var typ, text, media, ref []byte
	c.Fields(func(key []byte) {
		switch string(key) {
		case "type":
			typ = c.Value()
		case "text":
			text = c.Value()
		case "media_type":
			media = c.Value()
		case "blob":
			ref = c.Value()
		}
	})
	switch string(typ) {
	case `"text"`:
		p := textPiece(seq, index, []byte(`""`))
		if ref != nil {
			data, err := b.blob(ctx, ref)
			if err != nil {
				return piece{}, err
			}
			p.text = rawjson.Quote(data)
		} else if rawjson.IsString(text) {
			p.text = text
		}
		return p, nil
	case `"image"`:
		data, err := b.blob(ctx, ref)
		if err != nil {
			return piece{}, err
		}
		name, _ := rawjson.Text(media)
		p := piece{seq: seq, index: index, image: data, media: string(name)}
		b.checkImage(&p)
		return p, nil
	}
	return piece{}, fmt.Errorf("block %d of entry %d has type %.40s: %w", index, seq, typ, wire.ErrHistory)
}

// blob reads the content that a literal of the form "sha256:…" names.
func (b *Builder) blob(ctx context.Context, ref []byte) ([]byte, error) {
	name, _ := rawjson.Text(ref)
	hex, ok := bytes.CutPrefix(name, []byte(record.BlobPrefix))
	if !ok {
		return nil, fmt.Errorf("blob %.80q: %w", name, wire.ErrHistory)
	}
	d, err := record.ParseDigest(string(hex))
	if err != nil {
		return nil, err
	}
	return b.blobs.Blob(ctx, d)
}

// amended returns p as the amendments have it; ok is false when it is left out.
func (b *Builder) amended(p piece) (_ piece, ok bool) {
	if p.fixed {
		return p, true
	}
	r, repaired := b.amend.Repair(p.seq, p.index)
	switch {
	case !repaired:
		return p, true
	case r.Repair == thread.RepairReplaceText:
		text := rawjson.Quote(r.Text)
		return textPiece(p.seq, p.index, text), !isBlank(text)
	default:
		return p, false
	}
}

// writePiece writes p, with a cache breakpoint when marked.
func (b *Builder) writePiece(p piece, marked bool) {
	w := b.out
	switch {
	case p.raw != nil:
		w.Bytes(p.raw[:len(p.raw)-1])
	case p.text != nil:
		w.Raw(`{"type":"text","text":`)
		w.Bytes(p.text)
	default:
		w.Raw(`{"type":"image","source":{"type":"base64","media_type":`)
		w.String(p.media)
		w.Raw(`,"data":`)
		w.Base64(p.image)
		w.Raw(`}`)
	}
	if marked {
		w.Raw(b.marker())
	}
	w.Raw(`}`)
}

// canMark says whether p can carry a cache breakpoint: thinking cannot, and of native blocks we only touch the two
// kinds whose form we know.
func (p piece) canMark() bool { return p.raw == nil || p.kind == kindText || p.kind == kindToolUse }

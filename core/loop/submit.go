package loop

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"image"
	_ "image/gif" // formats that an image of a message may have
	_ "image/jpeg"
	_ "image/png"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// Limits of a message. A message over one of them is refused with an error of class too_large.
const (
	MaxBlocks     = 100      // blocks
	MaxText       = 4 << 20  // bytes of one text block
	MaxImage      = 15 << 18 // bytes of one image: 5 MiB in base64
	MaxImagePixel = 8000     // pixels of one side of an image
)

// ErrTooLarge: a message is over a limit; the error names the block.
var ErrTooLarge = fault.New(fault.TooLarge, "message-too-large", "message is over a limit")

// accepted checks a message and returns how it stands in the record. The error names the block that is wrong, by its
// place counted from 0: a block that the provider would refuse is refused here, while its sender can still mend it.
func (m Message) accepted() (thread.MessageAccepted, []record.Blob, error) {
	body := thread.MessageAccepted{ID: m.ID, Mode: cmp.Or(m.Mode, thread.ModeQueue), By: cmp.Or(m.By, "owner")}
	switch {
	case !record.ValidID(record.PrefixMessage, m.ID):
		return body, nil, fmt.Errorf("id %.80q is not msg_ and 26 characters: %w", m.ID, ErrInvalidMessage)
	case !slices.Contains([]string{thread.ModeQueue, thread.ModeSteer, thread.ModeStartIfIdle, thread.ModeReject}, body.Mode):
		return body, nil, fmt.Errorf("mode %.20q: %w", m.Mode, ErrInvalidMessage)
	case len(m.Content) == 0:
		return body, nil, fmt.Errorf("no content: %w", ErrInvalidMessage)
	case len(m.Content) > MaxBlocks:
		return body, nil, fmt.Errorf("%d blocks, limit %d: %w", len(m.Content), MaxBlocks, ErrTooLarge)
	}
	var blobs blobList
	room := record.InlineLimit
	for i, b := range m.Content {
		kept, err := blobs.content(b, m.Blobs, room)
		if err != nil {
			return body, nil, fmt.Errorf("block %d: %w", i, err)
		}
		room -= len(kept.Text)
		body.Content = append(body.Content, kept)
	}
	body.Blobs = blobs.refs()
	sum := sha256.Sum256(slices.Concat([]byte(body.Mode+"\n"), thread.Encode(body.Content)))
	body.BodySHA256 = hex.EncodeToString(sum[:])
	return body, blobs, nil
}

// content checks one block of a message; images, and text of more than room bytes, become blobs.
func (l *blobList) content(b thread.Block, given []record.Blob, room int) (thread.Block, error) {
	switch b.Type {
	case thread.BlockText:
		switch {
		case !utf8.ValidString(b.Text):
			return b, fmt.Errorf("text is not UTF-8: %w", ErrInvalidMessage)
		case strings.TrimFunc(b.Text, invisible) == "":
			return b, fmt.Errorf("text is empty: %w", ErrInvalidMessage)
		case len(b.Text) > MaxText:
			return b, fmt.Errorf("text of %d bytes, limit %d: %w", len(b.Text), MaxText, ErrTooLarge)
		case len(b.Text) > room:
			return thread.Block{Type: b.Type, Blob: l.add([]byte(b.Text))}, nil
		}
		return thread.Block{Type: b.Type, Text: b.Text}, nil
	case thread.BlockImage:
		at := slices.IndexFunc(given, func(g record.Blob) bool { return g.Ref() == b.Blob })
		if at < 0 {
			return b, fmt.Errorf("image has no data: %w", ErrInvalidMessage)
		}
		data := given[at].Data
		if err := checkImage(b.MediaType, data); err != nil {
			return b, err
		}
		return thread.Block{Type: b.Type, MediaType: b.MediaType, Blob: l.add(data)}, nil
	}
	return b, fmt.Errorf("type %.20q is neither text nor image: %w", b.Type, ErrInvalidMessage)
}

// invisible says whether a provider does not count r as text.
func invisible(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

func checkImage(mediaType string, data []byte) error {
	if len(data) > MaxImage {
		return fmt.Errorf("image of %d bytes, limit %d: %w", len(data), MaxImage, ErrTooLarge)
	}
	if mediaType == "image/webp" {
		if len(data) < 16 || !bytes.HasPrefix(data, []byte("RIFF")) || string(data[8:12]) != "WEBP" {
			return fmt.Errorf("image is not webp: %w", ErrInvalidMessage)
		}
		return nil
	}
	config, format, err := image.DecodeConfig(bytes.NewReader(data))
	switch {
	case err != nil:
		return fmt.Errorf("image cannot be read (png, jpeg, gif and webp can): %w", ErrInvalidMessage)
	case mediaType != "image/"+format:
		return fmt.Errorf("image is %s, its media type says %.40q: %w", format, mediaType, ErrInvalidMessage)
	case config.Width > MaxImagePixel || config.Height > MaxImagePixel:
		return fmt.Errorf("image of %d x %d pixels, limit %d a side: %w", config.Width, config.Height, MaxImagePixel, ErrTooLarge)
	}
	return nil
}

package httpapi

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// MaxBlocks is how many blocks a message may have.
const MaxBlocks = 256

// imageTypes are the media types of images that providers take.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// content collects the blocks of a message. Text stays in the body of its entry while all of it together is at most
// record.InlineLimit; more text, and every image, becomes a blob.
type content struct {
	blocks []thread.Block
	blobs  []record.Blob
	inline int // bytes of text kept in blocks
}

// decodeContent reads the content of a message: a string, or an array of text and image blocks. What no provider takes
// (nothing at all, blank text, an image of another type than it says) is refused here, by its place.
func decodeContent(v value) ([]thread.Block, []record.Blob, error) {
	var c content
	if v.isText() {
		err := c.addText(v)
		return c.blocks, c.blobs, err
	}
	items, err := v.array(MaxBlocks)
	if err != nil {
		return nil, nil, err
	}
	if len(items) == 0 {
		return nil, nil, malformed(v.path, "is empty")
	}
	for _, item := range items {
		if err := c.add(item); err != nil {
			return nil, nil, err
		}
	}
	return c.blocks, c.blobs, nil
}

func (c *content) add(v value) error {
	fields, err := v.object("type", "text", "media_type", "data")
	if err != nil {
		return err
	}
	kind, ok := fields["type"]
	if !ok {
		return malformed(v.path+".type", "is missing")
	}
	name, err := kind.oneOf("text", "image")
	if err != nil {
		return err
	}
	needed := []string{"text"}
	if name == "image" {
		needed = []string{"media_type", "data"}
	}
	for _, field := range needed {
		if _, ok := fields[field]; !ok {
			return malformed(v.path+"."+field, "is missing")
		}
	}
	if len(fields) != 1+len(needed) {
		return malformed(v.path, "a block of type %s takes %s only", name, strings.Join(needed, " and "))
	}
	if name == "text" {
		return c.addText(fields["text"])
	}
	return c.addImage(fields["media_type"], fields["data"])
}

func (c *content) addText(v value) error {
	text, err := v.text()
	if err != nil {
		return err
	}
	if strings.TrimSpace(text) == "" {
		return malformed(v.path, "is blank")
	}
	if c.inline+len(text) <= record.InlineLimit {
		c.inline += len(text)
		c.blocks = append(c.blocks, thread.Block{Type: "text", Text: text})
		return nil
	}
	ref, err := c.addBlob(v.path, []byte(text))
	c.blocks = append(c.blocks, thread.Block{Type: "text", Blob: ref})
	return err
}

func (c *content) addImage(mediaType, data value) error {
	declared, err := mediaType.oneOf(imageTypes...)
	if err != nil {
		return err
	}
	encoded, err := data.text()
	if err != nil {
		return err
	}
	image, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return malformed(data.path, "not base64: %v", err)
	}
	if seen := http.DetectContentType(image); seen != declared {
		return malformed(data.path, "is %s, media_type says %s", seen, declared)
	}
	ref, err := c.addBlob(data.path, image)
	c.blocks = append(c.blocks, thread.Block{Type: "image", MediaType: declared, Blob: ref})
	return err
}

// addBlob keeps data once and returns how a body names it.
func (c *content) addBlob(path string, data []byte) (string, error) {
	if len(data) > record.MaxBlob {
		return "", fault.New(fault.TooLarge, "content-too-large",
			fmt.Sprintf("%s: %d bytes, the limit is %d", path, len(data), record.MaxBlob))
	}
	blob := record.NewBlob(data)
	if !slices.ContainsFunc(c.blobs, func(b record.Blob) bool { return b.Digest == blob.Digest }) {
		c.blobs = append(c.blobs, blob)
	}
	return blob.Ref(), nil
}

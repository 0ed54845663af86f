package httpapi

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// imageTypes are the media types of images that providers take.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// content collects the blocks of a message: text as it is, images as blobs. The loop decides how they are recorded, and
// which are too large.
type content struct {
	blocks []thread.Block
	blobs  []record.Blob
}

// decodeContent reads the content of a message: a string, or an array of text and image blocks. What no provider takes
// (nothing at all, blank text, an image of another type than it says) is refused here, by its place.
func decodeContent(v value) ([]thread.Block, []record.Blob, error) {
	var c content
	if v.isText() {
		err := c.addText(v)
		return c.blocks, c.blobs, err
	}
	items, err := v.array(loop.MaxBlocks)
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
	c.blocks = append(c.blocks, thread.Block{Type: "text", Text: text})
	return nil
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
	blob := record.NewBlob(image)
	if !slices.ContainsFunc(c.blobs, func(b record.Blob) bool { return b.Digest == blob.Digest }) {
		c.blobs = append(c.blobs, blob)
	}
	c.blocks = append(c.blocks, thread.Block{Type: "image", MediaType: declared, Blob: blob.Ref()})
	return nil
}

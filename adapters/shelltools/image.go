package shelltools

import (
	"bytes"
	"fmt"
	"image"
	_ "image/gif"  // so that its dimensions can be read
	_ "image/jpeg" // so that its dimensions can be read
	_ "image/png"  // so that its dimensions can be read
	"io"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// imageType returns the media type of an image that models can see, by its first bytes, or "".
func imageType(head []byte) string {
	starts := func(at int, magic string) bool {
		return len(head) >= at+len(magic) && string(head[at:at+len(magic)]) == magic
	}
	switch {
	case starts(0, "\x89PNG\r\n\x1a\n"):
		return "image/png"
	case starts(0, "\xff\xd8\xff"):
		return "image/jpeg"
	case starts(0, "GIF87a"), starts(0, "GIF89a"):
		return "image/gif"
	case starts(0, "RIFF") && starts(8, "WEBP"):
		return "image/webp"
	default:
		return ""
	}
}

// readImage returns the image as a block. One that a provider would refuse is an error: in the history it would break
// every later request.
func readImage(r io.ReaderAt, size int64, media string) (loop.Result, error) {
	if size > MaxImage {
		return loop.Result{}, fmt.Errorf("is an image of %d bytes; the limit is %d", size, MaxImage)
	}
	data := make([]byte, size)
	if n, err := r.ReadAt(data, 0); int64(n) < size {
		return loop.Result{}, err
	}
	if media != "image/webp" { // the standard library does not read it
		shape, _, err := image.DecodeConfig(bytes.NewReader(data))
		if err != nil {
			return loop.Result{}, fmt.Errorf("looks like an image, but is none: %w", err)
		}
		if shape.Width > MaxImageSide || shape.Height > MaxImageSide {
			return loop.Result{}, fmt.Errorf("is an image of %d x %d pixels; the limit is %d in each direction",
				shape.Width, shape.Height, MaxImageSide)
		}
	}
	blob := record.NewBlob(data)
	return loop.Result{
		Content: []thread.Block{{Type: thread.BlockImage, MediaType: media, Blob: blob.Ref()}},
		Blobs:   []record.Blob{blob},
	}, nil
}

package anthropic

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	_ "image/gif"  // reads the size of GIF images
	_ "image/jpeg" // … of JPEG images
	_ "image/png"  // … of PNG images
	"slices"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
)

// Limits of the provider on images.
const (
	maxImage      = 5 << 20 // bytes of base64
	maxSide       = 8000    // pixels
	manyImages    = 20      // with more in a request, each side is at most
	maxSideOfMany = 2000    // pixels
	maxImages     = 100     // in a request
)

// wideImage is an image that is too large as soon as a request holds many.
type wideImage struct {
	seq   record.Seq
	index int
	sent  bool
}

func base64Len(n int) int { return base64.StdEncoding.EncodedLen(n) }

// checkImage refuses an image that the provider would refuse. Images that are replaced already do not count.
func (b *Builder) checkImage(p *piece) {
	if _, repaired := b.amend.Repair(p.seq, p.index); repaired {
		return
	}
	why, side := imageProblem(p.image, p.media)
	if why == "" && b.problems.images >= maxImages {
		why = fmt.Sprintf("more than %d images in a request", maxImages)
	}
	if why != "" {
		p.refuse("image: "+why, thread.RepairReplaceText, fmt.Sprintf(imageLeftText, why))
		return
	}
	b.problems.images++
	if side > maxSideOfMany {
		b.problems.wide = append(b.problems.wide, wideImage{seq: p.seq, index: p.index})
	}
}

// imageProblem says what is wrong with an image, "" for nothing, and its longer side in pixels, 0 when unknown.
func imageProblem(data []byte, media string) (why string, side int) {
	if n := base64Len(len(data)); n > maxImage {
		return fmt.Sprintf("%d bytes in base64, limit %d", n, maxImage), 0
	}
	if media == "image/webp" { // its size is not looked at
		if len(data) < 12 || string(data[:4]) != "RIFF" || string(data[8:12]) != "WEBP" {
			return "not a WebP image", 0
		}
		return "", 0
	}
	if !slices.Contains([]string{"image/png", "image/jpeg", "image/gif"}, media) {
		return fmt.Sprintf("media type %.40q is not supported", media), 0
	}
	config, format, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || "image/"+format != media {
		return fmt.Sprintf("not readable as %s", media), 0
	}
	if side = max(config.Width, config.Height); side > maxSide {
		return fmt.Sprintf("%d by %d pixels, limit %d", config.Width, config.Height, maxSide), side
	}
	return "", side
}

// wideProblems returns the images that are too large because the request holds many.
func (b *Builder) wideProblems() []wire.Problem {
	if b.problems.images <= manyImages {
		return nil
	}
	var found []wire.Problem
	why := fmt.Sprintf("more than %d pixels in a request with more than %d images", maxSideOfMany, manyImages)
	for _, w := range b.problems.wide {
		if _, repaired := b.amend.Repair(w.seq, w.index); repaired {
			continue
		}
		p := piece{seq: w.seq, index: w.index}
		p.refuse("image: "+why, thread.RepairReplaceText, fmt.Sprintf(imageLeftText, why))
		found = append(found, p.asProblem(w.sent))
	}
	return found
}

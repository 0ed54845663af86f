package anthropic_test

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color/palette"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire/wiretest"
)

var (
	pixel   = pngOf(1, 1)
	pixel64 = base64.StdEncoding.EncodeToString(pixel)
)

func pngOf(width, height int) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func jpegOf(width, height int) []byte {
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, width, height)), nil); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func gifOf(width, height int) []byte {
	var b bytes.Buffer
	if err := gif.Encode(&b, image.NewPaletted(image.Rect(0, 0, width, height), palette.Plan9[:16]), nil); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// Images that the provider would refuse are found before they are sent, each with a text that takes its place.
func TestImageProblems(t *testing.T) {
	webp := []byte("RIFF\x00\x00\x00\x00WEBPVP8 ")
	for name, tc := range map[string]struct {
		data  []byte
		media string
		why   string // "" for a good one
	}{
		"png":            {pngOf(8000, 1), "image/png", ""},
		"jpeg":           {jpegOf(10, 10), "image/jpeg", ""},
		"gif":            {gifOf(10, 10), "image/gif", ""},
		"webp":           {webp, "image/webp", ""},
		"not webp":       {[]byte("RIFF"), "image/webp", "not a WebP image"},
		"too wide":       {pngOf(8001, 1), "image/png", "8001 by 1 pixels, limit 8000"},
		"too many bytes": {append(pngOf(1, 1), make([]byte, 4<<20)...), "image/png", "bytes in base64, limit 5242880"},
		"wrong type":     {jpegOf(1, 1), "image/png", "not readable as image/png"},
		"no image":       {[]byte("hello"), "image/png", "not readable"},
		"empty":          {nil, "image/gif", "not readable"},
		"svg":            {[]byte("<svg/>"), "image/svg+xml", "not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			th := begin(t)
			e := th.Message(wiretest.Text("look"), thread.Block{Type: "image", MediaType: tc.media, Blob: th.Keep(tc.data)})
			problems := th.Problems()
			if tc.why == "" {
				require.Empty(t, problems)
				require.Contains(t, messages(th), `{"type":"base64","media_type":"`+tc.media+`"`)
				return
			}
			require.Len(t, problems, 1)
			p := problems[0]
			require.False(t, p.Sent)
			require.Equal(t, e.Seq, p.Repair.Target)
			require.Equal(t, 1, p.Repair.Block)
			require.Equal(t, thread.RepairReplaceText, p.Repair.Repair)
			require.Contains(t, p.Repair.Why, tc.why)
			th.Repair(p)
			require.Empty(t, th.Problems())
			got := messages(th)
			require.Contains(t, got, "[An image was left out: ")
			require.NotContains(t, got, "base64\"")
		})
	}
}

// With more than twenty images in a request a large side is too much, also in images that were sent before.
func TestManyImages(t *testing.T) {
	th := begin(t)
	wide := th.Message(thread.Block{Type: "image", MediaType: "image/png", Blob: th.Keep(pngOf(2001, 1))})
	th.Request()
	th.Answer(textBlock("ok"))
	small := make([]thread.Block, 19)
	for i := range small {
		small[i] = thread.Block{Type: "image", MediaType: "image/png", Blob: th.Keep(pixel)}
	}
	th.Message(small...)
	require.Empty(t, th.Problems(), "twenty images")
	new := th.Message(thread.Block{Type: "image", MediaType: "image/png", Blob: th.Keep(pngOf(1, 2002))})
	problems := th.Problems()
	require.Len(t, problems, 2)
	require.Equal(t, wide.Seq, problems[0].Repair.Target)
	require.True(t, problems[0].Sent, "a new epoch must follow")
	require.Equal(t, new.Seq, problems[1].Repair.Target)
	require.False(t, problems[1].Sent)
	for _, p := range problems {
		th.Repair(p)
	}
	require.Empty(t, th.Problems())
	th.Begin(bare())
	require.Empty(t, th.Problems())
	require.Equal(t, 19, strings.Count(messages(th), `"type":"image"`))
}

// No request holds more than a hundred images.
func TestTooManyImages(t *testing.T) {
	th := begin(t)
	var blocks []thread.Block
	for range 102 {
		blocks = append(blocks, thread.Block{Type: "image", MediaType: "image/png", Blob: th.Keep(pixel)})
	}
	th.Message(blocks...)
	require.Len(t, th.Problems(), 2)
	for _, p := range th.Problems() {
		th.Repair(p)
	}
	require.Equal(t, 100, strings.Count(messages(th), `"type":"image"`))
}

// An image in a result is found and replaced inside the result.
func TestImageInResult(t *testing.T) {
	th := begin(t)
	th.Message(wiretest.Text("hi"))
	th.Request()
	th.Answer(useA)
	e := th.Result(0, wiretest.Text("see"), thread.Block{Type: "image", MediaType: "image/png", Blob: th.Keep([]byte("x"))})
	require.Len(t, th.Problems(), 1)
	require.Equal(t, e.Seq, th.Problems()[0].Repair.Target)
	th.Repair(th.Problems()[0])
	require.Contains(t, messages(th), `"content":[`+textBlock("see")+`,`+textBlock("[An image was left out: not readable as image/png.]")+`]}`)
}

// A blob that the source does not have is an error of the source, with its name.
func TestMissingBlob(t *testing.T) {
	th := wiretest.New(t)
	th.Begin(bare())
	b := record.NewBlob([]byte("x"))
	accepted := th.Add(record.MessageAccepted, thread.MessageAccepted{
		Blobs: []string{b.Ref()}, ID: "msg_1", Content: []thread.Block{{Type: "text", Blob: b.Ref()}},
	}, b)
	th.Forget(b.Digest)
	err := th.Try(record.MessagePlaced, thread.MessagePlaced{ID: "msg_1", Accepted: accepted.Seq})
	require.ErrorIs(t, err, record.ErrNoBlob)
	require.ErrorContains(t, err, b.Digest.String())
}

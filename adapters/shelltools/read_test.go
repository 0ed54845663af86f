package shelltools

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
)

func TestRead(t *testing.T) {
	b := newBench(t)
	b.put("three", "one\ntwo\nthree\n")
	b.put("open", "one\r\n\r\nlast")
	b.put("empty", "")
	b.put("latin", "caf\xe9\n")
	b.put("binary", "ELF\x00")
	b.put("sub/deep", "x")
	b.put("long", strings.Repeat("é", MaxLine)+"\nnext\n")
	require.NoError(t, syscall.Mkfifo(b.path("pipe"), 0o600))

	require.Equal(t, "     1\tone\n     2\ttwo\n     3\tthree\n", b.text("read", readInput{Path: "three"}))
	require.Equal(t, "     1\tone\n     2\t\n     3\tlast\n", b.text("read", readInput{Path: b.path("open")}))
	require.Equal(t, "     2\ttwo\n[the file goes on; read it with \"offset\": 3]\n", b.text("read", readInput{Path: "three", Offset: 2, Limit: 1}))
	require.Equal(t, "     3\tthree\n", b.text("read", readInput{Path: "three", Offset: 3, Limit: 9}))
	require.Equal(t, "(the file is empty)", b.text("read", readInput{Path: "empty"}))
	require.Equal(t, "     1\tcaf\uFFFD\n", b.text("read", readInput{Path: "latin"}))
	require.Equal(t, "     1\t"+strings.Repeat("é", MaxLine/2)+" [… 2000 bytes left out]\n     2\tnext\n", b.text("read", readInput{Path: "long"}))

	require.Equal(t, "three: has 3 lines; there is no line 9", b.failure("read", readInput{Path: "three", Offset: 9}))
	require.Equal(t, "binary: is a binary file of 4 bytes", b.failure("read", readInput{Path: "binary"}))
	require.Equal(t, "missing: no such file or directory", b.failure("read", readInput{Path: "missing"}))
	require.Equal(t, "sub: is a folder; glob lists what is in it", b.failure("read", readInput{Path: "sub"}))
	require.Contains(t, b.failure("read", readInput{Path: "."}), "is a folder")
	require.Contains(t, b.failure("read", readInput{Path: "sub/deep/er"}), "not a directory")
	require.Equal(t, "pipe: is neither a file nor a folder (a device, pipe or socket)", b.failure("read", readInput{Path: "pipe"}))
	require.Contains(t, b.failure("read", readInput{Path: "/dev/zero"}), "device")
}

// TestReadMuch shows that reading on by the offsets that results name yields every line of a file once.
func TestReadMuch(t *testing.T) {
	b := newBench(t)
	var want []string
	for i := range 9000 {
		want = append(want, strings.Repeat(string(rune('a'+i%26)), i%90))
	}
	b.put("much", strings.Join(want, "\n")+"\n")
	var got []string
	for _, limit := range []int{0, 1, 100000} {
		got = nil
		for offset := 1; ; {
			text := b.text("read", readInput{Path: "much", Offset: offset, Limit: limit})
			lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			last := lines[len(lines)-1]
			more := strings.HasPrefix(last, "[the file goes on")
			if more {
				lines = lines[:len(lines)-1]
			}
			for _, line := range lines {
				_, line, _ = strings.Cut(line, "\t")
				got = append(got, line)
			}
			if !more || limit == 1 && len(got) == 50 {
				break
			}
			offset = len(got) + 1
		}
		require.Equal(t, want[:len(got)], got)
	}
	require.Len(t, got, len(want))
}

const webp = "UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAwA0JaQAA3AA/vuUAAA="

func TestReadImage(t *testing.T) {
	b := newBench(t)
	var small, wide bytes.Buffer
	require.NoError(t, png.Encode(&small, image.NewGray(image.Rect(0, 0, 3, 2))))
	require.NoError(t, png.Encode(&wide, image.NewGray(image.Rect(0, 0, MaxImageSide+1, 1))))
	webpBytes, err := base64.StdEncoding.DecodeString(webp)
	require.NoError(t, err)
	b.put("small.dat", small.String())
	b.put("wide.png", wide.String())
	b.put("one.webp", string(webpBytes))
	b.put("broken.png", small.String()[:20])
	b.put("huge.png", small.String()+strings.Repeat("x", MaxImage))

	for name, media := range map[string]string{"small.dat": "image/png", "one.webp": "image/webp"} {
		r := b.do("read", readInput{Path: name})
		require.False(t, r.IsError, textOf(r))
		require.Len(t, r.Content, 1)
		require.Equal(t, "image", r.Content[0].Type)
		require.Equal(t, media, r.Content[0].MediaType)
		require.Equal(t, b.content(name), string(r.Blobs[0].Data))
		require.Equal(t, r.Blobs[0].Ref(), r.Content[0].Blob)
		require.Equal(t, record.NewBlob(r.Blobs[0].Data).Digest, r.Blobs[0].Digest)
	}
	require.Contains(t, b.failure("read", readInput{Path: "wide.png"}), "8001 x 1 pixels")
	require.Contains(t, b.failure("read", readInput{Path: "broken.png"}), "looks like an image, but is none")
	require.Contains(t, b.failure("read", readInput{Path: "huge.png"}), "the limit is 3750000")
}

// TestWhole cuts every text everywhere: a cut never tears a character, and never takes more than it must.
func TestWhole(t *testing.T) {
	for _, text := range []string{"aé€😀", "😀😀", "plain", "\xff\xfe", "é\xc3", ""} {
		for i := range len(text) + 1 {
			n := whole([]byte(text[:i]))
			require.LessOrEqual(t, n, i)
			require.Less(t, i-n, utf8.UTFMax)
			if utf8.ValidString(text) {
				require.True(t, utf8.ValidString(text[:n]), "%q at %d", text, i)
			}
		}
	}
}

func TestStream(t *testing.T) {
	text := "aé€😀 \xff end \xf0\x9f"
	for size := 1; size < len(text); size++ {
		var got strings.Builder
		s := stream{out: func(p string) {
			require.True(t, utf8.ValidString(p))
			require.NotEmpty(t, p)
			got.WriteString(p)
		}}
		for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			s.write(rest[:min(size, len(rest))])
		}
		s.flush()
		require.Equal(t, valid(text), got.String())
	}
}

func TestExcerpt(t *testing.T) {
	for _, unit := range []string{"x", "é", "😀", "\xff", "a\xffb"} {
		for _, size := range []int{0, 1, 100, 999, 1000, 1001, 5000, 100000} {
			content := strings.Repeat(unit, size/len(unit))
			text, cut, err := excerpt(strings.NewReader(content), int64(len(content)), 1000)
			require.NoError(t, err)
			require.LessOrEqual(t, len(text), 1000)
			require.True(t, utf8.ValidString(text))
			if max(len(content), len(valid(content))) <= 1000 {
				require.Zero(t, cut)
				require.Equal(t, valid(content), text)
				continue
			}
			require.Positive(t, cut)
			if utf8.ValidString(unit) || len(unit) > 1 { // one run of wrong bytes becomes one character
				require.Greater(t, len(text), 500, "%q: %d of %d bytes left out", unit, cut, len(content))
			}
			head, tail, found := strings.Cut(text, "\n[… ")
			require.True(t, found)
			require.True(t, strings.HasPrefix(valid(content), head))
			_, tail, _ = strings.Cut(tail, "left out …]\n")
			require.True(t, strings.HasSuffix(valid(content), tail))
		}
	}
}

func TestUnreadableIsNoSecret(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("the superuser reads everything")
	}
	b := newBench(t)
	require.NoError(t, os.Chmod(b.put("locked", "x"), 0))
	require.Equal(t, "locked: permission denied", b.failure("read", readInput{Path: filepath.Base("locked")}))
}

package shelltools

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/thread"
)

// failure is the error result for err.
func failure(err error) *loop.Result {
	r := textResult(err.Error())
	r.IsError = true
	return &r
}

// textResult is a result of one text block; providers refuse an empty one.
func textResult(text string) loop.Result {
	if text == "" {
		text = "(nothing)"
	}
	text = cutText(valid(text), MaxOutput)
	return loop.Result{Content: []thread.Block{{Type: thread.BlockText, Text: text}}}
}

// valid replaces what is not UTF-8.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// cutText returns at most limit bytes of valid text, without half a character at the end.
func cutText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:whole([]byte(text[:limit]))]
}

// whole returns the length of p without an unfinished character at its end.
func whole(p []byte) int {
	for i := 1; i <= min(utf8.UTFMax, len(p)); i++ {
		if at := len(p) - i; utf8.RuneStart(p[at]) {
			if utf8.FullRune(p[at:]) {
				return len(p)
			}
			return at
		}
	}
	return len(p)
}

// isBinary says whether the beginning of a file looks like no text.
func isBinary(content []byte) bool {
	return bytes.IndexByte(content[:min(len(content), sniffed)], 0) >= 0
}

const sniffed = 8000 // bytes; as much as git looks at

// stream passes on text as it comes, in valid UTF-8: a character that comes in two pieces is not torn.
type stream struct {
	out     func(string)
	pending []byte
}

func (s *stream) write(p []byte) {
	s.pending = append(s.pending, p...)
	n := whole(s.pending)
	if n > 0 {
		s.out(valid(string(s.pending[:n])))
		s.pending = append(s.pending[:0], s.pending[n:]...)
	}
}

func (s *stream) flush() {
	if len(s.pending) > 0 {
		s.out(valid(string(s.pending)))
		s.pending = nil
	}
}

// excerpt returns valid text of at most limit bytes from the beginning and the end of r, which has size bytes, with a
// line between them that says how many bytes are left out.
func excerpt(r io.ReaderAt, size int64, limit int) (text string, cut int64, err error) {
	budget := int64(limit)
	for {
		text, cut, err = pieces(r, size, budget)
		if err != nil || len(text) <= limit {
			return text, cut, err
		}
		budget = budget*int64(limit)/int64(len(text)) - excerptMark // what is not UTF-8 grows when it is made valid
	}
}

const excerptMark = 64 // bytes, more than the line between the pieces has

func pieces(r io.ReaderAt, size, budget int64) (text string, cut int64, err error) {
	if size <= budget {
		all := make([]byte, size)
		n, err := r.ReadAt(all, 0)
		if err == io.EOF {
			err = nil
		}
		return valid(string(all[:n])), 0, err
	}
	half := max(budget-excerptMark, 0) / 2
	head, tail := make([]byte, half), make([]byte, half)
	if _, err := r.ReadAt(head, 0); err != nil && err != io.EOF {
		return "", 0, err
	}
	if _, err := r.ReadAt(tail, size-half); err != nil && err != io.EOF {
		return "", 0, err
	}
	head = head[:whole(head)]
	for i := 0; i < utf8.UTFMax-1 && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail = tail[1:]
	}
	cut = size - int64(len(head)+len(tail))
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", valid(string(head)), cut, valid(string(tail))), cut, nil
}

package rawjson

import (
	"bytes"
	"iter"
	"unicode/utf16"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// Quote returns s as a literal.
func Quote[T string | []byte](s T) []byte { return AppendQuote(make([]byte, 0, len(s)+2), s) }

// AppendQuote appends s as a literal: the quotes and the text between them under the package's rule.
func AppendQuote[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			dst = append(dst, s[from:i]...)
			dst = appendEscaped(dst, c)
			i++
			from = i
			continue
		}
		r, n := decodeRune(s, i)
		if r == utf8.RuneError && n == 1 {
			dst = append(dst, s[from:i]...)
			dst = utf8.AppendRune(dst, utf8.RuneError)
			from = i + 1
		}
		i += n
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// decodeRune reads one rune at i without copying the rest of s.
func decodeRune[T string | []byte](s T, i int) (rune, int) {
	var b [utf8.UTFMax]byte
	n := copy(b[:], s[i:min(len(s), i+utf8.UTFMax)])
	return utf8.DecodeRune(b[:n])
}

// appendEscaped appends the escape of a quote, a backslash or a control character.
func appendEscaped(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// IsString says whether the value is a string literal. A reader of this package has found its end.
func IsString(value []byte) bool {
	return len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"'
}

// unicodeEscape reads \uXXXX, or a surrogate pair of two, and returns how many bytes it took. Half a pair, and an
// escape that is none, is U+FFFD.
func unicodeEscape(b []byte) (rune, int) {
	r := hex4(b)
	if r < 0 {
		return utf8.RuneError, min(2, len(b))
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if pair := utf16.DecodeRune(r, hex4(b[6:])); pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, 6
}

func hex4(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// Text returns the text of a literal; ok is false when value is no string.
func Text(value []byte) (text []byte, ok bool) {
	if !IsString(value) {
		return nil, false
	}
	in := value[1 : len(value)-1]
	if bytes.IndexByte(in, '\\') < 0 {
		return in, true
	}
	text = make([]byte, 0, len(in))
	for len(in) > 0 {
		n := bytes.IndexByte(in, '\\')
		if n < 0 {
			return append(text, in...), true
		}
		text, in = append(text, in[:n]...), in[n:]
		r, n := nextRune(in)
		text, in = utf8.AppendRune(text, r), in[n:]
	}
	return text, true
}

// Runes yields the characters of a literal.
func Runes(lit []byte) iter.Seq[rune] {
	return func(yield func(rune) bool) {
		if !IsString(lit) {
			return
		}
		for in := lit[1 : len(lit)-1]; len(in) > 0; {
			r, n := nextRune(in)
			if !yield(r) {
				return
			}
			in = in[n:]
		}
	}
}

// nextRune reads one character of the inside of a literal.
func nextRune(in []byte) (rune, int) {
	if in[0] != '\\' {
		return utf8.DecodeRune(in)
	}
	switch c := at(in, 1); c {
	case 'u':
		return unicodeEscape(in)
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	default:
		return rune(c), min(2, len(in))
	}
}

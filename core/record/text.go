package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"unicode/utf8"
)

// string reads a string and says whether it holds escapes. That it holds no control character is known already.
func (s *scanner) string() (escaped, ok bool) {
	quote := s.i
	for i := s.i + 1; ; {
		if quote < i {
			n := bytes.IndexByte(s.b[i:], '"')
			if n < 0 {
				s.i = len(s.b)
				return false, s.fail("ends within a string")
			}
			quote = i + n
		}
		if i += backslash(s.b[i:quote]); i == quote {
			s.i = quote + 1
			return escaped, true
		}
		n := escape(s.b[i:])
		if n == 0 {
			s.i = i
			return false, s.fail("wrong escape or lone surrogate")
		}
		i += n // past the quote, if that was escaped
		escaped = true
	}
}

// Bytes are looked at eight at a time: (w-low*c)&^w&high is not 0 when some byte of w is less than c, and its lowest
// bit is in the first such byte.
const low, high = 0x0101010101010101, 0x8080808080808080

// backslash returns the offset of the first backslash in b, or the length of b. In text there is one at each end of a
// line, too near for bytes.IndexByte to pay.
func backslash(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:]) ^ low*'\\'
		if found := (w - low) &^ w & high; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(b) && b[i] != '\\' {
		i++
	}
	return i
}

// control returns the offset of the first control character in b, or -1.
func control(b []byte) int {
	i := 0
	for ; i+32 <= len(b); i += 32 {
		if w := b[i : i+32 : i+32]; (below(w)|below(w[8:])|below(w[16:])|below(w[24:]))&high != 0 {
			break
		}
	}
	for ; i < len(b); i++ {
		if b[i] < ' ' {
			return i
		}
	}
	return -1
}

// below has the high bit of some byte set when one of the first eight bytes of b is less than a space.
func below(b []byte) uint64 {
	w := binary.LittleEndian.Uint64(b)
	return (w - low*' ') &^ w
}

// escape returns the length of the escape that b starts with, a pair of surrogates being one; 0 when it is wrong.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
	default:
		return 0
	}
	switch r := hex4(b); {
	case r < 0 || 0xdc00 <= r && r < 0xe000:
		return 0
	case 0xd800 <= r && r < 0xdc00:
		if low := hex4(b[6:]); low < 0xdc00 || low >= 0xe000 {
			return 0
		}
		return 12
	default:
		return 6
	}
}

// hex4 returns the value of the \uXXXX that b starts with, or -1.
func hex4(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var v [2]byte
	if _, err := hex.Decode(v[:], b[2:6]); err != nil {
		return -1
	}
	return rune(v[0])<<8 | rune(v[1])
}

// unescape decodes the inside of a string that was read without failure.
func unescape(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		if b[0] != '\\' {
			out = append(out, b[0])
			b = b[1:]
			continue
		}
		n := escape(b)
		switch c := b[1]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(b)
			if n == 12 {
				r = (r-0xd800)<<10 + hex4(b[6:]) - 0xdc00 + 0x10000
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
		b = b[n:]
	}
	return out
}

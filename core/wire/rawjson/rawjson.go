// Package rawjson reads and writes JSON as bytes: it finds the parts of a document without decoding them, and it
// writes documents with ordered fields under one escaping rule.
//
// The rule is part of every request format that is built on this package and never changes: in a string only '"',
// '\' and the characters below U+0020 are escaped (\" \\ \b \f \n \r \t, else \u00xx in lower case); everything else
// stands as it is, U+2028, U+2029 and U+007F too; a byte that is not part of valid UTF-8 and a lone surrogate become
// U+FFFD. encoding/json has another rule and may change it with a new toolchain; this one may not.
//
// Readers take documents in the strict form of a record body. They check the structure that they walk over, not the
// values that they pass by, and never more than once: their time is linear in the bytes.
package rawjson

import (
	"bytes"

	"condensate.dev/cnd/core/fault"
)

// ErrSyntax is returned for bytes that are not the JSON value that was asked for.
var ErrSyntax = fault.New(fault.Invalid, "invalid-json", "not the expected JSON value")

// Fields calls f with each field of the object b, in order: the key without its quotes, and the bytes of the value.
func Fields(b []byte, f func(key, value []byte)) error {
	return walk(b, '{', '}', f)
}

// Elements calls f with the bytes of each element of the array b, in order. No bytes and null are an empty array.
func Elements(b []byte, f func(value []byte)) error {
	if len(b) == 0 || string(b) == "null" {
		return nil
	}
	return walk(b, '[', ']', func(_, value []byte) { f(value) })
}

// walk steps through one container; only objects have keys.
func walk(b []byte, open, end byte, f func(key, value []byte)) error {
	i := space(b, 0)
	if at(b, i) != open {
		return ErrSyntax
	}
	i = space(b, i+1)
	if at(b, i) == end {
		return ended(b, i+1)
	}
	for {
		var key []byte
		if open == '{' {
			from := i
			if i = stringEnd(b, i); i < 0 {
				return ErrSyntax
			}
			key = b[from+1 : i-1]
			if i = space(b, i); at(b, i) != ':' {
				return ErrSyntax
			}
			i = space(b, i+1)
		}
		from := i
		if i = valueEnd(b, i); i < 0 {
			return ErrSyntax
		}
		f(key, b[from:i:i])
		i = space(b, i)
		switch at(b, i) {
		case ',':
			i = space(b, i+1)
		case end:
			return ended(b, i+1)
		default:
			return ErrSyntax
		}
	}
}

func ended(b []byte, i int) error {
	if space(b, i) != len(b) {
		return ErrSyntax
	}
	return nil
}

// at returns b[i], or 0 past the end: no token starts with a zero byte.
func at(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// stringEnd returns the index after the closing quote of the string that starts at i, or -1.
func stringEnd(b []byte, i int) int {
	if at(b, i) != '"' {
		return -1
	}
	for j := i + 1; ; j++ {
		n := bytes.IndexByte(b[j:], '"')
		if n < 0 {
			return -1
		}
		j += n
		k := j
		for b[k-1] == '\\' { // stops at the opening quote at the latest
			k--
		}
		if (j-k)%2 == 0 {
			return j + 1
		}
	}
}

// valueEnd returns the index after the value that starts at i, or -1. Nested containers are matched by depth alone.
func valueEnd(b []byte, i int) int {
	switch at(b, i) {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		return containerEnd(b, i)
	}
	from := i
	for i < len(b) && isScalar(b[i]) {
		i++
	}
	if i == from {
		return -1
	}
	return i
}

func isScalar(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

func containerEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = stringEnd(b, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

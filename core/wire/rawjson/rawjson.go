// Package rawjson reads and writes JSON as bytes: it finds the parts of a document without decoding them, and it
// writes documents with ordered fields, in which a part of another document stands byte for byte as it stood there.
//
// A text that stands in no document becomes a string under one escaping rule, which is part of every request format
// that is built on this package and never changes: only '"', '\' and the characters below U+0020 are escaped (\" \\ \b
// \f \n \r \t, else \u00xx in lower case); everything else stands as it is, U+2028, U+2029 and U+007F too; a byte that
// is not part of valid UTF-8 becomes U+FFFD. encoding/json has another rule and may change it with a new toolchain.
//
// Readers take documents in the strict form of a record body. They check the structure that they walk over, not the
// values that they pass by, and read each byte about once.
package rawjson

import (
	"bytes"

	"condensate.dev/cnd/core/fault"
)

// ErrSyntax is returned for bytes that are not the JSON value that was asked for.
var ErrSyntax = fault.New(fault.Invalid, "invalid-json", "not the expected JSON value")

// Fields calls f with each field of the object b, in order: the key without its quotes, and the bytes of the value.
func Fields(b []byte, f func(key, value []byte)) error {
	c := NewCursor(b)
	c.Fields(func(key []byte) { f(key, c.Value()) })
	return c.End()
}

// Cursor walks through a document once, from its front to its end. After a failure it reads nothing more.
type Cursor struct {
	b      []byte
	i      int // of the next token
	failed bool
}

// NewCursor returns a cursor at the value that b holds.
func NewCursor(b []byte) *Cursor {
	c := &Cursor{b: b}
	c.space()
	return c
}

// End returns [ErrSyntax] when something was not as it was read, or stands after the value.
func (c *Cursor) End() error {
	if c.failed || c.i < len(c.b) {
		return ErrSyntax
	}
	return nil
}

// Fields reads an object and calls f after each key, which has no quotes. What f does not read is passed by.
func (c *Cursor) Fields(f func(key []byte)) {
	if !c.next('{') {
		c.failed = true
		return
	}
	for more := !c.next('}'); more && !c.failed; more = c.goesOn('}') {
		from := c.i
		if c.i = stringEnd(c.b, c.i); c.i < 0 {
			c.fail()
			return
		}
		key := c.b[from+1 : c.i-1]
		c.space()
		if !c.next(':') {
			c.failed = true
			return
		}
		at := c.i
		if f(key); c.i == at {
			c.Value()
		}
	}
}

// Elements reads an array and calls f before each element. What f does not read is passed by. Null is an empty array.
func (c *Cursor) Elements(f func()) {
	if c.next('[') {
		for more := !c.next(']'); more && !c.failed; more = c.goesOn(']') {
			at := c.i
			if f(); c.i == at {
				c.Value()
			}
		}
		return
	}
	if string(c.Value()) != "null" {
		c.failed = true
	}
}

// Value reads any value and returns its bytes; nil after a failure.
func (c *Cursor) Value() []byte {
	from := c.i
	end := -1
	if !c.failed {
		end = valueEnd(c.b, c.i)
	}
	if end < 0 {
		c.fail()
		return nil
	}
	c.i = end
	c.space()
	return c.b[from:end:end]
}

// Since returns the bytes from offset from, an earlier [Cursor.Offset], to the end of the value that was read last.
func (c *Cursor) Since(from int) []byte {
	if c.failed {
		return nil
	}
	b := bytes.TrimRight(c.b[from:c.i], " \n\t\r")
	return b[:len(b):len(b)]
}

// Offset returns where the next token stands.
func (c *Cursor) Offset() int { return c.i }

func (c *Cursor) fail() { c.failed, c.i = true, len(c.b) }

// next reads t, and the space after it, if it comes next.
func (c *Cursor) next(t byte) bool {
	if c.failed || c.i >= len(c.b) || c.b[c.i] != t {
		return false
	}
	c.i++
	c.space()
	return true
}

// goesOn reads the comma or the end after a member.
func (c *Cursor) goesOn(end byte) bool {
	if c.next(',') {
		return true
	}
	if !c.next(end) {
		c.failed = true
	}
	return false
}

func (c *Cursor) space() {
	for c.i < len(c.b) && isSpace(c.b[c.i]) {
		c.i++
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

// at returns b[i], or 0 past the end: no token starts with a zero byte.
func at(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
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

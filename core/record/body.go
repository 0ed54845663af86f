package record

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"unicode/utf8"
)

// CheckBody says whether body is one JSON object in the strict form: UTF-8, no duplicate keys, no lone surrogates,
// no space between tokens, at most [MaxDepth] deep; a field "blobs" only at the front, as a list of different blob
// names that is not empty. The error wraps [ErrInvalidEntry] and names the byte offset.
func CheckBody(body []byte) error {
	var s scanner
	return s.check(body)
}

// manyKeys is how many keys of one object are compared one by one; an object with more gets a map.
const manyKeys = 16

// scanner reads JSON in the strict form. It may be used again: what it allocated is kept.
type scanner struct {
	b    []byte
	i    int      // offset of the next byte
	keys [][]byte // decoded keys of all open objects, innermost last
	why  string   // what is wrong at i; "" while nothing is
}

func (s *scanner) check(body []byte) error {
	s.b, s.i, s.keys, s.why = body, 0, s.keys[:0], ""
	at := control(body)
	switch {
	case at >= 0:
		s.i = at
		s.why = "control character"
	case !utf8.Valid(body):
		for r, n := utf8.DecodeRune(body); r != utf8.RuneError || n != 1; r, n = utf8.DecodeRune(body[s.i:]) {
			s.i += n
		}
		s.why = "not UTF-8"
	case len(body) == 0 || body[0] != '{':
		s.why = "not an object"
	default:
		if s.object(1); s.why == "" && s.i < len(body) {
			s.why = "something after the object"
		}
	}
	if s.why != "" {
		return fmt.Errorf("body byte %d: %s: %w", s.i, s.why, ErrInvalidEntry)
	}
	return nil
}

func (s *scanner) fail(why string) bool {
	if s.why == "" {
		s.why = why
	}
	return false
}

// next consumes c if it comes next.
func (s *scanner) next(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// value reads one value that stands at the given depth.
func (s *scanner) value(depth int) bool {
	if s.i == len(s.b) {
		return s.fail("ends within a value")
	}
	switch c := s.b[s.i]; c {
	case '{':
		return s.object(depth)
	case '[':
		return s.array(depth)
	case '"':
		_, ok := s.string()
		return ok
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		if c == '-' || '0' <= c && c <= '9' {
			return s.number()
		}
		return s.fail("no JSON value")
	}
}

func (s *scanner) object(depth int) bool {
	if depth > MaxDepth {
		return s.fail("too deep")
	}
	s.i++
	if s.next('}') {
		return true
	}
	base := len(s.keys)
	var many map[string]struct{}
	for {
		at := s.i
		if s.i == len(s.b) || s.b[s.i] != '"' {
			return s.fail("want a key")
		}
		escaped, ok := s.string()
		if !ok {
			return false
		}
		key := s.b[at+1 : s.i-1]
		if escaped {
			key = unescape(key)
		}
		if !unique(s.keys[base:], &many, key) {
			s.i = at
			return s.fail("duplicate key")
		}
		if !s.next(':') {
			return s.fail("want a colon")
		}
		if depth == 1 && string(key) == "blobs" {
			if escaped || len(s.keys) > 0 {
				s.i = at
				return s.fail("blobs stands only at the front")
			}
			ok = s.blobList()
		} else {
			ok = s.value(depth + 1)
		}
		s.keys = append(s.keys, key)
		switch {
		case !ok:
			return false
		case s.next(','):
		case s.next('}'):
			s.keys = s.keys[:base]
			return true
		default:
			return s.fail("want a comma or the end of the object")
		}
	}
}

// unique says whether key is none of keys; many is made when there are many.
func unique(keys [][]byte, many *map[string]struct{}, key []byte) bool {
	if len(keys) < manyKeys {
		for _, k := range keys {
			if bytes.Equal(k, key) {
				return false
			}
		}
		return true
	}
	if *many == nil {
		*many = make(map[string]struct{}, 4*manyKeys)
		for _, k := range keys {
			(*many)[string(k)] = struct{}{}
		}
	}
	if _, ok := (*many)[string(key)]; ok {
		return false
	}
	(*many)[string(key)] = struct{}{}
	return true
}

func (s *scanner) array(depth int) bool {
	if depth > MaxDepth {
		return s.fail("too deep")
	}
	s.i++
	if s.next(']') {
		return true
	}
	for {
		switch {
		case !s.value(depth + 1):
			return false
		case s.next(','):
		case s.next(']'):
			return true
		default:
			return s.fail("want a comma or the end of the array")
		}
	}
}

// blobList reads the value of the field "blobs": different names, at least one.
func (s *scanner) blobList() bool {
	if !s.next('[') {
		return s.fail("blobs is not a list")
	}
	base := len(s.keys)
	var many map[string]struct{}
	for {
		name, ok := blobName(s.b[s.i:])
		if !ok {
			return s.fail("want the name of a blob")
		}
		if !unique(s.keys[base:], &many, name) {
			return s.fail("blob is listed twice")
		}
		s.keys = append(s.keys, name)
		s.i += len(name)
		switch {
		case s.next(','):
		case s.next(']'):
			s.keys = s.keys[:base]
			return true
		default:
			return s.fail("want a comma or the end of the list")
		}
	}
}

// blobNameLen is the length of a blob's name with its quotes.
const blobNameLen = len(`"`+BlobPrefix+`"`) + 2*len(Digest{})

// blobName returns the quoted name of a blob that b starts with.
func blobName(b []byte) (name []byte, ok bool) {
	const open = `"` + BlobPrefix
	if len(b) < blobNameLen || string(b[:len(open)]) != open || b[blobNameLen-1] != '"' {
		return nil, false
	}
	return b[:blobNameLen], isLowerHex(b[len(open) : blobNameLen-1])
}

// ListedBlobs returns the digests that a body in the strict form lists, in order; nil when it lists none.
func ListedBlobs(body []byte) []Digest {
	rest, ok := bytes.CutPrefix(body, []byte(`{"blobs":[`))
	if !ok {
		return nil
	}
	var list []Digest
	for {
		name, ok := blobName(rest)
		if !ok {
			return list
		}
		var d Digest
		hex.Decode(d[:], name[blobNameLen-1-2*len(d):]) // cannot fail: blobName checked the digits
		list = append(list, d)
		if rest = rest[blobNameLen:]; len(rest) == 0 || rest[0] != ',' {
			return list
		}
		rest = rest[1:]
	}
}

func (s *scanner) literal(word string) bool {
	if !bytes.HasPrefix(s.b[s.i:], []byte(word)) {
		return s.fail("no JSON value")
	}
	s.i += len(word)
	return true
}

func (s *scanner) number() bool {
	s.next('-')
	if !s.next('0') && !s.digits() {
		return s.fail("want a digit")
	}
	if s.next('.') && !s.digits() {
		return s.fail("want a digit")
	}
	if s.next('e') || s.next('E') {
		if !s.next('-') {
			s.next('+')
		}
		if !s.digits() {
			return s.fail("want a digit")
		}
	}
	return true
}

// digits reads digits, at least one.
func (s *scanner) digits() bool {
	from := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > from
}

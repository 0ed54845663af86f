package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"condensate.dev/cnd/core/fault"
)

// malformed says what is wrong at a place of the body; path "" is the body itself.
func malformed(path, format string, args ...any) error {
	if path == "" {
		path = "body"
	}
	return fault.New(fault.Invalid, "malformed-request", path+": "+fmt.Sprintf(format, args...))
}

// value is one JSON value of a request and its place in it. encoding/json alone would take repeated fields, other
// spellings of a name ("MODE") and broken text, and change them silently.
type value struct {
	path string // "content[0].text"; "" for the whole body
	raw  json.RawMessage
}

// parse checks that body is one JSON value in UTF-8.
func parse(body []byte) (value, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return value{}, malformed("", "is empty, a JSON object is needed")
	}
	if at := invalidUTF8(body); at >= 0 {
		return value{}, malformed("", "not UTF-8 at byte %d", at)
	}
	var v value
	if err := json.Unmarshal(body, &v.raw); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return value{}, malformed("", "not JSON at byte %d: %v", syntax.Offset, err)
		}
		return value{}, malformed("", "not JSON: %v", err)
	}
	return v, nil
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for at := 0; at < len(b); {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n == 1 {
			return at
		}
		at += n
	}
	return -1
}

// object returns the fields of an object that may have those named, each at most once.
func (v value) object(names ...string) (map[string]value, error) {
	dec := json.NewDecoder(bytes.NewReader(v.raw))
	if first, err := dec.Token(); err != nil || first != json.Delim('{') {
		return nil, malformed(v.path, "must be an object")
	}
	fields := map[string]value{}
	for dec.More() {
		key, err := dec.Token()
		name, isText := key.(string)
		if err != nil || !isText {
			return nil, malformed(v.path, "not JSON: %v", err)
		}
		if !slices.Contains(names, name) {
			return nil, malformed(v.path, "unknown field %.80q; it takes %s", name, strings.Join(names, ", "))
		}
		if _, twice := fields[name]; twice {
			return nil, malformed(v.path, "field %q stands there twice", name)
		}
		field := value{path: name}
		if v.path != "" {
			field.path = v.path + "." + name
		}
		if err := dec.Decode(&field.raw); err != nil {
			return nil, malformed(field.path, "not JSON: %v", err)
		}
		fields[name] = field
	}
	return fields, nil
}

// array returns the items of an array of at most most.
func (v value) array(most int) ([]value, error) {
	dec := json.NewDecoder(bytes.NewReader(v.raw))
	if first, err := dec.Token(); err != nil || first != json.Delim('[') {
		return nil, malformed(v.path, "must be an array")
	}
	var items []value
	for dec.More() {
		if len(items) == most {
			return nil, fault.New(fault.TooLarge, "too-many-items", fmt.Sprintf("%s: more than %d items", v.path, most))
		}
		item := value{path: v.path + "[" + strconv.Itoa(len(items)) + "]"}
		if err := dec.Decode(&item.raw); err != nil {
			return nil, malformed(item.path, "not JSON: %v", err)
		}
		items = append(items, item)
	}
	return items, nil
}

// isText says whether v is a string.
func (v value) isText() bool { return len(v.raw) > 0 && v.raw[0] == '"' }

// text returns a string; a field that is not there is "".
func (v value) text() (string, error) {
	if v.raw == nil {
		return "", nil
	}
	var s string
	if !v.isText() || json.Unmarshal(v.raw, &s) != nil {
		return "", malformed(v.path, "must be a string")
	}
	if loneSurrogate(v.raw) {
		return "", malformed(v.path, "has half of a surrogate pair, which is no text")
	}
	return s, nil
}

// oneOf returns a string that is one of the allowed ones; a field that is not there is the first of them.
func (v value) oneOf(allowed ...string) (string, error) {
	if v.raw == nil {
		return allowed[0], nil
	}
	s, err := v.text()
	if err == nil && !slices.Contains(allowed, s) {
		err = malformed(v.path, "%.80q is not one of %s", s, strings.Join(allowed, ", "))
	}
	return s, err
}

// loneSurrogate says whether a JSON string escapes half of a surrogate pair. The syntax of raw was checked.
func loneSurrogate(raw []byte) bool {
	unit := func(at int) (rune, bool) {
		if at+6 > len(raw) || raw[at] != '\\' || raw[at+1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(string(raw[at+2:at+6]), 16, 16)
		return rune(n), err == nil
	}
	for at := 0; at < len(raw); {
		u, escaped := unit(at)
		switch {
		case !escaped && raw[at] == '\\':
			at += 2
		case !escaped:
			at++
		case u >= 0xdc00 && u <= 0xdfff:
			return true
		case u >= 0xd800 && u <= 0xdbff:
			if low, ok := unit(at + 6); !ok || low < 0xdc00 || low > 0xdfff {
				return true
			}
			at += 12
		default:
			at += 6
		}
	}
	return false
}

package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// block builds one content block from its start and its deltas, token for token: strings grow by the characters that
// stand between the quotes of the deltas, so escapes stay as the provider wrote them.
type block struct {
	Type  string
	Name  string // of a tool call
	start []byte // the content_block of its start, without white space between tokens
	grown []*growing
	cites [][]byte // citations that came as deltas
}

// growing is a string field that deltas changed.
type growing struct {
	field string
	inner []byte // what stands between its quotes
}

// newBlock starts a block from the content_block of its start event.
func newBlock(start json.RawMessage) (*block, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, start); err != nil {
		return nil, fmt.Errorf("content block: %w", err)
	}
	b := &block{start: compact.Bytes()}
	var head struct{ Type, Name string }
	if err := json.Unmarshal(b.start, &head); err != nil || head.Type == "" {
		return nil, errors.New("content block has no type")
	}
	b.Type, b.Name = head.Type, head.Name
	return b, nil
}

// growth says which field of a block a delta of that type changes, and as what kind of text people see it.
var growth = map[string]struct {
	from, to string
	kind     string
	replaces bool
}{
	"text_delta":       {from: "text", to: "text", kind: "text"},
	"thinking_delta":   {from: "thinking", to: "thinking", kind: "thinking"},
	"signature_delta":  {from: "signature", to: "signature", replaces: true},
	"input_json_delta": {from: "partial_json", to: "input", kind: "tool_call"},
}

// add applies a delta and returns what people see of it: kind is "" when that is nothing. A delta of an unknown type
// appends each of its strings to the field of that name.
func (b *block) add(delta json.RawMessage) (kind, shown string, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(delta, &fields); err != nil {
		return "", "", fmt.Errorf("delta: %w", err)
	}
	var name string
	if err := json.Unmarshal(fields["type"], &name); err != nil {
		return "", "", errors.New("delta has no type")
	}
	if name == "citations_delta" {
		var compact bytes.Buffer
		if err := json.Compact(&compact, fields["citation"]); err != nil {
			return "", "", errors.New("citations_delta has no citation")
		}
		b.cites = append(b.cites, compact.Bytes())
		return "", "", nil
	}
	if rule, known := growth[name]; known {
		value, ok := stringToken(fields[rule.from])
		if !ok {
			return "", "", fmt.Errorf("%s has no %s", name, rule.from)
		}
		if g := b.growing(rule.to); g != nil && rule.replaces {
			g.inner = g.inner[:0]
		}
		b.grow(rule.to, value)
		return rule.kind, unquote(value), nil
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if value, ok := stringToken(fields[field]); ok && field != "type" {
			b.grow(field, value)
		}
	}
	return "", "", nil
}

func (b *block) growing(field string) *growing {
	for _, g := range b.grown {
		if g.field == field {
			return g
		}
	}
	return nil
}

// grow appends the characters between the quotes of a JSON string to a field. The field starts with what the start
// event gave it, except a tool's input, which there is only a placeholder.
func (b *block) grow(field string, quoted []byte) {
	g := b.growing(field)
	if g == nil {
		g = &growing{field: field}
		b.grown = append(b.grown, g)
		if field != "input" && field != "signature" {
			_, _, value := findField(b.start, field)
			if s, ok := stringToken(value); ok {
				g.inner = append(g.inner, s[1:len(s)-1]...)
			}
		}
	}
	g.inner = append(g.inner, quoted[1:len(quoted)-1]...)
}

// size is how many bytes the block holds.
func (b *block) size() int {
	n := len(b.start)
	for _, g := range b.grown {
		n += len(g.inner)
	}
	for _, c := range b.cites {
		n += len(c)
	}
	return n
}

// shown returns the text of the block so far, when it is a text block.
func (b *block) shown() string {
	if b.Type != "text" {
		return ""
	}
	return b.text("text")
}

// text returns a string field of the block.
func (b *block) text(field string) string {
	if g := b.growing(field); g != nil {
		return unquote(quote(g.inner))
	}
	_, _, value := findField(b.start, field)
	if s, ok := stringToken(value); ok {
		return unquote(s)
	}
	return ""
}

// finish returns the block as the provider would have sent it without streaming, and its neutral view (nil for a
// block that has none).
func (b *block) finish() (native json.RawMessage, view *thread.Block) {
	native = b.start
	for _, g := range b.grown {
		if g.field != "input" {
			native = setField(native, g.field, quote(g.inner))
		}
	}
	if len(b.cites) > 0 {
		native = setField(native, "citations", b.citations())
	}
	input, inputText := b.input()
	if b.Type == "tool_use" || b.growing("input") != nil {
		native = setField(native, "input", input)
	}
	switch b.Type {
	case "text":
		view = &thread.Block{Type: thread.BlockText, Text: b.text("text")}
	case "thinking":
		view = &thread.Block{Type: thread.BlockThinking, Text: b.text("thinking")}
	case "tool_use":
		view = &thread.Block{Type: thread.BlockToolCall, Name: b.Name, InputText: inputText}
		if inputText == "" {
			view.Input = input
		}
	}
	return native, view
}

// input returns the input of a tool call as one JSON object, its tokens as they came. Anything else that the model wrote
// (cut off, no object, a key twice, half a surrogate pair) is returned as text, and {} takes its place: the provider
// would refuse it when it comes back, for ever.
func (b *block) input() (object json.RawMessage, text string) {
	g := b.growing("input")
	if g == nil || len(g.inner) == 0 {
		_, _, value := findField(b.start, "input")
		if strict(value) {
			return value, ""
		}
		return json.RawMessage("{}"), string(value)
	}
	text = unquote(quote(g.inner))
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err != nil || !strict(compact.Bytes()) {
		return json.RawMessage("{}"), text
	}
	return compact.Bytes(), ""
}

func (b *block) citations() []byte {
	_, _, have := findField(b.start, "citations")
	list := []byte("[")
	if len(have) > 2 && have[0] == '[' {
		list = append(list, have[1:len(have)-1]...)
	}
	for _, c := range b.cites {
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = append(list, c...)
	}
	return append(list, ']')
}

// strict says whether a JSON object may stand in a body of the record as it is.
func strict(object []byte) bool { return record.CheckBody(object) == nil }

// stringToken returns raw if it is a JSON string with its quotes.
func stringToken(raw []byte) ([]byte, bool) {
	return raw, len(raw) >= 2 && raw[0] == '"'
}

func quote(inner []byte) []byte {
	quoted := make([]byte, 0, len(inner)+2)
	quoted = append(quoted, '"')
	quoted = append(quoted, inner...)
	return append(quoted, '"')
}

// unquote decodes a JSON string; lone surrogates become U+FFFD.
func unquote(quoted []byte) string {
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return ""
	}
	return s
}

// findField returns where the value of a field of a compact JSON object starts and ends. value is nil when the object
// has no such field; of repeated fields the last one counts, as it does for JSON parsers.
func findField(object []byte, field string) (start, end int, value json.RawMessage) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil {
		return 0, 0, nil
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return 0, 0, nil
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return 0, 0, nil
		}
		if key == field {
			end = int(dec.InputOffset())
			start, value = end-len(raw), raw
		}
	}
	return start, end, value
}

// setField gives a field of a compact JSON object a value; everything else keeps its bytes. A new field comes last.
func setField(object []byte, field string, value []byte) []byte {
	start, end, old := findField(object, field)
	out := make([]byte, 0, len(object)+len(value)+len(field)+4)
	if old != nil {
		out = append(out, object[:start]...)
		out = append(out, value...)
		return append(out, object[end:]...)
	}
	out = append(out, object[:len(object)-1]...)
	if len(object) > 2 {
		out = append(out, ',')
	}
	name, _ := json.Marshal(field)
	out = append(out, name...)
	out = append(out, ':')
	out = append(out, value...)
	return append(out, '}')
}

package simprovider

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// request is a decoded Messages request.
type request struct {
	Model       string
	MaxTokens   int
	Stream      bool
	Thinking    thinking
	Tools       []tool
	System      []block
	Messages    []message
	Cache       *cacheControl // top-level: on the last block that can be cached
	Diagnostics *diagnosticsParam
	settings    []byte // what else changes how messages are rendered: thinking, tool choice, output settings
	hasMax      bool
}

type thinking struct {
	Type   string `json:"type"`
	Budget int    `json:"budget_tokens"`
}

type diagnosticsParam struct {
	Previous *string `json:"previous_message_id"`
}

type cacheControl struct {
	Type string `json:"type"`
	TTL  string `json:"ttl"`
}

// tool is one declaration. Raw is verbatim.
type tool struct {
	Type         string          `json:"type"`
	Name         string          `json:"name"`
	InputSchema  json.RawMessage `json:"input_schema"`
	CacheControl *cacheControl   `json:"cache_control"`
	Raw          json.RawMessage `json:"-"`
}

type message struct {
	Role   string
	Blocks []block
	plain  bool // its content was a string
}

// block is one content block. Raw is verbatim; for content that was a string it is the text block that it stands for.
type block struct {
	Type         string          `json:"type"`
	Text         *string         `json:"text"`
	Thinking     *string         `json:"thinking"`
	Signature    string          `json:"signature"`
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Input        json.RawMessage `json:"input"`
	ToolUseID    string          `json:"tool_use_id"`
	IsError      bool            `json:"is_error"`
	Content      json.RawMessage `json:"content"`
	Source       *source         `json:"source"`
	CacheControl *cacheControl   `json:"cache_control"`
	Raw          json.RawMessage `json:"-"`
	inner        []block         // the blocks of a tool result
}

type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
}

// topLevel lists the fields that the provider knows.
var topLevel = []string{
	"cache_control", "container", "context_management", "diagnostics", "inference_geo", "max_tokens", "mcp_servers",
	"messages", "metadata", "model", "output_config", "output_format", "service_tier", "speed", "stop_sequences",
	"stream", "system", "temperature", "thinking", "tool_choice", "tools", "top_k", "top_p", "user_profile_id",
	"workspace_id",
}

// parse decodes a body and checks its form; what its parts mean is checked by validate.
func parse(body []byte) (*request, *apiError) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, invalid("The request body is not valid JSON: %s", err)
	}
	if !utf8.Valid(body) {
		return nil, invalid("The request body is not valid JSON: invalid UTF-8")
	}
	if at := loneSurrogate(body); at >= 0 {
		return nil, invalid("The request body is not valid JSON: no low surrogate in string: line 1 column %d (char %d)", at+1, at)
	}
	for name := range fields {
		if !slices.Contains(topLevel, name) {
			return nil, invalid("%s: Extra inputs are not permitted", name)
		}
	}
	r := &request{}
	_, r.hasMax = fields["max_tokens"]
	for _, f := range []struct {
		name string
		into any
	}{
		{"model", &r.Model}, {"max_tokens", &r.MaxTokens}, {"stream", &r.Stream}, {"thinking", &r.Thinking},
		{"cache_control", &r.Cache}, {"diagnostics", &r.Diagnostics},
	} {
		if raw, ok := fields[f.name]; ok {
			if err := json.Unmarshal(raw, f.into); err != nil {
				return nil, invalid("%s: Input should be a valid value", f.name)
			}
		}
	}
	var settings bytes.Buffer
	for _, name := range []string{"thinking", "tool_choice", "output_config", "output_format"} {
		settings.WriteString(name + "=")
		if raw, ok := fields[name]; ok {
			json.Compact(&settings, raw) // valid: it was just decoded
		}
		settings.WriteByte('\n')
	}
	r.settings = settings.Bytes()
	if err := r.parseTools(fields["tools"]); err != nil {
		return nil, err
	}
	var err *apiError
	if r.System, _, err = parseContent("system", fields["system"]); err != nil {
		return nil, err
	}
	return r, r.parseMessages(fields["messages"])
}

func (r *request) parseTools(raw json.RawMessage) *apiError {
	var list []json.RawMessage
	if len(raw) > 0 && json.Unmarshal(raw, &list) != nil {
		return invalid("tools: Input should be a valid list")
	}
	for i, item := range list {
		t := tool{Raw: item}
		if json.Unmarshal(item, &t) != nil {
			return invalid("tools.%d: Input should be a valid dictionary or object to extract fields from", i)
		}
		r.Tools = append(r.Tools, t)
	}
	return nil
}

func (r *request) parseMessages(raw json.RawMessage) *apiError {
	if len(raw) == 0 {
		return invalid("messages: Field required")
	}
	var list []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return invalid("messages: Input should be a valid list")
	}
	for i, item := range list {
		at := place("messages", i)
		if len(item.Content) == 0 {
			return invalid("%s.content: Field required", at)
		}
		blocks, plain, err := parseContent(at+".content", item.Content)
		if err != nil {
			return err
		}
		r.Messages = append(r.Messages, message{Role: item.Role, Blocks: blocks, plain: plain})
	}
	return nil
}

// parseContent decodes a string or a list of blocks.
func parseContent(at string, raw json.RawMessage) (blocks []block, plain bool, _ *apiError) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, false, nil
	}
	if raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, false, invalid("%s: Input should be a valid string", at)
		}
		return []block{{Type: "text", Text: &text, Raw: slices.Concat([]byte(`{"type":"text","text":`), raw, []byte("}"))}}, true, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, false, invalid("%s: Input should be a valid list", at)
	}
	for i, item := range list {
		b := block{Raw: item}
		if json.Unmarshal(item, &b) != nil || b.Type == "" {
			return nil, false, invalid("%s: Input should be a valid dictionary or object to extract fields from", place(at, i))
		}
		if b.Type == "tool_result" {
			var err *apiError
			if b.inner, _, err = parseContent(place(at, i)+".content", b.Content); err != nil {
				return nil, false, err
			}
		}
		blocks = append(blocks, b)
	}
	return blocks, false, nil
}

// text returns the text of the block: its own, or that of a tool result.
func (b *block) text() string {
	if b.Text != nil {
		return *b.Text
	}
	var parts []string
	for i := range b.inner {
		parts = append(parts, b.inner[i].text())
	}
	return strings.Join(parts, "\n")
}

// loneSurrogate returns where in valid JSON an escape stands that is half of a pair, or -1. JSON parsers differ about
// it; the provider's refuses it.
func loneSurrogate(text []byte) int {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		first := escape(text[i:])
		if !utf16.IsSurrogate(first) {
			i++ // the escaped character
			continue
		}
		if i+6 > len(text) || utf16.DecodeRune(first, escape(text[i+6:])) == utf8.RuneError {
			return i
		}
		i += 11
	}
	return -1
}

// escape returns the code unit of a \u escape at the start of text, or 0.
func escape(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	unit, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(unit)
}

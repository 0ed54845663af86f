package simprovider

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// answer is what the provider will say to a request.
type answer struct {
	ID         string
	Blocks     []answerBlock
	StopReason string
	Pace       pace
	Fault      *Fault
}

// answerBlock is one content block of an answer.
type answerBlock struct {
	Type      string // "text", "thinking", "redacted_thinking", "tool_use", or any other with Raw
	Text      string // of text and thinking; the data of redacted thinking
	ID, Name  string // of a call
	Input     string // of a call: JSON, or what a model writes that is none
	Citations []json.RawMessage
	Raw       json.RawMessage // the whole block, of any other type
}

// pace is how fast an answer streams.
type pace struct {
	delay time.Duration // between two deltas
	chunk int           // characters of a delta
}

// signature is what this provider signs thinking with.
func signature(thinking string) string {
	sum := sha256.Sum256([]byte("condensate simulator\n" + thinking))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// tokens is the estimated length of the answer.
func (a *answer) tokens() int {
	n := 0
	for i := range a.Blocks {
		n += a.Blocks[i].tokens()
	}
	return max(n, 1)
}

func (b *answerBlock) tokens() int {
	return (len(b.Text) + len(b.Name) + len(b.Input) + len(b.Raw) + bytesPerToken - 1) / bytesPerToken
}

// cut shortens the answer to at most limit tokens, in the middle of a block if need be, as the provider does.
func (a *answer) cut(limit int) {
	left := limit
	for i := range a.Blocks {
		b := &a.Blocks[i]
		n := b.tokens()
		if n <= left {
			left -= n
			continue
		}
		keep := left * bytesPerToken
		b.Text = strings.ToValidUTF8(b.Text[:min(keep, len(b.Text))], "")
		b.Input = strings.ToValidUTF8(b.Input[:min(keep, len(b.Input))], "")
		kept := i + 1
		if b.Text == "" && b.Type != "tool_use" {
			kept = i
		}
		a.Blocks = a.Blocks[:kept]
		a.StopReason = "max_tokens"
		return
	}
}

// native returns the block as a response without streaming holds it.
func (b *answerBlock) native() json.RawMessage {
	switch b.Type {
	case "text":
		if len(b.Citations) == 0 {
			return json.RawMessage(fmt.Sprintf(`{"type":"text","text":%s}`, quoted(b.Text)))
		}
		return json.RawMessage(fmt.Sprintf(`{"type":"text","text":%s,"citations":%s}`, quoted(b.Text), list(b.Citations)))
	case "thinking":
		return json.RawMessage(fmt.Sprintf(`{"type":"thinking","thinking":%s,"signature":%s}`, quoted(b.Text), quoted(signature(b.Text))))
	case "redacted_thinking":
		return json.RawMessage(fmt.Sprintf(`{"type":"redacted_thinking","data":%s}`, quoted(b.Text)))
	case "tool_use":
		input := b.Input
		if !json.Valid([]byte(input)) {
			input = "{}"
		}
		return compact([]byte(fmt.Sprintf(`{"type":"tool_use","id":%s,"name":%s,"input":%s}`, quoted(b.ID), quoted(b.Name), input)))
	default:
		return compact(b.Raw)
	}
}

// list joins JSON values to an array, without white space between tokens.
func list(items []json.RawMessage) []byte {
	out := []byte{'['}
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, compact(item)...)
	}
	return append(out, ']')
}

// compact drops the white space between the tokens of valid JSON.
func compact(raw []byte) json.RawMessage {
	var out bytes.Buffer
	json.Compact(&out, raw)
	return out.Bytes()
}

// quoted returns s as a JSON string without HTML escapes.
func quoted(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

// usage returns the provider's count of a request.
func (c cacheResult) usage(output int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,`+
		`"cache_creation":{"ephemeral_5m_input_tokens":%d,"ephemeral_1h_input_tokens":%d},"output_tokens":%d,`+
		`"service_tier":"standard","inference_geo":"not_available"}`,
		c.Input, c.Write5m+c.Write1h, c.Read, c.Write5m, c.Write1h, output))
}

package simprovider

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"
)

// defaultChunk is how many characters a delta holds.
const defaultChunk = 24

// stream sends an answer as events. begun is called once the first event is out.
func (r *response) stream(a *answer, model string, u cacheResult, diagnostics []byte, begun func()) error {
	err := r.event("message_start", fmt.Sprintf(`{"type":"message_start","message":%s}`, a.message(model, u, diagnostics, true)))
	begun()
	if err != nil {
		return err
	}
	for i := range a.Blocks {
		if err := r.block(i, &a.Blocks[i], a.Pace); err != nil {
			return err
		}
	}
	err = r.event("message_delta", fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":%s,"stop_sequence":null},`+
		`"usage":{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,"output_tokens":%d}}`,
		quoted(a.StopReason), u.Input, u.Write5m+u.Write1h, u.Read, a.tokens()))
	if err != nil {
		return err
	}
	return r.event("message_stop", `{"type":"message_stop"}`)
}

// message returns the answer as one message; in the first event of a stream it is still empty.
func (a *answer) message(model string, u cacheResult, diagnostics []byte, opening bool) string {
	var content []json.RawMessage
	stop, output := "null", 1
	if !opening {
		for i := range a.Blocks {
			content = append(content, a.Blocks[i].native())
		}
		stop, output = quoted(a.StopReason), a.tokens()
	}
	return fmt.Sprintf(`{"model":%s,"id":%s,"type":"message","role":"assistant","content":%s,"stop_reason":%s,`+
		`"stop_sequence":null,"stop_details":null,"container":null,"usage":%s,"diagnostics":%s}`,
		quoted(model), quoted(a.ID), list(content), stop, u.usage(output), diagnostics)
}

// event sends one event, or what a fault puts in its place.
func (r *response) event(name, data string) error {
	switch {
	case r.due(faultErrorEvent):
		r.flush(sse("error", string(errOverloaded.body("req_sim_stream"))))
		return errBroken
	case r.due(faultMalformed):
		r.flush(sse("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_de`))
		return errBroken
	}
	return r.write(sse(name, data))
}

func sse(name, data string) []byte { return []byte("event: " + name + "\ndata: " + data + "\n\n") }

// block sends the events of one block.
func (r *response) block(i int, b *answerBlock, p pace) error {
	start := string(b.native())
	var deltas []func() error
	send := func(kind, field, value string) func() error {
		return func() error {
			return r.event("content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":%q,%q:%s}}`, i, kind, field, value))
		}
	}
	pieces := func(kind, field, text string) {
		for piece := range chunks(text, p.chunk) {
			deltas = append(deltas, send(kind, field, quoted(piece)))
		}
	}
	switch b.Type {
	case "text":
		start = `{"type":"text","text":""}`
		if len(b.Citations) > 0 {
			start = `{"type":"text","text":"","citations":[]}`
		}
		for _, c := range b.Citations {
			deltas = append(deltas, send("citations_delta", "citation", string(c)))
		}
		pieces("text_delta", "text", b.Text)
	case "thinking":
		start = `{"type":"thinking","thinking":"","signature":""}`
		pieces("thinking_delta", "thinking", b.Text)
		deltas = append(deltas, send("signature_delta", "signature", quoted(signature(b.Text))))
	case "tool_use":
		start = fmt.Sprintf(`{"type":"tool_use","id":%s,"name":%s,"input":{}}`, quoted(b.ID), quoted(b.Name))
		deltas = append(deltas, send("input_json_delta", "partial_json", `""`))
		pieces("input_json_delta", "partial_json", b.Input)
	}
	if err := r.event("content_block_start", fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i, start)); err != nil {
		return err
	}
	if i == 0 {
		if err := r.event("ping", `{"type":"ping"}`); err != nil {
			return err
		}
	}
	for _, delta := range deltas {
		if err := r.wait(p.delay); err != nil {
			return err
		}
		if err := delta(); err != nil {
			return err
		}
	}
	return r.event("content_block_stop", fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i))
}

// chunks yields s in pieces of n characters.
func chunks(s string, n int) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for len(s) > 0 {
			end := 0
			for range n {
				_, size := utf8.DecodeRuneInString(s[end:])
				end += size
			}
			if !yield(s[:end]) {
				return
			}
			s = s[end:]
		}
	}
}

// of returns the pace of an answer: the step's own where it has one.
func (p pace) of(s Step) pace {
	if s.DelayMS > 0 {
		p.delay = time.Duration(s.DelayMS) * time.Millisecond
	}
	if s.Chunk > 0 {
		p.chunk = s.Chunk
	}
	return p
}

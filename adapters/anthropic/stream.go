package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"condensate.dev/cnd/core/loop"
)

// MaxAnswer bounds the content of one answer: the bytes of all its blocks. A larger one is malformed.
const MaxAnswer = 32 << 20

// errMalformed marks what does not follow the wire format.
var errMalformed = errors.New("malformed stream")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// wireUsage is the provider's count of tokens; fields that do not apply are left out or null.
type wireUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
}

// assembly builds an answer from its events.
type assembly struct {
	deltas func(kind, text string)
	limit  int // of the content, in bytes

	answer    loop.Answer
	started   bool // message_start came
	open      *block
	index     int   // of the open block, or of the next one
	size      int   // bytes of the finished blocks
	textBytes int64 // of text shown in all
}

// read takes events until the answer is complete. Any error leaves in the assembly what was finished before.
func (a *assembly) read(r io.Reader) error {
	events := newSplitter(r)
	for {
		e, err := events.next()
		if errors.Is(err, errEventTooLarge) {
			return malformed("%s", err)
		}
		if err != nil {
			return err
		}
		done, err := a.take(e)
		if done || err != nil {
			return err
		}
	}
}

// take applies one event and says whether it was the last one.
func (a *assembly) take(e event) (done bool, err error) {
	switch e.name {
	case "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
		"message_stop", "error":
	default: // ping, and what this client does not know
		return false, nil
	}
	var body struct {
		Message      json.RawMessage `json:"message"`
		Index        *int            `json:"index"`
		ContentBlock json.RawMessage `json:"content_block"`
		Delta        json.RawMessage `json:"delta"`
		Usage        wireUsage       `json:"usage"`
		Error        *apiError       `json:"error"`
	}
	if err := json.Unmarshal(e.data, &body); err != nil {
		return false, malformed("%s: %s", e.name, err)
	}
	if e.name == "error" {
		if body.Error == nil {
			return false, malformed("error event without an error")
		}
		return false, body.Error
	}
	if a.started == (e.name == "message_start") {
		return false, malformed("%s out of order", e.name)
	}
	switch e.name {
	case "message_start":
		return false, a.start(body.Message)
	case "content_block_start", "content_block_delta", "content_block_stop":
		opens := e.name == "content_block_start"
		if body.Index == nil || *body.Index != a.index || opens != (a.open == nil) {
			return false, malformed("%s out of order", e.name)
		}
		return false, a.content(e.name, body.ContentBlock, body.Delta)
	case "message_delta":
		return false, a.change(body.Delta, body.Usage)
	default: // message_stop
		if a.open != nil || a.answer.StopReason == "" {
			return false, malformed("message_stop before the answer is complete")
		}
		return true, nil
	}
}

func (a *assembly) start(message json.RawMessage) error {
	var m struct {
		ID          string          `json:"id"`
		Model       string          `json:"model"`
		Usage       wireUsage       `json:"usage"`
		Diagnostics json.RawMessage `json:"diagnostics"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return malformed("message_start: %s", err)
	}
	a.started = true
	a.answer.ProviderMessageID, a.answer.Model = m.ID, m.Model
	if len(m.Diagnostics) > 0 && string(m.Diagnostics) != "null" {
		var compact bytes.Buffer
		json.Compact(&compact, m.Diagnostics) // valid: it was just decoded
		a.answer.Diagnostics = compact.Bytes()
	}
	m.Usage.Output = nil // only a placeholder until message_delta
	a.count(m.Usage)
	return nil
}

func (a *assembly) content(event string, start, delta json.RawMessage) error {
	switch event {
	case "content_block_start":
		b, err := newBlock(start)
		if err != nil {
			return malformed("%s", err)
		}
		a.open = b
		if b.Type == "tool_use" {
			a.show("tool_call", b.Name+" ")
		} else if text := b.shown(); text != "" {
			a.show("text", text)
		}
	case "content_block_delta":
		kind, shown, err := a.open.add(delta)
		if err != nil {
			return malformed("%s", err)
		}
		if shown != "" && kind != "" && (kind != "tool_call" || a.open.Type == "tool_use") {
			a.show(kind, shown)
		}
	case "content_block_stop":
		if a.open.Type == "tool_use" {
			a.show("tool_call", "\n")
		}
		native, view := a.open.finish()
		a.size += a.open.size()
		a.answer.Native = append(a.answer.Native, native)
		if view != nil {
			a.answer.View = append(a.answer.View, *view)
		}
		a.open = nil
		a.index++
		return nil
	}
	if a.size+a.open.size() > a.limit {
		return malformed("answer over %d bytes", a.limit)
	}
	return nil
}

func (a *assembly) show(kind, text string) {
	if kind == "text" {
		a.textBytes += int64(len(text))
	}
	a.deltas(kind, text)
}

func (a *assembly) change(delta json.RawMessage, usage wireUsage) error {
	var d struct {
		StopReason string `json:"stop_reason"`
	}
	if err := json.Unmarshal(delta, &d); err != nil {
		return malformed("message_delta: %s", err)
	}
	if d.StopReason != "" {
		a.answer.StopReason = d.StopReason
	}
	a.count(usage)
	return nil
}

// count takes over what was reported; counts are totals, never increments.
func (a *assembly) count(u wireUsage) {
	have := &a.answer.Usage
	for _, f := range []struct{ to, from **int64 }{
		{&have.Input, &u.Input}, {&have.Output, &u.Output}, {&have.CacheRead, &u.CacheRead}, {&have.CacheWrite, &u.CacheWrite},
	} {
		if *f.from != nil {
			*f.to = *f.from
		}
	}
}

// broken is the error for an answer that ended too early, with what was finished before.
func (a *assembly) broken(cause, detail string) *loop.ModelError {
	e := &loop.ModelError{
		Cause: cause, Detail: detail,
		Partial: a.answer, TextBytes: a.textBytes,
		ProviderRequestID: a.answer.ProviderRequestID, Usage: a.answer.Usage,
	}
	if a.open != nil {
		e.ShownText = a.open.shown()
	}
	return e
}

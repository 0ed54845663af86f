package anthropic_test

import (
	"encoding/json"
	"fmt"
	"strings"
)

// request is a body as the provider reads it.
type request struct {
	Model        string
	System       []block
	Tools        []json.RawMessage
	Messages     []message
	Stream       bool
	CacheControl json.RawMessage `json:"cache_control"`
	Diagnostics  json.RawMessage
}

type message struct {
	Role    string
	Content []block
}

type block struct {
	Type         string
	Text         string
	ID           string
	ToolUseID    string `json:"tool_use_id"`
	IsError      bool   `json:"is_error"`
	Content      []block
	Signature    string
	Source       json.RawMessage
	CacheControl json.RawMessage `json:"cache_control"`
}

// refusal returns why the provider would answer 400 to the body, or "": the rules of its documentation and of the
// errors that it is known to give.
func refusal(body []byte) string {
	var r request
	if err := json.Unmarshal(body, &r); err != nil {
		return err.Error()
	}
	marks := 0
	if r.CacheControl != nil {
		marks++
	}
	if len(r.Messages) == 0 {
		return "no messages"
	}
	if r.Messages[0].Role != "user" || r.Messages[len(r.Messages)-1].Role != "user" {
		return "first or last message is not the user's"
	}
	var uses []string
	for i, m := range r.Messages {
		if len(m.Content) == 0 {
			return fmt.Sprintf("message %d is empty", i)
		}
		n := 0
		for n < len(m.Content) && m.Content[n].Type == "tool_result" {
			if m.Role != "user" || n >= len(uses) || m.Content[n].ToolUseID != uses[n] {
				return fmt.Sprintf("message %d: result %d is not of call %d", i, n, n)
			}
			n++
		}
		if n != len(uses) {
			return fmt.Sprintf("message %d: %d results for %d calls", i, n, len(uses))
		}
		uses = nil
		for j, b := range m.Content {
			if b.CacheControl != nil {
				marks++
			}
			if why := b.refusal(m.Role); why != "" {
				return fmt.Sprintf("message %d block %d: %s", i, j, why)
			}
			if j >= n && b.Type == "tool_result" {
				return fmt.Sprintf("message %d block %d: a result after other content", i, j)
			}
			if b.Type == "tool_use" {
				uses = append(uses, b.ID)
			}
		}
		if t := m.Content[len(m.Content)-1].Type; m.Role == "assistant" && strings.HasSuffix(t, "thinking") {
			return fmt.Sprintf("message %d ends with thinking", i)
		}
	}
	if marks > 4 {
		return fmt.Sprintf("%d cache breakpoints", marks)
	}
	return ""
}

func (b block) refusal(role string) string {
	switch b.Type {
	case "text":
		if strings.TrimSpace(b.Text) == "" {
			return "blank text"
		}
	case "thinking":
		if role != "assistant" || b.Signature == "" || b.CacheControl != nil {
			return "thinking that is unsigned, marked or the user's"
		}
	case "redacted_thinking":
		if role != "assistant" || b.CacheControl != nil {
			return "redacted thinking that is marked or the user's"
		}
	case "tool_use":
		if role != "assistant" {
			return "a call by the user"
		}
	case "tool_result":
		for _, c := range b.Content {
			if why := c.refusal(role); why != "" {
				return why
			}
		}
	case "image":
		if role != "user" {
			return "an image by the assistant"
		}
	default:
		return "unknown type " + b.Type
	}
	return ""
}

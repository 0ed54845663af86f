package simprovider

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Limits of the provider.
const (
	// MaxBody is the largest request, in bytes.
	MaxBody = 32 << 20
	// MaxImage is the largest image, in bytes of base64.
	MaxImage = 5 << 20
	// MaxBreakpoints is how many cache markers a request may have.
	MaxBreakpoints = 4
	// ContextWindow is the longest prompt, in tokens.
	ContextWindow = 1_000_000
)

var (
	toolName    = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	roles       = []string{"user", "assistant", "system"}
	imageTypes  = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}
	ttls        = []string{"", "5m", "1h"}
	uncacheable = []string{"thinking", "redacted_thinking"}
)

func place(at string, i int) string { return fmt.Sprintf("%s.%d", at, i) }

// validate checks what the provider checks, with its words.
func (r *request) validate() *apiError {
	switch {
	case r.Model == "":
		return invalid("model: Field required")
	case !r.hasMax:
		return invalid("max_tokens: Field required")
	case r.MaxTokens < 1:
		return invalid("max_tokens: Input should be greater than or equal to 1")
	case r.Thinking.Type == "enabled" && r.Thinking.Budget < 1024:
		return invalid("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
	case r.Thinking.Type == "enabled" && r.Thinking.Budget >= r.MaxTokens:
		return invalid("`max_tokens` must be greater than `thinking.budget_tokens`")
	case len(r.Messages) == 0:
		return invalid("messages: at least one message is required")
	case r.Messages[0].Role != "user":
		return invalid("messages: first message must use the \"user\" role")
	case r.Messages[len(r.Messages)-1].Role == "assistant":
		return invalid("This model does not support assistant message prefill. The conversation must end with a user message.")
	}
	for _, check := range []func() *apiError{r.validateTools, r.validateBlocks, r.validateCalls, r.validateThinking, r.validateMarkers} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (r *request) validateTools() *apiError {
	seen := map[string]bool{}
	for i, t := range r.Tools {
		if t.Type != "" && t.Type != "custom" {
			continue // a tool of the provider's own
		}
		at := place("tools", i) + ".custom"
		switch {
		case !toolName.MatchString(t.Name):
			return invalid("%s.name: String should match pattern '%s'", at, toolName)
		case len(t.InputSchema) == 0 || t.InputSchema[0] != '{':
			return invalid("%s.input_schema: Field required", at)
		case seen[t.Name]:
			return invalid("tools: Tool names must be unique.")
		}
		seen[t.Name] = true
	}
	return nil
}

func (r *request) validateBlocks() *apiError {
	for i := range r.System {
		if err := validateText("system", &r.System[i]); err != nil {
			return err
		}
	}
	for i, m := range r.Messages {
		at := place("messages", i)
		if !slices.Contains(roles, m.Role) {
			return invalid("%s.role: Input should be 'user', 'assistant' or 'system'", at)
		}
		if len(m.Blocks) == 0 || (m.plain && *m.Blocks[0].Text == "") {
			return invalid("%s: all messages must have non-empty content except for the optional final assistant message", at)
		}
		for j := range m.Blocks {
			if err := validateBlock(place(at+".content", j), &m.Blocks[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

func validateText(at string, b *block) *apiError {
	switch {
	case b.Type == "text" && b.Text == nil:
		return invalid("%s.text.text: Field required", at)
	case b.Type == "text" && *b.Text == "":
		return invalid("%s: text content blocks must be non-empty", strings.SplitN(at, ".", 2)[0])
	case b.Type == "text" && strings.TrimSpace(*b.Text) == "":
		return invalid("%s: text content blocks must contain non-whitespace text", strings.SplitN(at, ".", 2)[0])
	}
	return nil
}

func validateBlock(at string, b *block) *apiError {
	switch b.Type {
	case "text":
		return validateText(at, b)
	case "image":
		return validateImage(at, b)
	case "tool_use":
		if len(b.Input) == 0 || b.Input[0] != '{' {
			return invalid("%s.tool_use.input: Input should be a valid dictionary", at)
		}
		if b.ID == "" || !toolName.MatchString(b.Name) {
			return invalid("%s.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", at)
		}
	case "tool_result":
		for i := range b.inner {
			if err := validateBlock(place(at+".tool_result.content", i), &b.inner[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func validateImage(at string, b *block) *apiError {
	if b.Source == nil {
		return invalid("%s.image.source: Field required", at)
	}
	if b.Source.Type != "base64" {
		return nil
	}
	if !slices.Contains(imageTypes, b.Source.MediaType) {
		return invalid("%s.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'", at)
	}
	if n := len(b.Source.Data); n > MaxImage {
		return invalid("%s.image.source.base64: image exceeds 5 MB maximum: %d bytes > %d bytes", at, n, MaxImage)
	}
	return nil
}

// validateCalls checks that the results of all calls of an answer come first in the next message, and no others.
func (r *request) validateCalls() *apiError {
	used := map[string]bool{}
	open := map[string]bool{} // calls of the message before
	for i, m := range r.Messages {
		at := place("messages", i)
		if m.Role == "system" {
			continue
		}
		answered := map[string]bool{}
		leading := true
		for j := range m.Blocks {
			b := &m.Blocks[j]
			if b.Type != "tool_result" {
				leading = false
				continue
			}
			switch {
			case m.Role != "user":
				return invalid("%s: `tool_result` blocks can only be in `user` messages", at)
			case answered[b.ToolUseID]:
				return invalid("%s.content.%d: each tool_use must have a single result. Found multiple `tool_result` blocks with id: %s", at, j, b.ToolUseID)
			case !open[b.ToolUseID]:
				return invalid("%s.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", at, j, b.ToolUseID)
			}
			answered[b.ToolUseID] = leading
		}
		if missing := unanswered(open, answered); len(missing) > 0 {
			return invalid("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", i-1, strings.Join(missing, ", "))
		}
		clear(open)
		for j := range m.Blocks {
			if b := &m.Blocks[j]; b.Type == "tool_use" {
				if m.Role != "assistant" {
					return invalid("%s: `tool_use` blocks can only be in `assistant` messages", at)
				}
				if used[b.ID] {
					return invalid("%s.content.%d: `tool_use` ids must be unique", at, j)
				}
				used[b.ID], open[b.ID] = true, true
			}
		}
	}
	return nil
}

func unanswered(open, answered map[string]bool) []string {
	var missing []string
	for id := range open {
		if !answered[id] {
			missing = append(missing, id)
		}
	}
	slices.Sort(missing)
	return missing
}

// validateThinking checks the signatures that this provider gave, and that an answer that goes on begins with thinking
// where that is enabled.
func (r *request) validateThinking() *apiError {
	last := 0
	for i, m := range r.Messages {
		if m.Role == "assistant" {
			last = i
		}
		for j := range m.Blocks {
			b := &m.Blocks[j]
			if b.Type == "thinking" && (b.Thinking == nil || b.Signature != signature(*b.Thinking)) {
				return invalid("messages.%d.content.%d: Invalid `signature` in `thinking` block", i, j)
			}
		}
	}
	m := r.Messages[last]
	goesOn := m.Role == "assistant" && slices.ContainsFunc(m.Blocks, func(b block) bool { return b.Type == "tool_use" })
	if r.Thinking.Type == "enabled" && goesOn && !slices.Contains(uncacheable, m.Blocks[0].Type) {
		return invalid("messages.%d.content.0.type: Expected `thinking` or `redacted_thinking`, but found `%s`. When `thinking` is enabled, a final `assistant` message must start with a thinking block.", last, m.Blocks[0].Type)
	}
	return nil
}

package simprovider

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// maxQuote bounds how much of a tool result an answer repeats, in bytes.
const maxQuote = 1500

// conversation is what a script looks at in a request.
type conversation struct {
	tools      []tool
	text       string   // the last text of the user
	step       int      // assistant messages after it
	assistants int      // assistant messages in all
	results    []*block // tool results of the last message
}

func newConversation(r *request) *conversation {
	c := &conversation{tools: r.Tools}
	for i := range r.Messages {
		m := &r.Messages[i]
		if m.Role == "assistant" {
			c.assistants++
			c.step++
			continue
		}
		c.results = nil
		for j := range m.Blocks {
			switch b := &m.Blocks[j]; b.Type {
			case "text":
				if m.Role == "user" {
					c.text, c.step = strings.TrimSpace(*b.Text), 0
				}
			case "tool_result":
				c.results = append(c.results, b)
			}
		}
	}
	return c
}

func (c *conversation) hasTool(name string) bool {
	for i := range c.tools {
		if c.tools[i].Name == name {
			return true
		}
	}
	return false
}

// result is what the newest tool results say.
func (c *conversation) result() string {
	var parts []string
	for _, b := range c.results {
		text := strings.TrimSpace(b.text())
		if text == "" {
			text = "(no output)"
		}
		if b.IsError {
			text = "It failed: " + text
		}
		parts = append(parts, text)
	}
	all := strings.Join(parts, "\n")
	if len(all) > maxQuote {
		all = strings.ToValidUTF8(all[:maxQuote], "") + "\n… (" + strconv.Itoa(len(all)-maxQuote) + " more bytes)"
	}
	if all == "" {
		return "(no result)"
	}
	return all
}

var placeholder = regexp.MustCompile(`\$\{([a-z]+|[0-9])\}`)

// expand fills the placeholders of a script.
func expand(s string, c *conversation, match []string) string {
	return placeholder.ReplaceAllStringFunc(s, func(p string) string {
		name := p[2 : len(p)-1]
		switch n, err := strconv.Atoi(name); {
		case err == nil && n < len(match):
			return match[n]
		case name == "text":
			return c.text
		case name == "result":
			return c.result()
		default:
			return p
		}
	})
}

// expandJSON fills the placeholders in the strings of a JSON value and keeps its other tokens.
func expandJSON(raw json.RawMessage, expand func(string) string) string {
	var out strings.Builder
	for len(raw) > 0 {
		start := bytes.IndexByte(raw, '"')
		if start < 0 {
			break
		}
		out.Write(raw[:start])
		end := start + 1
		for raw[end] != '"' {
			if raw[end] == '\\' {
				end++
			}
			end++
		}
		var s string
		json.Unmarshal(raw[start:end+1], &s) // a token of valid JSON
		out.WriteString(quoted(expand(s)))
		raw = raw[end+1:]
	}
	out.Write(raw)
	return out.String()
}

package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/internal/terminal"
)

// Limits of what a transcript shows of one thing; the record has it all.
const (
	MaxResultLines = 8   // lines of a tool's result: the first and the last ones
	MaxLine        = 200 // characters of a line of a result or of a call
)

// oneLine returns the start of s as one clean line.
func oneLine(s string) string {
	s = strings.ReplaceAll(terminal.Clean(s), "\n", "⏎")
	if utf8.RuneCountInString(s) > MaxLine {
		s = string([]rune(s)[:MaxLine]) + "…"
	}
	return s
}

// call returns what a call does as one line: its name and the argument that says most.
func call(b thread.Block) string {
	var input map[string]json.RawMessage
	if json.Unmarshal(b.Input, &input) == nil {
		for _, key := range leading {
			var value string
			if json.Unmarshal(input[key], &value) == nil {
				return b.Name + " " + oneLine(value)
			}
		}
	}
	if b.InputText != "" {
		return b.Name + " " + oneLine(b.InputText)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, b.Input) != nil {
		return b.Name
	}
	return b.Name + " " + oneLine(compact.String())
}

// text returns what a block says; content that is no text is named.
func text(b thread.Block) string {
	switch {
	case b.Type == "image":
		return fmt.Sprintf("[image %s %s]", b.MediaType, b.Blob)
	case b.Blob != "":
		return fmt.Sprintf("[long text %s]", b.Blob)
	default:
		return terminal.Clean(b.Text)
	}
}

// joined returns the text of all blocks.
func joined(blocks []thread.Block) string {
	parts := make([]string, 0, len(blocks))
	for _, b := range blocks {
		parts = append(parts, text(b))
	}
	return strings.Join(parts, "\n")
}

// excerpt returns the lines of a result that are shown.
func excerpt(s string) []string {
	s = strings.TrimRight(s, "\n")
	if s == "" {
		return nil
	}
	lines := strings.Split(s, "\n")
	if cut := len(lines) - MaxResultLines; cut > 0 {
		head, tail := lines[:MaxResultLines/2], lines[len(lines)-MaxResultLines/2:]
		lines = append(append(append([]string{}, head...), fmt.Sprintf("… %d more lines …", cut)), tail...)
	}
	for i, line := range lines {
		lines[i] = oneLine(line)
	}
	return lines
}

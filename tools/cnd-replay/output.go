package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"condensate.dev/cnd/tools/internal/terminal"
)

// document writes v as one line of JSON.
func (o output) document(v any) error {
	enc := json.NewEncoder(o)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// oneLine returns text shortened to at most limit characters on one line.
func oneLine(text string, limit int) string {
	text = strings.Join(strings.Fields(terminal.Clean(text)), " ")
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}

// tokens writes a count that the provider may not have reported.
func tokens(n *int64) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}

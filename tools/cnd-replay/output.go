package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// document writes v as one line of JSON.
func (o output) document(v any) error {
	enc := json.NewEncoder(o)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// harmless returns text that moves no terminal: control characters other than newline and tab become U+FFFD.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return '\ufffd'
		}
		return r
	}, text)
}

// oneLine returns text shortened to at most limit characters on one line.
func oneLine(text string, limit int) string {
	text = strings.Join(strings.Fields(harmless(text)), " ")
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

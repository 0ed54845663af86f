// Package terminal keeps foreign text, of models, tools and records, from commanding the terminal that it is shown on.
package terminal

import (
	"strings"
	"unicode/utf8"
)

// Clean returns s without what could move or reorder what a terminal shows: control characters other than newline and
// tab, line and paragraph separators and marks of text direction are shown as U+FFFD.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20, r >= 0x7f && r < 0xa0, r == 0x2028, r == 0x2029, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return utf8.RuneError
		default:
			return r
		}
	}, s)
}

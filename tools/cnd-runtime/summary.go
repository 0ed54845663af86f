package main

import (
	"fmt"
	"io"
	"strings"

	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/internal/terminal"
)

// printSummary prints the head of thread show.
func printSummary(w io.Writer, s thread.Summary) error {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, terminal.Clean(fmt.Sprintf(format, args...)))
	}
	row("thread", "%s", s.ID)
	if s.Title != "" {
		row("title", "%s", s.Title)
	}
	row("folder", "%s", s.Cwd)
	row("model", "%s", s.Model)
	row("state", "%s", state(s))
	if s.Waiting != nil && s.Waiting.Detail != "" {
		row("", "%s", s.Waiting.Detail)
	}
	if s.Waiting != nil && s.Waiting.Call != "" {
		row("", "cnd-runtime thread approve %s %s", s.ID, s.Waiting.Call)
	}
	if s.Trouble != nil {
		row("", "%s", s.Trouble.Message)
	}
	if s.Trouble != nil && s.Trouble.Hint != "" {
		row("", "%s", s.Trouble.Hint)
	}
	row("entries", "%d, %d turns, %d requests, %d messages queued", s.Seq+1, s.Turns, s.Requests, s.Queued)
	row("tokens", "%s in, %s out, %s read from the cache, %s written to it", count(s.Usage.Input), count(s.Usage.Output),
		count(s.Usage.CacheRead), count(s.Usage.CacheWrite))
	if s.Unknown > 0 {
		row("", "%d attempts without a report of their usage", s.Unknown)
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// count prints a number of tokens that may not be known.
func count(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprint(*n)
}

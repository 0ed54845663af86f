package main

import (
	"context"
	"fmt"

	urfave "github.com/urfave/cli/v3"

	"condensate.dev/cnd/core/replay"
)

// cacheLine is a line of cache --json.
type cacheLine struct {
	V    int    `json:"v"`
	Type string `json:"type"`
	replay.CacheLine
}

// cache reports what each request should have read from the prompt cache and what the provider says that it read.
func cache(ctx context.Context, _ *urfave.Command, in *input, out output) error {
	first := true
	for line, err := range replay.Cache(ctx, in) {
		if err != nil {
			return fmt.Errorf("cache of %s: %w", in.name, err)
		}
		if out.json {
			if err := out.document(cacheLine{Type: "cache", CacheLine: line}); err != nil {
				return err
			}
			continue
		}
		if first {
			fmt.Fprintf(out, "%7s  %5s  %7s  %-12s  %10s  %10s  %10s  %s\n",
				"REQUEST", "EPOCH", "ATTEMPT", "OUTCOME", "EXPECTED", "READ", "WRITTEN", "NOTE")
			first = false
		}
		expected := fmt.Sprint(line.ExpectedRead)
		switch line.Expect {
		case replay.ExpectUnknown:
			expected = "unknown"
		case replay.ExpectAtLeast:
			expected = ">=" + expected
		}
		note := line.Broke
		if line.Missed {
			note = "MISSED " + note
		}
		fmt.Fprintf(out, "%7d  %5d  %7d  %-12s  %10s  %10s  %10s  %s\n", line.Request, line.Epoch, line.Attempt,
			oneLine(line.Outcome, 12), expected, tokens(line.Usage.CacheRead), tokens(line.Usage.CacheWrite), oneLine(note, 200))
	}
	return nil
}

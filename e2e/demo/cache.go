package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"condensate.dev/cnd/core/replay"
)

// cache reads the cache report: a request that was sent again after a crash must find the cache that its first attempt
// left behind.
func (t *tale) cache(ctx context.Context) error {
	report, _, err := t.Run(ctx, nil, "cnd-replay", "cache", "--json", t.export)
	if err != nil {
		return err
	}
	resent := 0
	for text := range strings.Lines(report) {
		var line replay.CacheLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			return fmt.Errorf("cache report: %w", err)
		}
		if line.Missed {
			return fmt.Errorf("request %d read less from the cache than it left there: %+v", line.Request, line)
		}
		if line.Attempt == 1 || line.Usage.CacheRead == nil {
			continue
		}
		resent++
		if *line.Usage.CacheRead == 0 || line.Usage.CacheWrite == nil || *line.Usage.CacheWrite != 0 {
			return fmt.Errorf("request %d was sent again and did not read all that its first attempt wrote: %+v", line.Request, line)
		}
		fmt.Printf("Request %d, sent again after the crash, read %d tokens from the cache that it left behind.\n", line.Request, *line.Usage.CacheRead)
	}
	if resent == 0 {
		return errors.New("no request was sent again: no kill hit a stream")
	}
	return nil
}

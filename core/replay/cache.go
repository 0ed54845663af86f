package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"time"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// How an expectation is to be read.
const (
	ExpectExact   = "exact"    // reads + writes of the request before
	ExpectAtLeast = "at_least" // the same, but attempts in between may have written more
	ExpectUnknown = "unknown"
)

// CacheLine is what is expected and reported of the provider's prompt cache for one request.
type CacheLine struct {
	Request record.Seq   `json:"request"` // seq of the request.prepared
	Epoch   record.Seq   `json:"epoch"`
	Attempt int          `json:"attempt"`
	Outcome string       `json:"outcome"` // "finished", a cause of answer.aborted, or "open"
	Usage   thread.Usage `json:"usage"`
	// Expect says how to read ExpectedRead.
	Expect       string `json:"expect"`
	ExpectedRead int64  `json:"expected_read_tokens"` // 0 when unknown
	// Broke says why nothing is expected, or what the provider said of a prefix that it did not reuse.
	Broke string `json:"broke,omitempty"`
	// Missed says that fewer tokens were read than expected.
	Missed bool `json:"missed,omitempty"`
}

// Cache yields a line for each request of the thread, in order: what its answer should have read from the cache, as
// far as the record can tell, and what the provider reported.
//
// The previous request of the same epoch leaves its prefix, reads + writes tokens, in the cache. It can be read while
// the prefix is the same (within an epoch it always is), the account is the same (of an epoch too), its end is within
// the look-back and the entry has not expired. Times are those of the entries.
func Cache(ctx context.Context, src Source) iter.Seq2[CacheLine, error] {
	return func(yield func(CacheLine, error) bool) {
		c := &cache{player: player{src: src, out: io.Discard}}
		for e, err := range src.Entries(ctx, 0) {
			if err == nil {
				err = c.entry(ctx, e)
			}
			if err != nil {
				yield(CacheLine{}, err)
				return
			}
			if c.done != nil && !yield(*c.done, nil) {
				return
			}
			c.done = nil
		}
		if c.open != nil {
			yield(*c.open, nil)
		}
	}
}

// cache folds a thread into cache lines.
type cache struct {
	player
	open *CacheLine // the request that has no outcome
	done *CacheLine // the line that is complete

	known     bool  // the epoch has an answer whose usage is known
	cached    int64 // reads + writes of the newest one
	touched   time.Time
	unsettled bool // an attempt after it ended without usage
}

func (c *cache) entry(ctx context.Context, e record.Entry) error {
	switch e.Kind {
	case record.EpochStarted:
		c.done, c.open = c.open, nil
		c.known, c.unsettled = false, false
	case record.RequestPrepared:
		if err := c.request(e); err != nil {
			return err
		}
	case record.AnswerFinished:
		if b, err := thread.Decode[thread.AnswerFinished](e); err == nil {
			c.settle(e, "finished", b.Usage, b.Diagnostics)
		}
	case record.AnswerAborted:
		if b, err := thread.Decode[thread.AnswerAborted](e); err == nil {
			c.settle(e, b.Cause, b.Usage, nil)
		}
	}
	return c.add(ctx, e)
}

func (c *cache) request(e record.Entry) error {
	c.done, c.open = c.open, nil
	line := &CacheLine{Request: e.Seq, Epoch: c.epoch, Outcome: "open", Expect: ExpectUnknown}
	if recorded, err := decodePrepared(e); err == nil {
		line.Attempt = int(recorded.attempt)
	}
	tail, err := c.close()
	switch {
	case err != nil && !isInvalid(err):
		return fmt.Errorf("rebuild request at entry %d: %w", e.Seq, err)
	case err != nil:
		line.Broke = "cannot be rebuilt: " + err.Error()
	case c.settings.Cache.TTL == "":
		line.Broke = "the epoch does not cache"
	case !c.known && c.unsettled:
		line.Broke = fmt.Sprintf("no answer of epoch %d (%s) reported its usage", c.epoch, c.settings.Reason)
	case !c.known:
		line.Broke = fmt.Sprintf("first of epoch %d (%s)", c.epoch, c.settings.Reason)
	case e.Time.Sub(c.touched) > ttl(c.settings.Cache.TTL):
		line.Broke = fmt.Sprintf("expired: %s since the last request, the cache keeps %s",
			e.Time.Sub(c.touched).Round(time.Second), c.settings.Cache.TTL)
	case !tail.Reach:
		line.Broke = "look-back: more new blocks than the provider looks back over, and no breakpoint left"
	default:
		line.Expect, line.ExpectedRead = ExpectExact, c.cached
		if c.unsettled {
			line.Expect = ExpectAtLeast
		}
	}
	c.open, c.touched = line, e.Time
	return nil
}

func ttl(name string) time.Duration {
	if name == "1h" {
		return time.Hour
	}
	return 5 * time.Minute
}

// settle completes the open line with the outcome of the request.
func (c *cache) settle(e record.Entry, outcome string, usage thread.Usage, diagnostics json.RawMessage) {
	if c.open == nil {
		return
	}
	line := c.open
	line.Outcome, line.Usage = outcome, usage
	if usage.CacheRead == nil || usage.CacheWrite == nil {
		c.unsettled = true
	} else {
		line.Missed = line.Expect != ExpectUnknown && *usage.CacheRead < line.ExpectedRead
		c.known, c.unsettled, c.cached = true, false, *usage.CacheRead+*usage.CacheWrite
	}
	if said := missReason(diagnostics); said != "" {
		if line.Broke != "" {
			line.Broke += "; "
		}
		line.Broke += "provider: " + said
	}
	c.done, c.open = line, nil
}

// missReason returns what the provider's diagnostics say, or "".
func missReason(diagnostics json.RawMessage) string {
	var d struct {
		Reason *struct {
			Type string `json:"type"`
		} `json:"cache_miss_reason"`
	}
	if json.Unmarshal(diagnostics, &d) != nil || d.Reason == nil {
		return ""
	}
	return d.Reason.Type
}

package simprovider

import (
	"strings"
	"sync"
	"time"
)

// lookBack is how many blocks, the marked one included, the provider checks for an entry at each breakpoint.
const lookBack = 20

// maxCacheEntries bounds the cache. When it is full of live entries it is emptied.
const maxCacheEntries = 1 << 16

// minimums are the shortest prefixes that models cache, in tokens; see minimum.
var minimums = []struct {
	prefix string
	tokens int
}{
	{"claude-opus-5", 512}, {"claude-fable-5", 512}, {"claude-mythos-5", 512},
	{"claude-opus-4-7", 2048},
	{"claude-opus-4-6", 4096}, {"claude-opus-4-5", 4096}, {"claude-haiku-4-5", 4096},
}

// minimum is the shortest prefix that the model caches, in tokens.
func minimum(model string) int {
	for _, m := range minimums {
		if strings.HasPrefix(model, m.prefix) {
			return m.tokens
		}
	}
	return 1024
}

// cache is the prompt cache: which prefixes are stored, and until when. Entries are written at marked blocks only, once
// the response to the request that marked them begins; reading one keeps it for its lifetime again.
type cache struct {
	mu      sync.Mutex
	entries map[digest]cacheEntry
}

type cacheEntry struct {
	ttl     time.Duration
	expires time.Time
}

// cacheResult is what a request read and wrote, in tokens. Input + Read + Write5m + Write1h is the whole prompt.
type cacheResult struct {
	Input   int `json:"input_tokens"`
	Read    int `json:"cache_read_tokens"`
	Write5m int `json:"cache_write_5m_tokens"`
	Write1h int `json:"cache_write_1h_tokens"`
}

// look finds the longest stored prefix of p and says what the request will read and write. It changes nothing.
func (c *cache) look(p *prompt, now time.Time) (result cacheResult, readAt int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	readAt = -1
	for i := len(p.breakpoints) - 1; i >= 0 && readAt < 0; i-- {
		at := p.breakpoints[i].at
		for j := at; j >= 0 && j > at-lookBack; j-- {
			if e, ok := c.entries[p.chain[j]]; ok && e.expires.After(now) {
				readAt = j
				break
			}
		}
	}
	if readAt >= 0 {
		result.Read = p.sum[readAt]
	}
	done := result.Read
	for _, b := range p.breakpoints {
		n := p.sum[b.at]
		if n <= done || n < minimum(p.model) {
			continue
		}
		if b.ttl == time.Hour {
			result.Write1h += n - done
		} else {
			result.Write5m += n - done
		}
		done = n
	}
	result.Input = p.total() - done
	return result, readAt
}

// begin stores what a request marked and refreshes what it read; it is called when its response begins.
func (c *cache) begin(p *prompt, readAt int, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if readAt >= 0 {
		e := c.entries[p.chain[readAt]]
		e.expires = now.Add(e.ttl)
		c.entries[p.chain[readAt]] = e
	}
	for _, b := range p.breakpoints {
		if p.sum[b.at] < minimum(p.model) {
			continue
		}
		ttl := max(b.ttl, c.live(p.chain[b.at], now).ttl)
		c.makeRoom(now)
		c.entries[p.chain[b.at]] = cacheEntry{ttl, now.Add(ttl)}
	}
}

func (c *cache) live(d digest, now time.Time) cacheEntry {
	if e := c.entries[d]; e.expires.After(now) {
		return e
	}
	return cacheEntry{}
}

func (c *cache) makeRoom(now time.Time) {
	if len(c.entries) < maxCacheEntries {
		return
	}
	for d, e := range c.entries {
		if !e.expires.After(now) {
			delete(c.entries, d)
		}
	}
	if len(c.entries) >= maxCacheEntries {
		clear(c.entries)
	}
}

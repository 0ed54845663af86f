package simprovider

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"
)

// bytesPerToken is the estimate of this provider's tokenizer; imageTokens is what an image of any size counts.
const (
	bytesPerToken = 4
	imageTokens   = 1600
)

type digest [sha256.Size]byte

// prompt is a request as the cache sees it: blocks in the order tools, system, messages, without cache markers. Block i
// ends a prefix whose identity is chain[i] and whose length is sum[i] tokens.
type prompt struct {
	chain       []digest
	sum         []int
	breakpoints []breakpoint // ascending
	tools       int          // number of blocks that are tools
	system      int          // number of blocks before the messages
	model       string
	account     string
	settings    []byte
}

// breakpoint is a marked block.
type breakpoint struct {
	at  int // index of the block
	ttl time.Duration
}

// total is the length of the prompt in tokens.
func (p *prompt) total() int {
	if len(p.sum) == 0 {
		return 0
	}
	return p.sum[len(p.sum)-1]
}

// newPrompt lays out a valid request.
func newPrompt(r *request, account string) *prompt {
	p := &prompt{model: r.Model, account: account, settings: r.settings}
	state := sha256.Sum256([]byte(account + "\n" + r.Model))
	last := -1 // the last block that can be cached
	add := func(label string, raw json.RawMessage, tokens int, marker *cacheControl, cacheable bool) {
		text := stripMarkers(raw)
		if tokens == 0 {
			tokens = (len(text) + bytesPerToken - 1) / bytesPerToken
		}
		state = chain(state, label, text)
		p.chain = append(p.chain, state)
		p.sum = append(p.sum, p.total()+tokens)
		at := len(p.chain) - 1
		if cacheable {
			last = at
		}
		if marker != nil {
			p.breakpoints = append(p.breakpoints, breakpoint{at, marker.ttl()})
		}
	}
	for i := range r.Tools {
		add("tool", r.Tools[i].Raw, 0, r.Tools[i].CacheControl, true)
	}
	p.tools = len(p.chain)
	for i := range r.System {
		add("system", r.System[i].Raw, 0, r.System[i].CacheControl, true)
	}
	p.system = len(p.chain)
	state = chain(state, "settings", r.settings)
	for _, m := range r.Messages {
		for i := range m.Blocks {
			b := &m.Blocks[i]
			add(m.Role, b.Raw, b.imageTokens(), b.marker(), !slices.Contains(uncacheable, b.Type))
		}
	}
	if r.Cache != nil && last >= 0 {
		marked := slices.ContainsFunc(p.breakpoints, func(b breakpoint) bool { return b.at == last })
		if !marked {
			p.breakpoints = append(p.breakpoints, breakpoint{last, r.Cache.ttl()})
			slices.SortFunc(p.breakpoints, func(a, b breakpoint) int { return a.at - b.at })
		}
	}
	return p
}

func chain(before digest, label string, text []byte) digest {
	h := sha256.New()
	h.Write(before[:])
	h.Write([]byte(label + "\n"))
	h.Write(text)
	return digest(h.Sum(nil))
}

func (c *cacheControl) ttl() time.Duration {
	if c.TTL == "1h" {
		return time.Hour
	}
	return 5 * time.Minute
}

// marker returns the block's cache marker, or one inside it.
func (b *block) marker() *cacheControl {
	if b.CacheControl != nil {
		return b.CacheControl
	}
	for i := range b.inner {
		if m := b.inner[i].marker(); m != nil {
			return m
		}
	}
	return nil
}

// imageTokens is what a block with images counts instead of its bytes; 0 for one without.
func (b *block) imageTokens() int {
	if b.Type == "image" {
		return imageTokens
	}
	n := 0
	for i := range b.inner {
		n += b.inner[i].imageTokens()
	}
	if n > 0 {
		n += (len(b.text()) + bytesPerToken - 1) / bytesPerToken
	}
	return n
}

// stripMarkers returns a tool or block without white space between tokens and without its cache markers; everything
// else keeps its bytes and its order.
func stripMarkers(raw json.RawMessage) []byte {
	text := compact(raw)
	if !bytes.Contains(text, []byte(`"cache_control"`)) || text[0] != '{' {
		return text
	}
	out := []byte{'{'}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.Token() // {
	for dec.More() {
		name, _ := dec.Token()
		var value json.RawMessage
		dec.Decode(&value) // valid: it was just compacted
		if name == "cache_control" {
			continue
		}
		if name == "content" && value[0] == '[' {
			value = stripList(value)
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		key, _ := json.Marshal(name)
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}')
}

func stripList(raw json.RawMessage) []byte {
	var items []json.RawMessage
	json.Unmarshal(raw, &items) // valid: it was just compacted
	for i := range items {
		items[i] = stripMarkers(items[i])
	}
	return list(items)
}

// validateMarkers checks the cache markers of a request in the order in which they are processed.
func (r *request) validateMarkers() *apiError {
	found := 0
	short := false // a 5-minute marker came
	var lastBlock *block
	check := func(at string, c *cacheControl) *apiError {
		if c == nil {
			return nil
		}
		found++
		switch {
		case c.Type != "ephemeral":
			return invalid("%scache_control.type: Input should be 'ephemeral'", at)
		case !slices.Contains(ttls, c.TTL):
			return invalid("%scache_control.ephemeral.ttl: Input should be '5m' or '1h'", at)
		case c.TTL == "1h" && short:
			return invalid("%scache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`.", at)
		}
		short = short || c.TTL != "1h"
		return nil
	}
	for i := range r.Tools {
		if err := check(place("tools", i)+".", r.Tools[i].CacheControl); err != nil {
			return err
		}
	}
	for i := range r.System {
		if err := check(place("system", i)+".", r.System[i].CacheControl); err != nil {
			return err
		}
	}
	for i, m := range r.Messages {
		for j := range m.Blocks {
			b := &m.Blocks[j]
			at := place(place("messages", i)+".content", j)
			if slices.Contains(uncacheable, b.Type) {
				if b.CacheControl != nil {
					return invalid("%s.%s.cache_control: Extra inputs are not permitted", at, b.Type)
				}
				continue
			}
			lastBlock = b
			if err := check(at+".", b.marker()); err != nil {
				return err
			}
		}
	}
	if r.Cache != nil {
		if own := lastBlock.topMarker(); own == nil {
			if err := check("", r.Cache); err != nil {
				return err
			}
		} else if own.ttl() != r.Cache.ttl() {
			return invalid("cache_control: the last block has an explicit cache_control with a different ttl")
		}
	}
	if found > MaxBreakpoints {
		return invalid("A maximum of %d blocks with cache_control may be provided. Found %d.", MaxBreakpoints, found)
	}
	return nil
}

func (b *block) topMarker() *cacheControl {
	if b == nil {
		return nil
	}
	return b.marker()
}

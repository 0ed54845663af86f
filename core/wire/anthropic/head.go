package anthropic

import (
	"condensate.dev/cnd/core/wire/rawjson"
)

// writeHead writes everything up to the first message. System texts without a visible character are left out: the
// provider refuses them.
func (b *Builder) writeHead() {
	w := b.out
	w.Raw(`{"model":`)
	w.String(b.epoch.Model)
	w.Raw(`,"max_tokens":`)
	w.Int(b.epoch.MaxTokens)
	system := 0
	for _, text := range b.epoch.System {
		lit := rawjson.Quote(text)
		if isBlank(lit) {
			continue
		}
		if system == 0 {
			w.Raw(`,"system":[`)
		} else {
			w.Raw(`,`)
		}
		system++
		w.Raw(`{"type":"text","text":`)
		w.Bytes(lit)
		w.Raw(`}`)
	}
	if system > 0 {
		w.Raw(`]`)
	}
	for i, tool := range b.epoch.Tools {
		if i == 0 {
			w.Raw(`,"tools":[`)
		} else {
			w.Raw(`,`)
		}
		w.Raw(`{"name":`)
		w.String(tool.Name)
		w.Raw(`,"description":`)
		w.String(tool.Description)
		w.Raw(`,"input_schema":`)
		w.Bytes(tool.InputSchema)
		w.Raw(`}`)
	}
	if len(b.epoch.Tools) > 0 {
		w.Raw(`]`)
	}
	if len(b.epoch.Thinking) > 0 {
		w.Raw(`,"thinking":`)
		w.Bytes(b.epoch.Thinking)
	}
	w.Raw(`,"messages":[`)
	b.blocks = system + len(b.epoch.Tools)
}

// tail returns what completes the body: only fields that the provider's cache does not depend on.
func (b *Builder) tail() []byte {
	t := append(make([]byte, 0, 160), `],"stream":true`...)
	if b.caching() {
		t = append(t, b.marker()...)
	}
	if b.epoch.Cache.Diagnostics {
		t = append(t, `,"diagnostics":{"previous_message_id":`...)
		if b.previous == nil {
			t = append(t, `null`...)
		} else {
			t = append(t, b.previous...)
		}
		t = append(t, '}')
	}
	return append(t, '}')
}

func (b *Builder) caching() bool { return b.epoch.Cache.TTL != "" }

// marker returns the field that puts a cache breakpoint on what it is part of: at the top level on the last block that
// can be cached, in a block on that block.
func (b *Builder) marker() string {
	if b.epoch.Cache.TTL == "1h" {
		return `,"cache_control":{"type":"ephemeral","ttl":"1h"}`
	}
	return `,"cache_control":{"type":"ephemeral"}`
}

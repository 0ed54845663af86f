package simprovider

import (
	"bytes"
	"encoding/json"
	"sync"
)

// maxFingerprints bounds how many requests are remembered for diagnosis; the oldest is forgotten first.
const maxFingerprints = 4096

// fingerprints remembers the requests that carried a diagnostics object by the id of the message that answered them.
type fingerprints struct {
	mu    sync.Mutex
	byID  map[string]fingerprint
	order []string // oldest first
}

// fingerprint is what is compared: no prompt text.
type fingerprint struct {
	account, model string
	settings       []byte
	tools, system  digest
	messages       int    // blocks before the end of the messages, counted with tools and system
	end            digest // identity of the whole prompt
	cached         int    // tokens that the next request could have read
}

// missReason is the provider's cache_miss_reason.
type missReason struct {
	Type   string `json:"type"`
	Missed *int   `json:"cache_missed_input_tokens,omitempty"`
}

func newFingerprint(p *prompt) fingerprint {
	f := fingerprint{account: p.account, model: p.model, settings: p.settings, messages: len(p.chain)}
	f.tools, f.system = p.identity(p.tools), p.identity(p.system)
	f.end = p.identity(len(p.chain))
	if n := len(p.breakpoints); n > 0 {
		f.cached = p.sum[p.breakpoints[n-1].at]
	}
	return f
}

// identity is that of the first n blocks.
func (p *prompt) identity(n int) digest {
	if n == 0 {
		return digest{}
	}
	return p.chain[n-1]
}

// remember keeps the fingerprint of a request under the id of its answer.
func (s *fingerprints) remember(id string, f fingerprint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.byID[id]; !ok {
		if len(s.order) >= maxFingerprints {
			delete(s.byID, s.order[0])
			s.order = s.order[1:]
		}
		s.order = append(s.order, id)
	}
	s.byID[id] = f
}

// diagnose returns the response's diagnostics field: null when nothing was asked or nothing differs.
func (s *fingerprints) diagnose(r *request, p *prompt, read int) json.RawMessage {
	if r.Diagnostics == nil || r.Diagnostics.Previous == nil {
		return json.RawMessage("null")
	}
	s.mu.Lock()
	before, ok := s.byID[*r.Diagnostics.Previous]
	s.mu.Unlock()
	reason := missReason{Type: "previous_message_not_found"}
	if ok && before.account == p.account {
		reason.Type = before.differs(p)
		switch reason.Type {
		case "":
			return json.RawMessage("null")
		case "unavailable":
		default:
			missed := max(before.cached-read, 0)
			reason.Missed = &missed
		}
	}
	text, _ := json.Marshal(map[string]missReason{"cache_miss_reason": reason})
	return text
}

// differs names the first thing in which p is not the earlier request with messages appended.
func (f fingerprint) differs(p *prompt) string {
	switch {
	case f.model != p.model:
		return "model_changed"
	case f.tools != p.identity(p.tools):
		return "tools_changed"
	case f.system != p.identity(p.system):
		return "system_changed"
	case !bytes.Equal(f.settings, p.settings):
		return "unavailable"
	case f.messages > len(p.chain) || f.end != p.identity(f.messages):
		return "messages_changed"
	default:
		return ""
	}
}

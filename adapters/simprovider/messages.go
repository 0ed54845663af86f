package simprovider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// messages answers POST /v1/messages.
func (p *Provider) messages(w http.ResponseWriter, hr *http.Request, c *call) {
	refuse := func(e *apiError) {
		p.log.status(c.entry, e.Status)
		e.write(w, c.id)
	}
	r, bad := parse(c.body)
	talk := &conversation{}
	if bad == nil {
		talk = newConversation(r)
	}
	fault := p.faults.take(talk.text)
	if fault == nil && bad == nil {
		bad = r.validate()
	}
	if fault == nil && bad != nil {
		refuse(bad)
		return
	}
	var a answer
	if bad == nil {
		if len(p.options.Models) > 0 && !slices.Contains(p.options.Models, r.Model) {
			refuse(&apiError{http.StatusNotFound, "not_found_error", "model: " + r.Model})
			return
		}
		a = p.answer(r, talk, c)
	}
	if fault == nil {
		fault = a.Fault
	}
	p.limits.headers(w.Header(), c.account, p.options.Now())
	if fault != nil {
		p.log.fault(c.entry, fault.Kind)
		if e := faultStatus[fault.Kind]; e != nil {
			fault.headers(w.Header(), p.options.Now())
			refuse(e)
			return
		}
	}
	if bad != nil { // a fault that breaks a response needs one
		refuse(bad)
		return
	}
	layout := newPrompt(r, c.account)
	if n := layout.total(); n > ContextWindow {
		refuse(invalid("prompt is too long: %d tokens > %d maximum", n, ContextWindow))
		return
	}
	now := p.options.Now()
	tokens, readAt := p.cache.look(layout, now)
	diagnostics := p.fingerprints.diagnose(r, layout, tokens.Read)
	begun := func() {
		p.cache.begin(layout, readAt, now)
		if r.Diagnostics != nil {
			p.fingerprints.remember(a.ID, newFingerprint(layout))
		}
	}
	p.log.answered(c.entry, a.ID, tokens)

	ctx, cancel := context.WithCancel(hr.Context())
	defer cancel()
	defer context.AfterFunc(p.done, cancel)()
	out := &response{w: w, ctl: http.NewResponseController(w), ctx: ctx, fault: fault}
	if fault != nil && fault.After == 0 && (fault.Kind == faultStall || fault.Kind == faultReset) {
		out.strike() // not even a status
		return
	}
	if r.Stream {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Header().Set("Cache-Control", "no-cache")
		out.stream(&a, r.Model, tokens, diagnostics, begun)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	begun()
	out.write([]byte(a.message(r.Model, tokens, diagnostics, false)))
}

// answer decides what to say: a function of the body, and of how often the same body came for the faults of a scenario.
func (p *Provider) answer(r *request, talk *conversation, c *call) answer {
	var a answer
	var step Step
	if p.options.Seed != nil {
		a = seededAnswer(*p.options.Seed, c.body, talk)
	} else {
		a, step = p.options.Scenario.answer(talk)
	}
	if r.Thinking.Type == "enabled" && !slices.Contains(uncacheable, a.Blocks[0].Type) {
		a.Blocks = slices.Insert(a.Blocks, 0, answerBlock{Type: "thinking", Text: "Let me see what is asked: " + firstLine(talk.text)})
	}
	sum := sha256.Sum256(c.body)
	a.ID = "msg_sim_" + hex.EncodeToString(sum[:12])
	for i := range a.Blocks {
		if b := &a.Blocks[i]; b.Type == "tool_use" {
			b.ID = fmt.Sprintf("toolu_sim_%s_%d", hex.EncodeToString(sum[:8]), i)
		}
	}
	a.cut(r.MaxTokens)
	a.Pace = pace{delay: p.options.ChunkDelay, chunk: defaultChunk}.of(step)
	if step.Fault != nil && c.entry.Attempt <= max(step.Attempts, 1) {
		a.Fault = step.Fault
	}
	return a
}

func firstLine(s string) string {
	for i, c := range s {
		if c == '\n' || i > 80 {
			return s[:i]
		}
	}
	return s
}

// countTokens answers POST /v1/messages/count_tokens.
func (p *Provider) countTokens(w http.ResponseWriter, _ *http.Request, c *call) {
	r, bad := parse(c.body)
	if bad == nil {
		r.MaxTokens, r.hasMax = 1, true
		bad = r.validate()
	}
	if bad != nil {
		p.log.status(c.entry, bad.Status)
		bad.write(w, c.id)
		return
	}
	p.log.status(c.entry, http.StatusOK)
	writeJSON(w, map[string]int{"input_tokens": newPrompt(r, c.account).total()})
}

// knownModels are listed when every name is accepted.
var knownModels = []string{"claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-4-5"}

type modelInfo struct {
	Type        string `json:"type"`
	ID          string `json:"id"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"`
}

func (p *Provider) modelList() []modelInfo {
	names := p.options.Models
	if len(names) == 0 {
		names = knownModels
	}
	var list []modelInfo
	for _, name := range names {
		list = append(list, modelInfo{"model", name, "Simulated " + name, "2026-01-01T00:00:00Z"})
	}
	return list
}

func (p *Provider) models(w http.ResponseWriter, _ *http.Request) {
	p.requestID(w)
	list := p.modelList()
	writeJSON(w, map[string]any{"data": list, "has_more": false, "first_id": list[0].ID, "last_id": list[len(list)-1].ID})
}

func (p *Provider) model(w http.ResponseWriter, r *http.Request) {
	id := p.requestID(w)
	for _, m := range p.modelList() {
		if m.ID == r.PathValue("id") {
			writeJSON(w, m)
			return
		}
	}
	e := &apiError{http.StatusNotFound, "not_found_error", "model: " + strconv.Quote(r.PathValue("id"))}
	e.write(w, id)
}

// Package simprovider simulates a provider that speaks Anthropic's Messages API, streaming and not: the embedded
// default, the test peer and the generator of load and faults.
//
// What it answers is a function of the request's body and of the scenario or seed alone, so a request that is sent
// again gets the same answer. It checks requests as the provider does, keeps a prompt cache by the provider's published
// rules, says in diagnostics why a prefix was not reused, signs thinking and checks the signatures that come back.
// Tokens are estimated at four bytes each.
//
// Routes: POST /v1/messages, POST /v1/messages/count_tokens, GET /v1/models, GET /health; and for the person who tests,
// GET and DELETE /sim/requests, and GET, POST and DELETE /sim/faults. Credentials are never kept or shown.
package simprovider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Options configure a Provider.
type Options struct {
	Scenario *Scenario // nil means DefaultScenario
	Seed     *uint64   // not nil: seeded behaviour instead of a scenario
	// ChunkDelay is the time between two pieces of a stream that has no pace of its own.
	ChunkDelay time.Duration
	// Open accepts requests without a credential.
	Open bool
	// Models are the models that exist; nil means that every name does.
	Models []string
	Now    func() time.Time // nil means time.Now
}

// Provider is an http.Handler. It is safe for concurrent use.
type Provider struct {
	options      Options
	mux          *http.ServeMux
	cache        cache
	fingerprints fingerprints
	faults       faultQueue
	log          requestLog
	limits       limits
	requests     atomic.Int64 // for request ids
	done         context.Context
	close        context.CancelFunc
}

// New returns a provider with an empty cache. Close it to end the responses that hang on purpose.
func New(o Options) *Provider {
	if o.Scenario == nil {
		o.Scenario = DefaultScenario()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Provider{options: o, mux: http.NewServeMux()}
	p.cache.entries = map[digest]cacheEntry{}
	p.fingerprints.byID = map[string]fingerprint{}
	p.log.attempts = map[string]int{}
	p.limits.windows = map[string]*window{}
	p.done, p.close = context.WithCancel(context.Background())
	p.mux.HandleFunc("/v1/messages", p.post(p.messages))
	p.mux.HandleFunc("/v1/messages/count_tokens", p.post(p.countTokens))
	p.mux.HandleFunc("GET /v1/models", p.models)
	p.mux.HandleFunc("GET /v1/models/{id}", p.model)
	p.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, map[string]string{"status": "ready"}) })
	p.mux.HandleFunc("GET /sim/requests", p.admin(p.listRequests))
	p.mux.HandleFunc("DELETE /sim/requests", p.admin(p.clearRequests))
	p.mux.HandleFunc("GET /sim/faults", p.admin(p.listFaults))
	p.mux.HandleFunc("POST /sim/faults", p.admin(p.addFault))
	p.mux.HandleFunc("DELETE /sim/faults", p.admin(p.clearFaults))
	p.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { errNotFound.write(w, p.requestID(w)) })
	return p
}

// Close ends all responses, also those that hang on purpose.
func (p *Provider) Close() { p.close() }

// ServeHTTP implements [http.Handler].
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") != "" { // a web page has no business here
		errOrigin.write(w, p.requestID(w))
		return
	}
	p.mux.ServeHTTP(w, r)
}

// requestID names the response.
func (p *Provider) requestID(w http.ResponseWriter) string {
	id := fmt.Sprintf("req_sim_%06d", p.requests.Add(1))
	w.Header().Set("request-id", id)
	return id
}

// call is one request to a route of the provider's API.
type call struct {
	id      string // request id
	account string // names the credential without showing it
	body    []byte
	entry   *LoggedRequest
}

// post checks what all calls have in common and logs them.
func (p *Provider) post(handle func(http.ResponseWriter, *http.Request, *call)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{id: p.requestID(w)}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
		if err != nil {
			errTooLarge.write(w, c.id)
			return
		}
		c.body = body
		c.entry = p.log.add(r, body, c.id, p.options.Now())
		refuse := func(e *apiError) {
			p.log.status(c.entry, e.Status)
			e.write(w, c.id)
		}
		key := credential(r)
		switch {
		case r.Method != http.MethodPost:
			refuse(errMethod)
		case key == "" && !p.options.Open:
			refuse(errNoKey)
		case r.Header.Get("anthropic-version") == "":
			refuse(invalid("anthropic-version: header is required"))
		default:
			sum := sha256.Sum256([]byte(key))
			c.account = hex.EncodeToString(sum[:8])
			w.Header().Set("anthropic-organization-id", "00000000-0000-4000-8000-"+c.account[:12])
			handle(w, r, c)
		}
	}
}

// credential returns the key or token of a request.
func credential(r *http.Request) string {
	if key := r.Header.Get("x-api-key"); key != "" {
		return key
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return token
}

package simprovider

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of the log: the oldest entries, and then the oldest bodies, are forgotten first.
const (
	maxLogged   = 10_000
	maxBodies   = 64 << 20 // bytes
	maxAttempts = 100_000  // bodies whose attempts are counted
)

// LoggedRequest is what GET /sim/requests shows of a request.
type LoggedRequest struct {
	ID         int64             `json:"id"`
	Time       time.Time         `json:"time"`
	Method     string            `json:"method"`
	Path       string            `json:"path"`
	Headers    map[string]string `json:"headers"` // without credentials
	BodySHA256 string            `json:"body_sha256"`
	BodyBytes  int               `json:"body_bytes"`
	Attempt    int               `json:"attempt"` // how often this body has come
	RequestID  string            `json:"request_id"`
	Status     int               `json:"status"`
	MessageID  string            `json:"message_id,omitempty"`
	Cache      *cacheResult      `json:"cache,omitempty"`
	Fault      string            `json:"fault,omitempty"`

	bodyBytes []byte
}

// requestLog remembers what was received.
type requestLog struct {
	mu       sync.Mutex
	next     int64
	entries  []*LoggedRequest // oldest first
	bodies   int              // bytes kept
	attempts map[string]int   // by body hash
}

// secret are headers that are never kept.
var secret = []string{"X-Api-Key", "Authorization", "Proxy-Authorization", "Cookie"}

func (l *requestLog) add(r *http.Request, body []byte, requestID string, now time.Time) *LoggedRequest {
	sum := sha256.Sum256(body)
	e := &LoggedRequest{
		Time: now.UTC(), Method: r.Method, Path: r.URL.Path, Headers: map[string]string{},
		BodySHA256: hex.EncodeToString(sum[:]), BodyBytes: len(body), RequestID: requestID, bodyBytes: body,
	}
	for name, values := range r.Header {
		if !slices.Contains(secret, name) {
			e.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.attempts) >= maxAttempts {
		clear(l.attempts)
	}
	l.attempts[e.BodySHA256]++
	e.Attempt = l.attempts[e.BodySHA256]
	l.next++
	e.ID = l.next
	l.entries = append(l.entries, e)
	l.bodies += len(body)
	if len(l.entries) > maxLogged {
		l.bodies -= len(l.entries[0].bodyBytes)
		l.entries = l.entries[1:]
	}
	for i := 0; l.bodies > maxBodies && i < len(l.entries); i++ {
		l.bodies -= len(l.entries[i].bodyBytes)
		l.entries[i].bodyBytes = nil
	}
	return e
}

func (l *requestLog) status(e *LoggedRequest, status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.Status = status
}

func (l *requestLog) fault(e *LoggedRequest, kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.Fault = kind
}

func (l *requestLog) answered(e *LoggedRequest, message string, tokens cacheResult) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.Status, e.MessageID, e.Cache = http.StatusOK, message, &tokens
}

// list returns copies, oldest first.
func (l *requestLog) list() []LoggedRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]LoggedRequest, len(l.entries))
	for i, e := range l.entries {
		all[i] = *e
	}
	return all
}

func (l *requestLog) body(id int64) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.ID == id && e.bodyBytes != nil {
			return e.bodyBytes, true
		}
	}
	return nil, false
}

func (l *requestLog) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.bodies = nil, 0
	clear(l.attempts)
}

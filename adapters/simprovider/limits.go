package simprovider

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// requestsPerMinute is the limit that the headers name. It is shown, not enforced: faults refuse requests.
const requestsPerMinute = 4000

// maxWindows bounds how many accounts are counted at once.
const maxWindows = 1000

// limits counts the requests of each account in the current minute, for the rate-limit headers.
type limits struct {
	mu      sync.Mutex
	windows map[string]*window
}

type window struct {
	resets time.Time
	used   int
}

// headers counts a request and sets the headers that every answer carries.
func (l *limits) headers(h http.Header, account string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.windows[account]
	if w == nil || !w.resets.After(now) {
		if len(l.windows) >= maxWindows {
			clear(l.windows)
		}
		w = &window{resets: now.Add(time.Minute)}
		l.windows[account] = w
	}
	w.used++
	h.Set("anthropic-ratelimit-requests-limit", strconv.Itoa(requestsPerMinute))
	h.Set("anthropic-ratelimit-requests-remaining", strconv.Itoa(max(requestsPerMinute-w.used, 0)))
	h.Set("anthropic-ratelimit-requests-reset", w.resets.UTC().Format(time.RFC3339))
}

// headers says when a refused request may come again.
func (f *Fault) headers(h http.Header, now time.Time) {
	if f.Kind != "rate_limit" {
		return
	}
	seconds := f.RetryAfterS
	if seconds == 0 {
		seconds = 30
	}
	h.Set("retry-after", strconv.Itoa(seconds))
	h.Set("anthropic-ratelimit-requests-remaining", "0")
	h.Set("anthropic-ratelimit-requests-reset", now.Add(time.Duration(seconds)*time.Second).UTC().Format(time.RFC3339))
}

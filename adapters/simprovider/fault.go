package simprovider

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Fault is something that goes wrong with a request, on purpose.
type Fault struct {
	// Kind is one of the keys of faultKinds (GET /sim/faults lists them).
	Kind string `json:"kind"`
	// Count is how many requests it strikes: 0 means 1, -1 all until it is removed.
	Count int `json:"count,omitempty"`
	// Skip is how many matching requests pass before it strikes.
	Skip int `json:"skip,omitempty"`
	// Text restricts it to requests whose last user text matches this regular expression.
	Text string `json:"text,omitempty"`
	// After is how many bytes of the response's body arrive before it strikes; for the kinds that break a response.
	After int `json:"after,omitempty"`
	// RetryAfterS is what the rate-limit headers say, in seconds; 0 means 30.
	RetryAfterS int `json:"retry_after_s,omitempty"`
	// DelayMS is the time between two bytes of a slow response, in milliseconds; 0 means 20.
	DelayMS int `json:"delay_ms,omitempty"`

	text *regexp.Regexp
}

// The kinds that break a response, and what each does.
const (
	faultStall      = "stall"
	faultReset      = "reset"
	faultTruncate   = "truncate"
	faultMalformed  = "malformed"
	faultErrorEvent = "error_event"
	faultSlow       = "slow"
)

// faultKinds lists all kinds with what they do.
var faultKinds = map[string]string{
	"rate_limit":    "429 rate_limit_error with the headers that say when to come back",
	"overloaded":    "529 overloaded_error",
	"server_error":  "500 api_error",
	"auth":          "401 authentication_error",
	"invalid":       "400 invalid_request_error",
	faultStall:      "send nothing more after that many bytes and keep the connection open",
	faultReset:      "reset the connection after that many bytes",
	faultTruncate:   "end the response properly after that many bytes",
	faultMalformed:  "send an event that is not JSON once that many bytes are out",
	faultErrorEvent: "send an overloaded_error event once that many bytes are out",
	faultSlow:       "send one byte at a time",
}

// faultStatus maps the kinds that refuse a request.
var faultStatus = map[string]*apiError{
	"rate_limit":   errRateLimited,
	"overloaded":   errOverloaded,
	"server_error": errServer,
	"auth":         errKey,
	"invalid":      {400, "invalid_request_error", "this request was refused on purpose"},
}

func (f *Fault) check() error {
	if _, ok := faultKinds[f.Kind]; !ok {
		return fmt.Errorf("fault kind %q is not one of %s", f.Kind, strings.Join(slices.Sorted(maps.Keys(faultKinds)), ", "))
	}
	if f.Count < -1 || f.Skip < 0 || f.After < 0 || f.RetryAfterS < 0 || f.DelayMS < 0 {
		return errors.New("a fault's numbers must not be negative (count may be -1)")
	}
	if f.Count == 0 {
		f.Count = 1
	}
	var err error
	if f.text, err = regexp.Compile(f.Text); err != nil {
		return fmt.Errorf("fault text: %w", err)
	}
	return nil
}

// maxFaults bounds how many faults may be waiting.
const maxFaults = 1000

// faultQueue holds the faults that wait for a request.
type faultQueue struct {
	mu   sync.Mutex
	list []Fault
}

// add appends a checked fault.
func (q *faultQueue) add(f Fault) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) >= maxFaults {
		return fmt.Errorf("more than %d faults are waiting", maxFaults)
	}
	q.list = append(q.list, f)
	return nil
}

// take returns the first fault for a request with that last user text, or nil.
func (q *faultQueue) take(text string) *Fault {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.list {
		f := &q.list[i]
		if !f.text.MatchString(text) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		taken := *f
		if f.Count > 0 {
			if f.Count--; f.Count == 0 {
				q.list = slices.Delete(q.list, i, i+1)
			}
		}
		return &taken
	}
	return nil
}

// waiting returns the faults that have not struck yet.
func (q *faultQueue) waiting() []Fault {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.list)
}

func (q *faultQueue) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = nil
}

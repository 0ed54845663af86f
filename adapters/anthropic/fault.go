package anthropic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"condensate.dev/cnd/core/thread"
)

// MaxDetail bounds the sentence of the provider that is kept of a failure, in bytes.
const MaxDetail = 500

// maxErrorBody bounds how much of an error answer is read, in bytes.
const maxErrorBody = 64 << 10

// apiError is the provider's own description of a failure.
type apiError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (e *apiError) Error() string { return e.Type + ": " + e.Message }

// causeOfType maps the provider's error types. A type that is not here is treated as a passing fault of the provider.
var causeOfType = map[string]string{
	"invalid_request_error": thread.CauseInvalid,
	"not_found_error":       thread.CauseInvalid,
	"request_too_large":     thread.CauseInvalid,
	"conflict_error":        thread.CauseInvalid,
	"authentication_error":  thread.CauseAuth,
	"permission_error":      thread.CauseAuth,
	"billing_error":         thread.CauseAuth,
	"rate_limit_error":      thread.CauseRateLimited,
	"overloaded_error":      thread.CauseOverloaded,
	"api_error":             thread.CauseOverloaded,
	"timeout_error":         thread.CauseOverloaded,
}

func (e *apiError) cause() string {
	if cause, ok := causeOfType[e.Type]; ok {
		return cause
	}
	return thread.CauseOverloaded
}

// causeOfStatus maps every status but 200. The status is more trustworthy than the body, which a proxy may have made.
func causeOfStatus(status int) string {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden,
		status == http.StatusPaymentRequired, status == http.StatusProxyAuthRequired:
		return thread.CauseAuth
	case status == http.StatusTooManyRequests:
		return thread.CauseRateLimited
	case status >= 500, status == http.StatusRequestTimeout:
		return thread.CauseOverloaded
	case status >= 300:
		return thread.CauseInvalid
	default:
		return thread.CauseMalformed
	}
}

// describe turns an answer that is not 200 into one sentence.
func describe(status int, body []byte) string {
	var envelope struct {
		Error apiError `json:"error"`
	}
	if json.Unmarshal(body, &envelope) == nil && envelope.Error.Type != "" {
		return fmt.Sprintf("%d %s", status, envelope.Error.Error())
	}
	if status >= 300 && status < 400 {
		return fmt.Sprintf("%d: the provider redirects, and redirects are not followed", status)
	}
	return fmt.Sprintf("%d %s", status, http.StatusText(status))
}

// sentence makes provider text fit for a record: valid, one line, bounded, and without the credential.
func sentence(text, key string) string {
	if key != "" {
		text = strings.ReplaceAll(text, key, "[redacted]")
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if len(text) > MaxDetail {
		text = strings.ToValidUTF8(text[:MaxDetail], "") + "…"
	}
	return text
}

// retryAt returns when the provider wants to be asked again, or the zero time. Retry-After wins; else, after
// thread.CauseRateLimited only, it is the latest reset among the limits that are used up. Resets stand in every answer
// and say nothing about another failure.
func retryAt(cause string, h http.Header, now time.Time) time.Time {
	if v := h.Get("Retry-After"); v != "" {
		if seconds, err := strconv.ParseFloat(v, 64); err == nil && seconds >= 0 && seconds < maxRetryAfter.Seconds() {
			return now.Add(time.Duration(seconds * float64(time.Second)))
		}
		if t, err := http.ParseTime(v); err == nil {
			return t
		}
	}
	if cause != thread.CauseRateLimited {
		return time.Time{}
	}
	if t, ok := resetTime(h.Get("Anthropic-Ratelimit-Unified-Reset")); ok { // names the one that counts
		return t
	}
	var latest time.Time
	for name := range h {
		limit, ok := strings.CutSuffix(name, "-Reset")
		if !ok || !strings.HasPrefix(name, "Anthropic-Ratelimit-") || h.Get(limit+"-Remaining") != "0" {
			continue
		}
		if t, ok := resetTime(h.Get(name)); ok && t.After(latest) {
			latest = t
		}
	}
	return latest
}

// maxRetryAfter is the longest Retry-After that is believed.
const maxRetryAfter = 90 * 24 * time.Hour

// resetTime reads RFC 3339 or, as the unified limits are given, seconds since 1970.
func resetTime(v string) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339, v); err == nil {
		return t, true
	}
	seconds, err := strconv.ParseInt(v, 10, 64)
	return time.Unix(seconds, 0), err == nil
}

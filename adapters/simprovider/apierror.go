package simprovider

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// apiError is a failure in the provider's form; Status is the HTTP status.
type apiError struct {
	Status  int
	Type    string
	Message string
}

func (e *apiError) Error() string { return fmt.Sprintf("%d %s: %s", e.Status, e.Type, e.Message) }

// invalid is what the provider says of a request that it cannot use.
func invalid(format string, args ...any) *apiError {
	return &apiError{http.StatusBadRequest, "invalid_request_error", fmt.Sprintf(format, args...)}
}

// statusOverloaded is the provider's own status for a busy service.
const statusOverloaded = 529

// Failures that the provider gives whatever the request says.
var (
	errNoKey       = &apiError{http.StatusUnauthorized, "authentication_error", "x-api-key header is required"}
	errKey         = &apiError{http.StatusUnauthorized, "authentication_error", "invalid x-api-key"}
	errTooLarge    = &apiError{http.StatusRequestEntityTooLarge, "request_too_large", "Request exceeds the maximum size"}
	errNotFound    = &apiError{http.StatusNotFound, "not_found_error", "Not Found"}
	errMethod      = &apiError{http.StatusMethodNotAllowed, "invalid_request_error", "Method Not Allowed"}
	errOrigin      = &apiError{http.StatusUnauthorized, "authentication_error", "CORS requests are not allowed for this Organization because custom retention settings have been applied."}
	errRateLimited = &apiError{http.StatusTooManyRequests, "rate_limit_error", "This request would exceed your organization's rate limit of 50 requests per minute."}
	errOverloaded  = &apiError{statusOverloaded, "overloaded_error", "Overloaded"}
	errServer      = &apiError{http.StatusInternalServerError, "api_error", "Internal server error"}
)

// body returns the error as the provider writes it, also inside a stream.
func (e *apiError) body(requestID string) []byte {
	type detail struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	text, _ := json.Marshal(struct {
		Type      string `json:"type"`
		Error     detail `json:"error"`
		RequestID string `json:"request_id"`
	}{"error", detail{e.Type, e.Message}, requestID})
	return text
}

func (e *apiError) write(w http.ResponseWriter, requestID string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	w.Write(e.body(requestID))
}

package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

// statusClientClosed is what nginx logs for a request whose client has gone; nobody reads it.
const statusClientClosed = 499

// statusOf is the table from the class of a fault to the status of its answer, complete over fault.Classes. Three
// answers have a status of their own: 405, 415 and, for /health, 503.
var statusOf = map[fault.Class]int{
	fault.Internal:        http.StatusInternalServerError,
	fault.Usage:           http.StatusBadRequest,
	fault.Invalid:         http.StatusBadRequest,
	fault.TooLarge:        http.StatusRequestEntityTooLarge,
	fault.NotFound:        http.StatusNotFound,
	fault.Exhausted:       http.StatusTooManyRequests,
	fault.Conflict:        http.StatusConflict,
	fault.Corrupt:         http.StatusInternalServerError,
	fault.Unavailable:     http.StatusServiceUnavailable,
	fault.StorageFull:     http.StatusInsufficientStorage,
	fault.Unauthenticated: http.StatusUnauthorized,
	fault.Denied:          http.StatusForbidden,
	fault.Config:          http.StatusInternalServerError,
	fault.Canceled:        statusClientClosed,
}

// statusError gives a fault another status than its class has.
type statusError struct {
	error
	status int
}

func (e statusError) Unwrap() error { return e.error }

func withStatus(status int, err error) error { return statusError{err, status} }

// errStopped classifies a context that ended while the client still waits.
var errStopped = fault.New(fault.Unavailable, "interrupted", "the runtime stopped working on the request")

// errUnknownThread answers a path with the id of no thread.
var errUnknownThread = fault.WithHint(record.ErrNotFound, "cnd-runtime thread list")

// errorBody is the answer to a request that failed.
type errorBody struct {
	Error errorFields `json:"error"`
}

type errorFields struct {
	Class   string `json:"class"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// writeError answers with err. An error that nobody classified is ours and logged.
func (a *api) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if r.PathValue("id") != "" && errors.Is(err, record.ErrNotFound) {
		err = errUnknownThread // the path says which; where it was looked for is nobody's business
	}
	found := fault.Find(err)
	if found.Code == "internal" && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		found = errStopped
	}
	status := statusOf[found.Class]
	var own statusError
	if errors.As(err, &own) {
		status = own.status
	}
	if status == http.StatusInternalServerError {
		a.Logger.ErrorContext(r.Context(), "request failed",
			slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Any("err", err))
	}
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close") // else the server would wait for the rest of the body before it answers
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="cnd-runtime"`)
	}
	a.writeJSON(w, status, errorBody{errorFields{found.Class.String(), found.Code, err.Error(), fault.HintOf(err)}})
}

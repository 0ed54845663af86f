package httpapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// Limits of bodies, in bytes. A larger one is refused with 413 and the name of the limit.
const (
	// MaxBody is the largest body of a request that is not a message.
	MaxBody = 64 << 10
	// MaxMessageBody is the largest body of a message, images in base64 included.
	MaxMessageBody = 32 << 20
)

// Media types of bodies.
const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"
)

var (
	errMediaType = fault.New(fault.Invalid, "wrong-content-type", "the body has a content type that the route does not take")
	errBrokeOff  = fault.New(fault.Invalid, "body-broke-off", "the body broke off")
)

// writeJSON answers with v.
func (a *api) writeJSON(w http.ResponseWriter, status int, v any) {
	a.write(w, status, append(thread.Encode(v), '\n'))
}

// write answers with a complete JSON text. A client that does not take it loses its connection.
func (a *api) write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", typeJSON)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	setWriteDeadline(w)
	w.WriteHeader(status)
	w.Write(body) // a failure means that the client has gone: nobody is left to tell
}

// setWriteDeadline gives the next writes StallTimeout. A writer without deadlines (a recorder in a test) has none.
func setWriteDeadline(w http.ResponseWriter) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(StallTimeout))
}

// setReadDeadline gives the body that much time from now on. The server itself ends the deadline with the body.
func setReadDeadline(w http.ResponseWriter, d time.Duration) {
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(d))
}

// checkType refuses a body of another media type than want, and any that is compressed.
func checkType(r *http.Request, want string) error {
	given, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := strings.ToLower(params["charset"])
	if err != nil || given != want || (charset != "" && charset != "utf-8") || r.Header.Get("Content-Encoding") != "" {
		return withStatus(http.StatusUnsupportedMediaType, fault.WithHint(errMediaType, "send Content-Type: "+want+", not compressed"))
	}
	return nil
}

// readBody returns the JSON body of r, at most limit bytes of it; limit 0 is a route that takes none.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if limit == 0 {
		if r.ContentLength == 0 {
			return nil, nil
		}
		limit = 2 // "{}" is as good as nothing
	}
	if err := checkType(r, typeJSON); err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge(limit)
	case err != nil:
		return nil, fmt.Errorf("after %d bytes: %v: %w", len(body), err, errBrokeOff)
	}
	return body, nil
}

func tooLarge(limit int64) error {
	name := "MaxBody"
	switch limit {
	case 2:
		return fault.New(fault.TooLarge, "body-too-large", "the route takes no body")
	case MaxMessageBody:
		name = "MaxMessageBody"
	}
	return fault.New(fault.TooLarge, "body-too-large", fmt.Sprintf("the body is over %d bytes (%s)", limit, name))
}

// params are the parameters of a URL.
type params map[string]string

// query returns the parameters of r, which may have those named, each at most once.
func query(r *http.Request, names ...string) (params, error) {
	p := params{}
	for name, values := range r.URL.Query() {
		if !slices.Contains(names, name) {
			return nil, malformed("URL", "unknown parameter %.80q", name)
		}
		if len(values) != 1 {
			return nil, malformed("URL", "parameter %q stands there twice", name)
		}
		p[name] = values[0]
	}
	return p, nil
}

// limit returns the size of a page.
func (p params) limit() (int, error) {
	s, ok := p["limit"]
	if !ok {
		return DefaultPage, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > MaxPage {
		return 0, malformed("limit", "a number from 1 to %d is needed", MaxPage)
	}
	return n, nil
}

// from returns the seq after the one that the client has: 0 when it has none.
func (p params) from() (record.Seq, error) {
	s, ok := p["after"]
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 53)
	if err != nil {
		return 0, malformed("after", "the seq of an entry is needed")
	}
	return record.Seq(n) + 1, nil
}

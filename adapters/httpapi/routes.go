package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"condensate.dev/cnd/core/fault"
)

// handlerFunc answers a request. It returns an error only when nothing was written to w.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// route is one row of the API; docs/API.md describes every one.
type route struct {
	method, path string
	handle       handlerFunc
}

func (a *api) routes() []route {
	return []route{
		{"GET", "/health", a.health},
		{"GET", "/v1/threads", a.listThreads},
		{"POST", "/v1/threads", a.createThread},
		{"GET", "/v1/threads/{id}", a.showThread},
		{"POST", "/v1/threads/{id}/messages", a.submit},
		{"GET", "/v1/threads/{id}/entries", a.entries},
		{"GET", "/v1/threads/{id}/follow", a.follow},
		{"POST", "/v1/threads/{id}/interrupt", a.interrupt},
		{"POST", "/v1/threads/{id}/resume", a.resume},
		{"POST", "/v1/threads/{id}/approvals/{call}", a.answer},
		{"GET", "/v1/threads/{id}/export", a.export},
		{"POST", "/v1/import", a.importThread},
		{"POST", "/v1/reindex", a.reindex},
	}
}

var (
	errNoRoute  = fault.New(fault.NotFound, "no-such-route", "the API has no such path")
	errNoMethod = fault.New(fault.Usage, "method-not-allowed", "the path does not take this method")
)

// handler returns the gate with the routes behind it. Wrong paths and methods are answered like all failures.
func (a *api) handler() http.Handler {
	byPath := map[string]map[string]handlerFunc{}
	for _, route := range a.routes() {
		if byPath[route.path] == nil {
			byPath[route.path] = map[string]handlerFunc{}
		}
		byPath[route.path][route.method] = route.handle
	}
	mux := http.NewServeMux()
	for path, byMethod := range byPath {
		mux.Handle(path, a.adapt(dispatch(byMethod)))
	}
	mux.Handle("/", a.adapt(func(http.ResponseWriter, *http.Request) error { return errNoRoute }))

	return a.adapt(func(w http.ResponseWriter, r *http.Request) error {
		if r.ContentLength != 0 {
			setReadDeadline(w, BodyTimeout) // also bounds how long the server waits for a body that nobody reads
		}
		if err := a.gate.admit(r); err != nil {
			return err
		}
		mux.ServeHTTP(w, r)
		return nil
	})
}

// dispatch picks the handler of the request's method.
func dispatch(byMethod map[string]handlerFunc) handlerFunc {
	methods := make([]string, 0, len(byMethod))
	for method := range byMethod {
		methods = append(methods, method)
	}
	slices.Sort(methods)
	allow := strings.Join(methods, ", ")
	return func(w http.ResponseWriter, r *http.Request) error {
		if handle, ok := byMethod[r.Method]; ok {
			return handle(w, r)
		}
		w.Header().Set("Allow", allow)
		return withStatus(http.StatusMethodNotAllowed, fault.WithHint(errNoMethod, "it takes "+allow))
	}
}

// adapt turns a handler into an http.Handler that writes its error.
func (a *api) adapt(handle handlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := handle(w, r); err != nil {
			a.writeError(w, r, err)
		}
	})
}

package simprovider

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// admin guards the routes for the person who tests: they are answered only under a name of this machine.
func (p *Provider) admin(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(strings.Trim(host, "[]")); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			errNotFound.write(w, p.requestID(w))
			return
		}
		handle(w, r)
	}
}

func (p *Provider) listRequests(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("body") == "" {
		writeJSON(w, map[string]any{"requests": p.log.list()})
		return
	}
	id, err := strconv.ParseInt(query.Get("id"), 10, 64)
	body, ok := p.log.body(id)
	if err != nil || !ok {
		adminError(w, http.StatusNotFound, "no body of a request with that id is kept")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(body)
}

func (p *Provider) clearRequests(w http.ResponseWriter, _ *http.Request) {
	p.log.clear()
	w.WriteHeader(http.StatusNoContent)
}

func (p *Provider) listFaults(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{"faults": p.faults.waiting(), "kinds": faultKinds})
}

func (p *Provider) addFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	dec := json.NewDecoder(io.LimitReader(r.Body, 64<<10))
	dec.DisallowUnknownFields()
	err := dec.Decode(&f)
	if err == nil {
		err = f.check()
	}
	if err == nil {
		err = p.faults.add(f)
	}
	if err != nil {
		adminError(w, http.StatusBadRequest, err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (p *Provider) clearFaults(w http.ResponseWriter, _ *http.Request) {
	p.faults.clear()
	w.WriteHeader(http.StatusNoContent)
}

func adminError(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": message}})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.Encode(v)
}

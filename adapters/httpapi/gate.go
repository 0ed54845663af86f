package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"condensate.dev/cnd/core/fault"
)

// Refusals of the gate.
var (
	ErrForeignHost   = fault.New(fault.Denied, "foreign-host", "the Host of the request is not the runtime's address")
	ErrForeignOrigin = fault.New(fault.Denied, "foreign-origin", "the Origin of the request is not the runtime")
	ErrKey           = fault.New(fault.Unauthenticated, "bad-key", "the bearer key is missing or wrong")
)

// gate decides who may ask at all. Host and Origin keep pages of a browser out (also after DNS rebinding), the key
// everybody who cannot read the owner's key file.
type gate struct {
	key   [sha256.Size]byte
	hosts map[string]bool // lower case
}

func newGate(key string, hosts []string) *gate {
	g := &gate{key: sha256.Sum256([]byte(key)), hosts: map[string]bool{}}
	for _, host := range hosts {
		g.hosts[strings.ToLower(host)] = true
	}
	return g
}

// admit returns nil when r may be served. GET /health needs no key.
func (g *gate) admit(r *http.Request) error {
	if !g.hosts[strings.ToLower(r.Host)] {
		return ErrForeignHost
	}
	for _, origin := range r.Header.Values("Origin") {
		if !strings.EqualFold(origin, "http://"+r.Host) {
			return ErrForeignOrigin
		}
	}
	if r.URL.Path == "/health" {
		return nil
	}
	// Hashes are compared, so that time tells neither the key's bytes nor its length.
	given := r.Header.Values("Authorization")
	if len(given) == 1 {
		if token, ok := strings.CutPrefix(given[0], "Bearer "); ok {
			hash := sha256.Sum256([]byte(token))
			if subtle.ConstantTimeCompare(hash[:], g.key[:]) == 1 {
				return nil
			}
		}
	}
	return fault.WithHint(ErrKey, "send 'Authorization: Bearer KEY' with the key of <config>/runtime.key")
}

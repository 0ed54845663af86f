// Package fingerprint names a model request by every byte that the provider's cache may depend on.
//
// A fingerprint is SHA-256 over builder, method, URL, pinned headers and the hash of the body
// (docs/formats/fingerprint.md). Equal fingerprints mean equal requests; credentials never reach the hash.
package fingerprint

import (
	"crypto/sha256"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// domain separates fingerprints from all other hashes; it is part of the format.
const domain = "cnd/request/v0\n"

// Of returns the fingerprint of the request with that body hash in that epoch: SHA-256(domain, builder, method, URL
// and each pinned header as "name: value", a newline after each, then the body hash in hexadecimal).
func Of(epoch thread.EpochStarted, body record.Digest) record.Digest {
	h := sha256.New()
	line := func(s string) {
		h.Write([]byte(s))
		h.Write([]byte{'\n'})
	}
	h.Write([]byte(domain))
	line(epoch.Builder)
	line(epoch.Method)
	line(epoch.URL)
	for _, header := range epoch.Headers {
		line(header[0] + ": " + header[1])
	}
	h.Write([]byte(body.String()))
	return record.Digest(h.Sum(nil))
}

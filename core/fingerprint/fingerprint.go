// Package fingerprint names a model request by every byte that the provider's cache may depend on.
//
// A fingerprint is SHA-256 over builder, method, URL, pinned headers and the hash of the body
// (docs/formats/fingerprint.md). Equal fingerprints mean equal requests; credentials never reach the hash.
package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// domain separates fingerprints from all other hashes; it is part of the format.
const domain = "cnd/request/v0\n"

// Epoch fingerprints the requests of one epoch. It is immutable.
type Epoch struct {
	front []byte // what is hashed before the hash of the body
}

// For returns what fingerprints the requests of that epoch.
func For(epoch thread.EpochStarted) Epoch {
	b := append([]byte(domain), epoch.Builder...)
	b = append(b, '\n')
	b = append(b, epoch.Method...)
	b = append(b, '\n')
	b = append(b, epoch.URL...)
	b = append(b, '\n')
	for _, header := range epoch.Headers {
		b = append(b, header[0]...)
		b = append(b, ": "...)
		b = append(b, header[1]...)
		b = append(b, '\n')
	}
	return Epoch{b[:len(b):len(b)]}
}

// Of returns the fingerprint of the request with that body hash: SHA-256(domain, builder, method, URL and each pinned
// header as "name: value", a newline after each, then the body hash in hexadecimal).
func (e Epoch) Of(body record.Digest) record.Digest {
	return sha256.Sum256(hex.AppendEncode(append(make([]byte, 0, 512), e.front...), body[:]))
}

// Of returns the fingerprint of one request of the epoch.
func Of(epoch thread.EpochStarted, body record.Digest) record.Digest { return For(epoch).Of(body) }

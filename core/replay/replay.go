// Package replay proves requests: it rebuilds every model request of a thread from its entries and compares what
// comes out with what was recorded before the request was sent.
//
// It is linear: one running SHA-256 state follows the growing part of an epoch's requests and is cloned where the
// record has a request, so a byte is hashed once however many requests hold it. The memory is flat. Whether the
// entries themselves are genuine is the matter of package record; both can share one pass over an export
// (record.VerifyExport calling [Verifier.Add]).
package replay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/builder"
)

// Errors of this package.
var (
	// ErrDifferent: a rebuilt request is not the recorded one. The error is a [*Difference].
	ErrDifferent = fault.New(fault.Conflict, "fingerprint-differs", "a rebuilt request is not the recorded one")
	// ErrNoRequest: the thread has no request.prepared at that place.
	ErrNoRequest = fault.New(fault.NotFound, "no-such-request", "no such request")
)

// Source is what requests are rebuilt from. Its iterators may run inside one another.
type Source = builder.Source

// Identity is what is known of a request without its bytes.
type Identity struct {
	Fingerprint string `json:"fingerprint"`
	BodySHA256  string `json:"body_sha256"`
	BodyBytes   int64  `json:"body_bytes"`
}

// Difference is a request whose rebuilt bytes are not the recorded ones. It is an error that wraps [ErrDifferent].
type Difference struct {
	Seq      record.Seq `json:"seq"` // of the request.prepared
	Epoch    record.Seq `json:"epoch"`
	Attempt  int        `json:"attempt"`
	Recorded Identity   `json:"recorded"`
	Rebuilt  Identity   `json:"rebuilt"` // zero when it could not be rebuilt
	Why      string     `json:"why,omitempty"`
	// Same is how many bytes at the front are known to be right: those up to the end of the last message of the
	// epoch's newest request that verifies. The first byte that differs is not before it.
	Same int64 `json:"same_bytes"`
	// Around shows the rebuilt bytes there; set by [Explain].
	Around string `json:"around,omitempty"`
}

// Error implements error.
func (d *Difference) Error() string {
	s := fmt.Sprintf("request at entry %d (epoch %d, attempt %d): recorded fingerprint %s", d.Seq, d.Epoch, d.Attempt, d.Recorded.Fingerprint)
	if d.Rebuilt.Fingerprint == "" {
		return s + ", cannot be rebuilt: " + d.Why
	}
	s += fmt.Sprintf(" (%d bytes), rebuilt %s (%d bytes)", d.Recorded.BodyBytes, d.Rebuilt.Fingerprint, d.Rebuilt.BodyBytes)
	if d.Why != "" {
		s += ": " + d.Why
	}
	s += fmt.Sprintf("; no byte before %d differs", d.Same)
	if d.Around != "" {
		s += fmt.Sprintf(", there the rebuilt body has %q", d.Around)
	}
	return s
}

// Unwrap returns [ErrDifferent].
func (d *Difference) Unwrap() error { return ErrDifferent }

// Report says what was rebuilt.
type Report struct {
	Epochs     int64       `json:"epochs"`
	Requests   int64       `json:"requests"`
	Verified   int64       `json:"verified"`
	Unprovable int64       `json:"unprovable"` // they used an entry that was erased since
	Different  int64       `json:"different"`
	Bytes      int64       `json:"request_bytes"` // hashed while rebuilding
	First      *Difference `json:"first_difference,omitempty"`
}

// Verifier rebuilds the requests of one thread while its entries go by. It is not safe for concurrent use.
type Verifier struct {
	player
	body   *running
	report Report
	same   int64         // length of the growing part at the epoch's newest request that verifies
	newest record.Digest // of the newest rebuilt body
	first  record.Seq    // of the request.prepared with attempt 1 of those bytes
}

// NewVerifier returns a verifier that reads earlier entries, where an epoch needs them, and blobs from src.
func NewVerifier(src Source) *Verifier {
	v := &Verifier{body: &running{hash: sha256.New()}}
	v.player = player{src: src, out: v.body}
	return v
}

// Add takes the next entry of the thread, from its first on. The entry is not kept. What does not verify is counted
// in the report; an error is one of the source, or an epoch of a builder version that this program does not have
// (wrapping wire.ErrUnknownBuilder).
func (v *Verifier) Add(ctx context.Context, e record.Entry) error {
	switch e.Kind {
	case record.EpochStarted:
		v.report.Epochs++
		v.body.reset()
		v.same = 0
	case record.RequestPrepared:
		if err := v.request(e); err != nil {
			return err
		}
	}
	return v.add(ctx, e)
}

// Report returns what was found so far.
func (v *Verifier) Report() Report {
	r := v.report
	r.Bytes = v.body.hashed
	return r
}

// request rebuilds one request and compares.
func (v *Verifier) request(e record.Entry) error {
	v.report.Requests++
	if e.Body == nil {
		v.report.Unprovable++
		return nil
	}
	recorded, err := decodePrepared(e)
	if err != nil {
		v.different(&Difference{Seq: e.Seq, Why: err.Error()})
		return nil
	}
	tail, err := v.close()
	switch {
	case errors.Is(err, wire.ErrUnprovable):
		v.report.Unprovable++
		return nil
	case err != nil && !isInvalid(err):
		return err
	case err != nil:
		d := recorded.difference(e.Seq)
		d.Why, d.Same = err.Error(), v.same
		v.different(d)
		return nil
	}
	body, size, err := v.body.with(tail.Bytes)
	if err != nil {
		return err
	}
	v.compare(e.Seq, recorded, body, size)
	return nil
}

// compare takes note of whether the rebuilt request is the recorded one.
func (v *Verifier) compare(seq record.Seq, recorded prepared, body record.Digest, size int64) {
	why := ""
	switch {
	case recorded.epoch != v.epoch:
		why = fmt.Sprintf("it names epoch %d and stands in epoch %d", recorded.epoch, v.epoch)
	case recorded.attempt > 1 && (recorded.first != v.first || body != v.newest):
		why = fmt.Sprintf("it is no resend of the request at entry %d", recorded.first)
	}
	if recorded.attempt <= 1 {
		v.first = seq
	}
	v.newest = body
	fingerprint := v.fingerprint.Of(body)
	if why == "" && recorded.is(fingerprint, body, size) {
		v.report.Verified++
		v.same = v.body.n
		return
	}
	d := recorded.difference(seq)
	d.Rebuilt, d.Why, d.Same = rebuilt(fingerprint, body, size), why, v.same
	v.different(d)
}

func (v *Verifier) different(d *Difference) {
	v.report.Different++
	if v.report.First == nil {
		v.report.First = d
	}
}

// running hashes the growing part of a body.
type running struct {
	hash   hash.Hash
	n      int64 // bytes of this epoch's growing part
	hashed int64 // bytes in all
}

// Write implements io.Writer.
func (r *running) Write(p []byte) (int, error) {
	r.n += int64(len(p))
	r.hashed += int64(len(p))
	return r.hash.Write(p)
}

func (r *running) reset() {
	r.hash.Reset()
	r.n = 0
}

// with returns hash and length of the body that tail completes; the running state goes on without it.
func (r *running) with(tail []byte) (record.Digest, int64, error) {
	h, err := r.hash.(hash.Cloner).Clone()
	if err != nil {
		return record.Digest{}, 0, err
	}
	h.Write(tail)
	r.hashed += int64(len(tail))
	var sum record.Digest
	h.Sum(sum[:0])
	return sum, r.n + int64(len(tail)), nil
}

// isInvalid says whether an error is about the entries, not about reading them.
func isInvalid(err error) bool { return fault.ClassOf(err) == fault.Invalid }

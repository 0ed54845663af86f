package replay

import (
	"encoding/hex"
	"fmt"
	"strconv"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/wire/rawjson"
)

// prepared is what verification needs of a request.prepared. It is read without encoding/json, because a long thread
// has thousands of them. The slices are of the body.
type prepared struct {
	epoch, first      record.Seq
	attempt           int64
	bytes             int64
	body, fingerprint []byte // in hexadecimal
}

func decodePrepared(e record.Entry) (p prepared, err error) {
	number := func(value []byte) int64 {
		n, failed := strconv.ParseInt(string(value), 10, 64)
		if failed != nil {
			err = failed
		}
		return n
	}
	walked := rawjson.Fields(e.Body, func(key, value []byte) {
		switch string(key) {
		case "epoch":
			p.epoch = record.Seq(number(value))
		case "first":
			p.first = record.Seq(number(value))
		case "attempt":
			p.attempt = number(value)
		case "body_bytes":
			p.bytes = number(value)
		case "body_sha256":
			p.body, _ = rawjson.Text(value)
		case "fingerprint":
			p.fingerprint, _ = rawjson.Text(value)
		}
	})
	if walked != nil {
		err = walked
	}
	if err != nil {
		return prepared{}, fmt.Errorf("entry %d (%s): %v: %w", e.Seq, e.Kind, err, record.ErrInvalidEntry)
	}
	return p, nil
}

// identity returns what was recorded of the request.
func (p prepared) identity() Identity {
	return Identity{Fingerprint: string(p.fingerprint), BodySHA256: string(p.body), BodyBytes: p.bytes}
}

// is says whether the rebuilt request is the recorded one.
func (p prepared) is(fingerprint, body record.Digest, size int64) bool {
	return p.bytes == size && sameHex(p.body, body) && sameHex(p.fingerprint, fingerprint)
}

func sameHex(text []byte, d record.Digest) bool {
	var b [2 * len(d)]byte
	hex.Encode(b[:], d[:])
	return string(text) == string(b[:])
}

// difference returns the difference between the recorded request at seq and the rebuilt one.
func (p prepared) difference(seq record.Seq) *Difference {
	return &Difference{Seq: seq, Epoch: p.epoch, Attempt: int(p.attempt), Recorded: p.identity()}
}

func rebuilt(fingerprint, body record.Digest, size int64) Identity {
	return Identity{Fingerprint: fingerprint.String(), BodySHA256: body.String(), BodyBytes: size}
}

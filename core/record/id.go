package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"condensate.dev/cnd/core/fault"
)

// ErrInvalidID is returned for an identifier that does not have its one form.
var ErrInvalidID = fault.New(fault.Invalid, "invalid-id", "identifier does not have the form that it needs")

// ThreadID names a thread: "thr_" and 26 lower-case Crockford characters.
type ThreadID string

// Seq is a position in one thread's record: 0-based, dense, never reused. A fork continues its parent's count.
type Seq uint64

// Digest is a SHA-256 value. Its text form is 64 lower-case hexadecimal digits.
type Digest [sha256.Size]byte

// String returns the text form.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// IsZero says whether d is the digest that stands before the first entry.
func (d Digest) IsZero() bool { return d == Digest{} }

// ParseDigest reads the text form and nothing else: upper case is refused, because a record has one byte form.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	text := []byte(s)
	if len(text) != 2*len(d) || !isLowerHex(text) {
		return Digest{}, fmt.Errorf("digest %.80q: %w", s, ErrInvalidID)
	}
	hex.Decode(d[:], text) // cannot fail: the digits are checked
	return d, nil
}

const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

// Prefixes of the identifiers that are ours.
const (
	PrefixThread  = "thr_"
	PrefixMessage = "msg_"
	PrefixTurn    = "trn_"
)

const idChars = 26 // 128 bits, five a character, the first two bits of the first one unused

// NewID returns prefix and the 26 lower-case Crockford characters of a UUIDv7 (RFC 9562, 5.7) of now, whose random
// part is read from entropy.
func NewID(prefix string, now time.Time, entropy io.Reader) (string, error) {
	ms := now.UnixMilli()
	if ms < 0 || ms >= 1<<48 {
		return "", fmt.Errorf("%s id of year %d: %w", prefix, now.Year(), ErrInvalidID)
	}
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], uint64(ms)<<16)
	if _, err := io.ReadFull(entropy, u[6:]); err != nil {
		return "", fmt.Errorf("entropy for %s id: %w", prefix, err)
	}
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80

	out := append(make([]byte, 0, len(prefix)+idChars), prefix...)
	high, low := binary.BigEndian.Uint64(u[:8]), binary.BigEndian.Uint64(u[8:])
	for shift := 5 * (idChars - 1); shift >= 0; shift -= 5 {
		five := high >> max(shift-64, 0)
		if shift < 64 {
			five = low>>shift | high<<(64-shift)
		}
		out = append(out, crockford[five&31])
	}
	return string(out), nil
}

// ValidID says whether s is prefix and 26 characters of the lower-case Crockford alphabet.
func ValidID(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok || len(rest) != idChars {
		return false
	}
	for i := range len(rest) {
		if strings.IndexByte(crockford, rest[i]) < 0 {
			return false
		}
	}
	return true
}

// ParseThreadID checks a thread id, also one chosen by a client.
func ParseThreadID(s string) (ThreadID, error) {
	if !ValidID(PrefixThread, s) {
		return "", fmt.Errorf("thread id %.80q: %w", s, ErrInvalidID)
	}
	return ThreadID(s), nil
}

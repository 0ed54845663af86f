package record

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"condensate.dev/cnd/core/fault"
)

// Limits of the format. They do not change within a version.
const (
	// Version is the "v" of every line.
	Version = 0
	// MaxLine is the longest entry line, in bytes with its newline.
	MaxLine = 4 << 20
	// MaxBlob is the largest blob, in bytes before base64.
	MaxBlob = 8 << 20
	// MaxBlobs is how much the blobs of one entry may hold together, in bytes, each with 128 more.
	MaxBlobs = 64 << 20
	// MaxBlobLine is the longest blob line of an export, in bytes with its newline.
	MaxBlobLine = 12 << 20
	// MaxKind is the longest kind, in bytes.
	MaxKind = 64
	// MaxDepth is the deepest nesting of a body.
	MaxDepth = 128
	// InlineLimit is the largest content kept in a body, in bytes; larger content and all images are blobs.
	InlineLimit = 256 << 10
)

// Errors of the format.
var (
	// ErrInvalidEntry is returned for a line or body that this format does not allow.
	ErrInvalidEntry = fault.New(fault.Invalid, "invalid-entry", "not an entry of this record format")
	// ErrVersion is returned for a line of a version that this program does not know.
	ErrVersion = fault.New(fault.Invalid, "unknown-record-version", "record format version is not known")
)

// timeLayout is RFC 3339 in UTC with exactly six fractional digits.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// Salt is the random part of a body's commitment; its text form is 32 lower-case hexadecimal digits.
type Salt [16]byte

// Entry is one line of a record. Line, Salt and Body are slices of one array: treat them as immutable.
type Entry struct {
	Thread ThreadID
	Seq    Seq
	Gen    uint64 // engine generation: set by engine.started, carried by all that follow
	Time   time.Time
	Kind   Kind
	Prev   Digest // hash of the entry before; zero at first
	Sum    Digest // SHA-256(salt text || body bytes)
	Hash   Digest // SHA-256(header)
	Salt   string // 32 hexadecimal digits; "" when erased
	Body   []byte // one JSON object; nil when erased
	// ErasedBy is the seq of the entry.erased entry that took salt and body away; meaningful when Body is nil.
	ErasedBy Seq
	// Line holds the stored bytes without the newline.
	Line []byte
	// Blobs are the contents behind the digests of the body. Append stores the ones that it does not have; entries
	// that come from a store or from Parse have none.
	Blobs []Blob
}

// Head is the place of a thread's newest entry. The zero Head is the place before the first entry.
type Head struct {
	Seq  Seq
	Hash Digest
}

// Next returns the seq of the entry that would follow h.
func (h Head) Next() Seq {
	if h.Hash.IsZero() {
		return 0
	}
	return h.Seq + 1
}

// Head returns the place of e.
func (e Entry) Head() Head { return Head{Seq: e.Seq, Hash: e.Hash} }

// Draft is what a writer decides of an entry; [Seal] adds the rest.
type Draft struct {
	Gen   uint64
	Time  time.Time
	Kind  Kind
	Body  []byte // one JSON object; starts with "blobs" when it uses any
	Blobs []Blob // the contents of exactly the digests that the body lists
}

// Seal makes the entry that follows after. It returns an error wrapping [ErrInvalidEntry] when the body is not one
// JSON object in the strict form of docs/formats/record.md, when the blobs are not the ones that it lists, or when the
// line would be longer than [MaxLine].
func Seal(thread ThreadID, after Head, salt Salt, d Draft) (Entry, error) {
	e := Entry{
		Thread: thread, Seq: after.Next(), Gen: d.Gen, Time: d.Time.UTC().Truncate(time.Microsecond),
		Kind: d.Kind, Prev: after.Hash, Blobs: d.Blobs,
	}
	if err := checkDraft(&e, d); err != nil {
		return Entry{}, fmt.Errorf("seal entry %d of %s (%s): %w", e.Seq, thread, d.Kind, err)
	}
	saltText := hex.AppendEncode(make([]byte, 0, 2*len(salt)), salt[:])
	h := sha256.New()
	h.Write(saltText)
	h.Write(d.Body)
	h.Sum(e.Sum[:0])

	line := make([]byte, 0, maxFrame+len(d.Body))
	line = appendHeader(line, &e)
	e.Hash = sha256.Sum256(line) // the header, closed with '}'
	line[len(line)-1] = ','
	line = append(line, `"hash":"`...)
	line = hex.AppendEncode(line, e.Hash[:])
	line = append(line, `","salt":"`...)
	line = append(line, saltText...)
	line = append(line, `","body":`...)
	bodyAt := len(line)
	line = append(line, d.Body...)
	line = append(line, '}')
	if len(line)+1 > MaxLine {
		return Entry{}, fmt.Errorf("seal entry %d of %s (%s): line of %d bytes, limit %d: %w",
			e.Seq, thread, d.Kind, len(line)+1, MaxLine, ErrInvalidEntry)
	}
	e.Line = line
	e.Salt = string(saltText)
	e.Body = line[bodyAt : len(line)-1 : len(line)-1]
	return e, nil
}

func checkDraft(e *Entry, d Draft) error {
	if err := checkHeader(e); err != nil {
		return err
	}
	if err := checkTime(e.Time); err != nil {
		return err
	}
	if err := CheckBody(d.Body); err != nil {
		return err
	}
	return checkBlobs(d.Body, d.Blobs)
}

// maxFrame is more than the bytes of a line that are not body.
const maxFrame = 640

// appendHeader appends the header of e: the bytes that Hash covers.
func appendHeader(b []byte, e *Entry) []byte {
	b = append(b, `{"v":0,"thread":"`...)
	b = append(b, e.Thread...)
	b = append(b, `","seq":`...)
	b = strconv.AppendUint(b, uint64(e.Seq), 10)
	b = append(b, `,"gen":`...)
	b = strconv.AppendUint(b, e.Gen, 10)
	b = append(b, `,"time":"`...)
	b = e.Time.AppendFormat(b, timeLayout)
	b = append(b, `","kind":"`...)
	b = append(b, e.Kind...)
	b = append(b, `","prev":"`...)
	b = hex.AppendEncode(b, e.Prev[:])
	b = append(b, `","sum":"`...)
	b = hex.AppendEncode(b, e.Sum[:])
	return append(b, `"}`...)
}

// Erase returns e without salt and body, as it stands in a record after the entry at seq by erased it.
func (e Entry) Erase(by Seq) Entry {
	line := appendHeader(make([]byte, 0, maxFrame), &e)
	line = append(line[:len(line)-1], `,"hash":"`...)
	line = hex.AppendEncode(line, e.Hash[:])
	line = append(line, `","erased":`...)
	line = strconv.AppendUint(line, uint64(by), 10)
	e.Line = append(line, '}')
	e.Salt, e.Body, e.Blobs, e.ErasedBy = "", nil, nil, by
	return e
}

// Clone returns e with a copy of its line, and without blobs: what a store keeps or hands out.
func (e Entry) Clone() Entry {
	e.Line = append(make([]byte, 0, len(e.Line)), e.Line...)
	if e.Body != nil {
		end := len(e.Line) - 1
		e.Body = e.Line[end-len(e.Body) : end : end]
	}
	e.Blobs = nil
	return e
}

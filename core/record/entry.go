package record

import (
	"bytes"
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
	// MaxBlobLine is the longest blob line of an export, in bytes with its newline.
	MaxBlobLine = 12 << 20
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

// Blob is content kept outside a body.
type Blob struct {
	Digest Digest
	Data   []byte
}

// NewBlob returns the blob of data.
func NewBlob(data []byte) Blob { return Blob{Digest: sha256.Sum256(data), Data: data} }

// Ref returns how a body names the blob: "sha256:" and the digest.
func (b Blob) Ref() string { return BlobPrefix + b.Digest.String() }

// BlobPrefix stands before the digest where a body names a blob.
const BlobPrefix = "sha256:"

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
// JSON object in the strict form of docs/formats/record.md or the line would be longer than [MaxLine].
func Seal(thread ThreadID, after Head, salt Salt, d Draft) (Entry, error) {
	e := Entry{
		Thread: thread, Seq: after.Next(), Gen: d.Gen, Time: d.Time.UTC().Truncate(time.Microsecond),
		Kind: d.Kind, Prev: after.Hash, Blobs: d.Blobs,
	}
	if err := checkDraft(thread, d); err != nil {
		return Entry{}, fmt.Errorf("seal entry %d of %s (%s): %w", e.Seq, thread, d.Kind, err)
	}
	saltText := hex.AppendEncode(make([]byte, 0, 2*len(salt)), salt[:])
	h := sha256.New()
	h.Write(saltText)
	h.Write(d.Body)
	h.Sum(e.Sum[:0])

	line := make([]byte, 0, 512+len(d.Body))
	line = appendHeader(line, &e)
	e.Hash = sha256.Sum256(line) // the header, closed with '}'
	line[len(line)-1] = ','
	line = append(line, `"hash":"`...)
	line = hex.AppendEncode(line, e.Hash[:])
	line = append(line, `","salt":"`...)
	saltAt := len(line)
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
	e.Salt = string(line[saltAt : saltAt+2*len(salt)])
	e.Body = line[bodyAt : len(line)-1]
	return e, nil
}

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

// Parse reads one line, without its newline, and checks all that the line alone can show: its one byte form, its
// hash and, unless the body is erased, its sum. Damage is an error wrapping [ErrInvalidEntry]; a line of another
// version one wrapping [ErrVersion]. The entry keeps line: the caller must not change it.
func Parse(line []byte) (Entry, error) {
	p := parser{rest: line}
	p.literal(`{"v":`)
	if v := p.number(); p.err == nil && v != Version {
		return Entry{}, fmt.Errorf("record version %d: %w", v, ErrVersion)
	}
	var e Entry
	p.literal(`,"thread":"`)
	e.Thread = ThreadID(p.until('"'))
	p.literal(`","seq":`)
	e.Seq = Seq(p.number())
	p.literal(`,"gen":`)
	e.Gen = p.number()
	p.literal(`,"time":"`)
	e.Time = p.time()
	p.literal(`","kind":"`)
	e.Kind = Kind(p.until('"'))
	p.literal(`","prev":"`)
	e.Prev = p.digest()
	p.literal(`","sum":"`)
	e.Sum = p.digest()
	header := len(line) - len(p.rest)
	p.literal(`","hash":"`)
	e.Hash = p.digest()
	p.literal(`"`)
	if p.err == nil && bytes.HasPrefix(p.rest, []byte(`,"erased":`)) {
		p.literal(`,"erased":`)
		e.ErasedBy = Seq(p.number())
		p.literal(`}`)
		if p.err == nil && len(p.rest) > 0 {
			p.fail("end of line")
		}
	} else {
		p.literal(`,"salt":"`)
		e.Salt = string(p.hex(2 * len(Salt{})))
		p.literal(`","body":`)
		if n := len(p.rest); p.err == nil && (n < 3 || p.rest[n-1] != '}') {
			p.fail("body")
		} else if p.err == nil {
			e.Body = p.rest[: n-1 : n-1]
		}
	}
	if p.err != nil {
		return Entry{}, p.err
	}
	if err := checkHeader(&e); err != nil {
		return Entry{}, err
	}
	h := sha256.New()
	h.Write(line[:header])
	h.Write([]byte(`"}`))
	if got := Digest(h.Sum(nil)); got != e.Hash {
		return Entry{}, fmt.Errorf("hash is %s, the header hashes to %s: %w", e.Hash, got, ErrInvalidEntry)
	}
	if e.Body != nil {
		h.Reset()
		h.Write([]byte(e.Salt))
		h.Write(e.Body)
		if got := Digest(h.Sum(nil)); got != e.Sum {
			return Entry{}, fmt.Errorf("sum is %s, salt and body hash to %s: %w", e.Sum, got, ErrInvalidEntry)
		}
	}
	e.Line = line
	return e, nil
}

// Erase returns e without salt and body, as it stands in a record after the entry at seq by erased it.
func (e Entry) Erase(by Seq) Entry {
	header := appendHeader(make([]byte, 0, 512), &e)
	line := append(header[:len(header)-1], `,"hash":"`...)
	line = hex.AppendEncode(line, e.Hash[:])
	line = append(line, `","erased":`...)
	line = strconv.AppendUint(line, uint64(by), 10)
	e.Line = append(line, '}')
	e.Salt, e.Body, e.Blobs, e.ErasedBy = "", nil, nil, by
	return e
}

// parser reads the fixed layout of a line; after the first failure it reads nothing more.
type parser struct {
	rest []byte
	err  error
}

func (p *parser) fail(want string) {
	if p.err == nil {
		p.err = fmt.Errorf("want %s at %.60q: %w", want, p.rest, ErrInvalidEntry)
	}
}

func (p *parser) literal(s string) {
	if p.err == nil && !bytes.HasPrefix(p.rest, []byte(s)) {
		p.fail(s)
	}
	if p.err == nil {
		p.rest = p.rest[len(s):]
	}
}

func (p *parser) until(end byte) []byte {
	if p.err != nil {
		return nil
	}
	n := bytes.IndexByte(p.rest, end)
	if n < 0 {
		p.fail(string(end))
		return nil
	}
	s := p.rest[:n]
	p.rest = p.rest[n:]
	return s
}

// number reads a decimal number of at most 2^53-1 without leading zeros.
func (p *parser) number() uint64 {
	n := 0
	for n < len(p.rest) && p.rest[n] >= '0' && p.rest[n] <= '9' {
		n++
	}
	v, err := strconv.ParseUint(string(p.rest[:n]), 10, 53)
	if err != nil || (n > 1 && p.rest[0] == '0') {
		p.fail("number")
		return 0
	}
	if p.err == nil {
		p.rest = p.rest[n:]
	}
	return v
}

func (p *parser) hex(n int) []byte {
	if p.err == nil && len(p.rest) < n {
		p.fail("hexadecimal digits")
	}
	if p.err != nil {
		return nil
	}
	for _, c := range p.rest[:n] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			p.fail("lower-case hexadecimal digits")
			return nil
		}
	}
	s := p.rest[:n]
	p.rest = p.rest[n:]
	return s
}

func (p *parser) digest() (d Digest) {
	if s := p.hex(2 * len(d)); s != nil {
		hex.Decode(d[:], s) // cannot fail: hex checked the digits
	}
	return d
}

func (p *parser) time() time.Time {
	s := p.until('"')
	t, err := time.Parse(timeLayout, string(s))
	if p.err == nil && err != nil {
		p.fail("time")
	}
	return t
}

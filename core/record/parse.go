package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
)

// Parse reads one line, without its newline, and checks all that the line alone can show: its one byte form, its
// hash and, unless the body is erased, the strict form of the body and its sum. Damage is an error wrapping
// [ErrInvalidEntry]; a line of another version one wrapping [ErrVersion]. The entry keeps line: the caller must not
// change it.
func Parse(line []byte) (Entry, error) {
	var r reader
	return r.entry(line)
}

// reader parses the lines of one record one after the other. It keeps what they share, so that a line costs little
// more than its hashes.
type reader struct {
	body   scanner
	thread ThreadID // of the line before
	kind   Kind     // of the line before
	hash   Digest   // of the line before
	text   [2 * sha256.Size]byte
	header []byte
	hashed int64 // bytes, of all lines
}

// The layout of an entry line.
const (
	entryOpen = `{"v":0,"thread":"`
	hashField = `,"hash":"`
)

func (r *reader) entry(line []byte) (Entry, error) {
	var e Entry
	p := parser{rest: line}
	p.version()
	p.literal(`,"thread":"`)
	e.Thread = r.sameThread(&p)
	p.literal(`","seq":`)
	e.Seq = Seq(p.number())
	p.literal(`,"gen":`)
	e.Gen = p.number()
	p.literal(`,"time":"`)
	e.Time = p.time()
	p.literal(`","kind":"`)
	e.Kind = r.sameKind(&p)
	p.literal(`","prev":"`)
	e.Prev = r.sameDigest(&p, r.hash)
	p.literal(`","sum":"`)
	sum := p.take(2 * sha256.Size)
	p.literal(`"`)
	header := line[:len(line)-len(p.rest)]
	p.literal(hashField)
	hash := p.take(2 * sha256.Size)
	p.literal(`"`)
	erased := p.err == nil && bytes.HasPrefix(p.rest, []byte(`,"erased":`))
	if erased {
		p.erased(&e)
	} else {
		p.body(&e)
	}
	if p.err != nil {
		return Entry{}, p.err
	}
	if len(line)+1 > MaxLine {
		return Entry{}, fmt.Errorf("line of %d bytes, limit %d: %w", len(line)+1, MaxLine, ErrInvalidEntry)
	}
	if (e.Seq == 0) != e.Prev.IsZero() {
		return Entry{}, fmt.Errorf("seq %d after %s: only seq 0 has no predecessor: %w", e.Seq, e.Prev, ErrInvalidEntry)
	}
	r.header = append(append(r.header[:0], header...), '}')
	e.Hash = sha256.Sum256(r.header)
	if !r.is(e.Hash, hash) {
		return Entry{}, fmt.Errorf("hash is %s, the header hashes to %s: %w", hash, e.Hash, ErrInvalidEntry)
	}
	r.hash = e.Hash
	r.hashed += int64(len(r.header))
	e.Line = line
	if erased {
		p.rest = sum
		e.Sum = p.digest()
		return e, p.err
	}
	h := sha256.New()
	h.Write(p.salt)
	h.Write(e.Body)
	h.Sum(e.Sum[:0])
	r.hashed += int64(len(p.salt) + len(e.Body))
	if !r.is(e.Sum, sum) {
		return Entry{}, fmt.Errorf("sum is %s, salt and body hash to %s: %w", sum, e.Sum, ErrInvalidEntry)
	}
	return e, r.body.check(e.Body)
}

// is says whether text is the text form of d.
func (r *reader) is(d Digest, text []byte) bool {
	hex.Encode(r.text[:], d[:])
	return string(r.text[:]) == string(text)
}

// sameThread reads a thread id, which is mostly that of the line before.
func (r *reader) sameThread(p *parser) ThreadID {
	id := p.until('"')
	if p.err == nil && (string(id) != string(r.thread) || r.thread == "") {
		if !ValidID(PrefixThread, string(id)) {
			p.err = fmt.Errorf("thread %.80q: %w", id, ErrInvalidEntry)
			return ""
		}
		r.thread = ThreadID(id)
	}
	return r.thread
}

// sameKind reads a kind, which is often that of the line before.
func (r *reader) sameKind(p *parser) Kind {
	kind := p.until('"')
	if p.err == nil && (string(kind) != string(r.kind) || r.kind == "") {
		if !validKind(Kind(kind)) {
			p.err = fmt.Errorf("kind %.80q: %w", kind, ErrInvalidEntry)
			return ""
		}
		r.kind = Kind(kind)
	}
	return r.kind
}

// sameDigest reads a digest, which is mostly the expected one.
func (r *reader) sameDigest(p *parser, expected Digest) Digest {
	if p.err == nil && len(p.rest) >= len(r.text) && r.is(expected, p.rest[:len(r.text)]) {
		p.rest = p.rest[len(r.text):]
		return expected
	}
	return p.digest()
}

// parser reads the fixed layout of a line; after the first failure it reads nothing more.
type parser struct {
	rest []byte
	salt []byte // text, of the entry that was read
	err  error
}

// erased reads what stands in place of salt and body.
func (p *parser) erased(e *Entry) {
	p.literal(`,"erased":`)
	e.ErasedBy = Seq(p.number())
	p.literal(`}`)
	if p.err == nil && len(p.rest) > 0 {
		p.fail("end of line")
	}
	if p.err == nil && e.ErasedBy <= e.Seq {
		p.err = fmt.Errorf("seq %d is erased by seq %d, which is not later: %w", e.Seq, e.ErasedBy, ErrInvalidEntry)
	}
}

// body reads salt and body.
func (p *parser) body(e *Entry) {
	p.literal(`,"salt":"`)
	p.salt = p.hex(2 * len(Salt{}))
	p.literal(`","body":`)
	if n := len(p.rest); p.err == nil && (n < 3 || p.rest[n-1] != '}') {
		p.fail("body")
	} else if p.err == nil {
		e.Salt = string(p.salt)
		e.Body = p.rest[: n-1 : n-1]
	}
}

func (p *parser) fail(want string) {
	if p.err == nil {
		p.err = fmt.Errorf("want %s at %.60q: %w", want, p.rest, ErrInvalidEntry)
	}
}

func (p *parser) version() {
	p.literal(`{"v":`)
	if v := p.number(); p.err == nil && v != Version {
		p.err = fmt.Errorf("record version %d: %w", v, ErrVersion)
	}
}

func (p *parser) literal(s string) {
	if p.err != nil {
		return
	}
	if len(p.rest) < len(s) || string(p.rest[:len(s)]) != s {
		p.fail(s)
		return
	}
	p.rest = p.rest[len(s):]
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

// number reads a decimal number of at most maxInteger without leading zeros.
func (p *parser) number() uint64 {
	if p.err != nil {
		return 0
	}
	var v uint64
	n := 0
	for ; n < len(p.rest) && '0' <= p.rest[n] && p.rest[n] <= '9' && v <= maxInteger; n++ {
		v = 10*v + uint64(p.rest[n]-'0')
	}
	if n == 0 || v > maxInteger || n > 1 && p.rest[0] == '0' {
		p.fail("number")
		return 0
	}
	p.rest = p.rest[n:]
	return v
}

// take reads n bytes of any kind.
func (p *parser) take(n int) []byte {
	if p.err == nil && len(p.rest) < n {
		p.fail(strconv.Itoa(n) + " bytes")
	}
	if p.err != nil {
		return nil
	}
	s := p.rest[:n]
	p.rest = p.rest[n:]
	return s
}

func isLowerHex(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func (p *parser) hex(n int) []byte {
	s := p.take(n)
	if p.err == nil && !isLowerHex(s) {
		p.err = fmt.Errorf("want lower-case hexadecimal digits at %.60q: %w", s, ErrInvalidEntry)
	}
	return s
}

func (p *parser) digest() (d Digest) {
	if s := p.hex(2 * len(d)); p.err == nil {
		hex.Decode(d[:], s) // cannot fail: hex checked the digits
	}
	return d
}

// time reads the one form of timeLayout; time.Parse takes others too.
func (p *parser) time() time.Time {
	if p.err != nil {
		return time.Time{}
	}
	if len(p.rest) < len(timeLayout) {
		p.fail("time")
		return time.Time{}
	}
	s := p.rest[:len(timeLayout)]
	right := s[4] == '-' && s[7] == '-' && s[10] == 'T' && s[13] == ':' && s[16] == ':' && s[19] == '.' && s[26] == 'Z'
	at := func(from, to int) (v int) {
		for _, c := range s[from:to] {
			right = right && c-'0' <= 9
			v = 10*v + int(c-'0')
		}
		return v
	}
	month, day, hour, minute, second := time.Month(at(5, 7)), at(8, 10), at(11, 13), at(14, 16), at(17, 19)
	t := time.Date(at(0, 4), month, day, hour, minute, second, 1000*at(20, 26), time.UTC)
	if !right || t.Month() != month || t.Day() != day || hour > 23 || minute > 59 || second > 59 {
		p.fail("time")
		return time.Time{}
	}
	p.rest = p.rest[len(s):]
	return t
}

package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"time"
)

// Parse reads one line, without its newline, and checks all that the line alone can show: its one byte form, its
// hash and, unless the body is erased, the strict form of the body and its sum. Damage is an error wrapping
// [ErrInvalidEntry]; a line of another version one wrapping [ErrVersion]. The entry keeps line: the caller must not
// change it.
func Parse(line []byte) (Entry, error) {
	r := reader{hash: sha256.New()}
	return r.entry(line)
}

// reader parses the lines of one record one after the other and keeps what they can share.
type reader struct {
	hash   hash.Hash
	hashed int64 // bytes
	body   scanner
	thread ThreadID // of the line before
	kind   Kind     // of the line before
}

// The layout of an entry line.
const (
	entryOpen  = `{"v":0,"thread":"`
	hashField  = `,"hash":"`
	headerSeal = `}` // closes the header where the line goes on with hashField
)

func (r *reader) entry(line []byte) (Entry, error) {
	var e Entry
	p := parser{rest: line}
	p.version()
	p.literal(`,"thread":"`)
	if thread := p.until('"'); string(thread) != string(r.thread) {
		r.thread = ThreadID(thread)
	}
	e.Thread = r.thread
	p.literal(`","seq":`)
	e.Seq = Seq(p.number())
	p.literal(`,"gen":`)
	e.Gen = p.number()
	p.literal(`,"time":"`)
	e.Time = p.time()
	p.literal(`","kind":"`)
	if kind := p.until('"'); string(kind) != string(r.kind) {
		r.kind = Kind(kind)
	}
	e.Kind = r.kind
	p.literal(`","prev":"`)
	e.Prev = p.digest()
	p.literal(`","sum":"`)
	e.Sum = p.digest()
	p.literal(`"`)
	header := line[:len(line)-len(p.rest)]
	p.literal(hashField)
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
	if len(line)+1 > MaxLine {
		return Entry{}, fmt.Errorf("line of %d bytes, limit %d: %w", len(line)+1, MaxLine, ErrInvalidEntry)
	}
	if err := checkHeader(&e); err != nil {
		return Entry{}, err
	}
	if got := r.sum(header, []byte(headerSeal)); got != e.Hash {
		return Entry{}, fmt.Errorf("hash is %s, the header hashes to %s: %w", e.Hash, got, ErrInvalidEntry)
	}
	if e.Body != nil {
		if got := r.sum([]byte(e.Salt), e.Body); got != e.Sum {
			return Entry{}, fmt.Errorf("sum is %s, salt and body hash to %s: %w", e.Sum, got, ErrInvalidEntry)
		}
		if err := r.body.check(e.Body); err != nil {
			return Entry{}, err
		}
	} else if e.ErasedBy <= e.Seq {
		return Entry{}, fmt.Errorf("seq %d is erased by seq %d, which is not later: %w", e.Seq, e.ErasedBy, ErrInvalidEntry)
	}
	e.Line = line
	return e, nil
}

func (r *reader) sum(parts ...[]byte) (d Digest) {
	r.hash.Reset()
	for _, b := range parts {
		r.hash.Write(b)
		r.hashed += int64(len(b))
	}
	r.hash.Sum(d[:0])
	return d
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

func isLowerHex(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func (p *parser) hex(n int) []byte {
	if p.err != nil {
		return nil
	}
	if len(p.rest) < n || !isLowerHex(p.rest[:n]) {
		p.fail("lower-case hexadecimal digits")
		return nil
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
	at := func(from, to int) (v int) {
		for _, c := range s[from:to] {
			v = 10*v + int(c-'0')
		}
		return v
	}
	year, month, day := at(0, 4), time.Month(at(5, 7)), at(8, 10)
	hour, minute, second := at(11, 13), at(14, 16), at(17, 19)
	t := time.Date(year, month, day, hour, minute, second, 1000*at(20, 26), time.UTC)
	var again [len(timeLayout)]byte
	if string(t.AppendFormat(again[:0], timeLayout)) != string(s) {
		p.fail("time")
		return time.Time{}
	}
	p.rest = p.rest[len(s):]
	return t
}

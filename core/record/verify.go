package record

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"condensate.dev/cnd/core/fault"
)

// VerifyOptions say what a record is verified against.
type VerifyOptions struct {
	// Opener checks the notes of heads. It must be set unless Unsigned is.
	Opener HeadOpener
	// Key is the verifier key that must have signed; "" takes the head_key of the thread's thread.created.
	Key string
	// Unsigned accepts an export without a signed head, and entries after one.
	Unsigned bool
	// KeepBlobs hands out, in Entry.Blobs, the contents of the blob lines that stand before an entry.
	KeepBlobs bool
	// Head is the newest signed head that is known of the thread from elsewhere; nil when there is none. The record must
	// hold it; entries after it are counted, not refused.
	Head *SignedHead
}

// Report says what was verified.
type Report struct {
	Thread     ThreadID
	Head       Head
	Entries    int64 // inherited ones included
	Erased     int64 // entries without salt and body
	Blobs      int64
	Hashed     int64       // bytes of headers, bodies with salt, and blobs
	Signed     *SignedHead // newest head that was checked; nil when there is none
	Key        string      // verifier key that signed it
	Unanchored int64       // entries after it
}

// VerifyExport reads an export and checks everything that it claims. The first bad place is a [*Damage]; an error of
// r or of each is returned as it is. each, when not nil, is called for every entry after it was checked and before
// the next line is read: the entry is valid during the call. The memory is flat but for the digests of blobs and the
// erased entries whose entry.erased has not come yet.
func VerifyExport(r io.Reader, o VerifyOptions, each func(Entry) error) (Report, error) {
	v := newVerifier(o, each)
	lines := NewLineReader(r)
	for {
		line, err := lines.Next()
		if err == io.EOF {
			return v.report, v.end()
		}
		v.line++
		switch {
		case errors.Is(err, ErrTorn), errors.Is(err, ErrLineTooLong):
			return v.report, v.damage(v.unreadable(line), err.Error())
		case err != nil:
			return v.report, fmt.Errorf("read line %d: %w", v.line, err)
		}
		if err := v.exportLine(line); err != nil {
			return v.report, err
		}
	}
}

// unreadable says what a line is that cannot be read as one: at the front, the input is something else.
func (v *verifier) unreadable(line []byte) *fault.Error {
	if v.line == 1 && !bytes.HasPrefix(line, []byte(entryOpen[:len(`{"v":`)])) {
		return ErrNotRecord
	}
	return ErrDamaged
}

// VerifyThread reads a thread of a store, through its ancestors, and checks what [VerifyExport] checks, against
// o.Head instead of a head line. Entries after that head are counted, not refused.
func VerifyThread(ctx context.Context, s Store, thread ThreadID, o VerifyOptions, each func(Entry) error) (Report, error) {
	v := newVerifier(o, each)
	for e, err := range ReadThrough(ctx, s, thread, 0) {
		switch {
		case err == nil:
		case fault.ClassOf(err) == fault.Corrupt || errors.Is(err, ErrInvalidEntry):
			return v.report, v.damage(ErrDamaged, err.Error())
		default:
			return v.report, fmt.Errorf("verify %s: %w", thread, err)
		}
		if err := v.takeBlobs(ctx, s, e); err != nil {
			return v.report, err
		}
		if err := v.entryLine(e.Line); err != nil {
			return v.report, err
		}
	}
	if v.report.Thread != thread {
		return v.report, v.damage(ErrDamaged, fmt.Sprintf("the entries are of %s", v.report.Thread))
	}
	return v.report, v.end()
}

// takeBlobs reads the blobs that e is the first to list, as if their lines stood before it.
func (v *verifier) takeBlobs(ctx context.Context, s Store, e Entry) error {
	for _, d := range v.fresh(e.Body) {
		data, err := s.Blob(ctx, d)
		if errors.Is(err, ErrNoBlob) {
			return v.damage(ErrDamaged, err.Error())
		}
		if err != nil {
			return fmt.Errorf("verify blob %s of entry %d of %s: %w", d, e.Seq, e.Thread, err)
		}
		b := Blob{Digest: d, Data: data}
		if err := b.check(); err != nil {
			return v.damage(ErrDamaged, err.Error())
		}
		v.carry(b)
	}
	return nil
}

// verifier checks lines one after the other.
type verifier struct {
	o        VerifyOptions
	each     func(Entry) error
	reader   reader
	report   Report
	line     int64  // of an export
	gen      uint64 // of the entry before
	anchored bool   // o.Head was found at its place
	key      string // verifier key: o.Key or the head_key of thread.created
	listed   map[Digest]struct{}
	erased   map[Seq]erasure // erased entries whose entry.erased has not come

	// Of the blob lines since the last entry:
	carried []Digest
	weight  int // of all of them
	kept    []Blob
	data    []byte // decoded content, used again
}

func newVerifier(o VerifyOptions, each func(Entry) error) *verifier {
	if o.Opener == nil && (!o.Unsigned || o.Head != nil) {
		panic("record: a verifier of signed heads needs an opener")
	}
	return &verifier{
		o: o, each: each, key: o.Key,
		listed: make(map[Digest]struct{}), erased: make(map[Seq]erasure),
	}
}

// damage makes the error of this place.
func (v *verifier) damage(kind *fault.Error, why string) error {
	return &Damage{Line: v.line, Thread: v.report.Thread, Seq: v.report.Head.Next(), Why: why, Err: kind}
}

// exportLine checks one line of an export.
func (v *verifier) exportLine(line []byte) error {
	switch {
	case bytes.HasPrefix(line, []byte(entryOpen)):
		if v.finished() {
			return v.damage(ErrDamaged, "line after the signed head")
		}
		return v.entryLine(line)
	case IsBlobLine(line):
		return v.blobLine(line)
	case IsHeadLine(line):
		h, err := ParseHeadLine(line)
		if err != nil {
			return v.damage(ErrHead, err.Error())
		}
		return v.head(h)
	}
	return v.unknownLine(line)
}

// unknownLine says what a line is that is none of ours.
func (v *verifier) unknownLine(line []byte) error {
	p := parser{rest: line}
	p.version()
	switch {
	case v.line > 1 || p.err == nil:
		return v.damage(ErrDamaged, fmt.Sprintf("neither entry nor blob nor head: %.40q", line))
	case errors.Is(p.err, ErrVersion):
		return v.damage(ErrVersion, p.err.Error())
	default:
		return v.damage(ErrNotRecord, fmt.Sprintf("the first line begins with %.40q", line))
	}
}

func (v *verifier) blobLine(line []byte) error {
	b, err := ParseBlobLine(line, v.data)
	if err != nil {
		return v.damage(ErrDamaged, err.Error())
	}
	if v.weight+b.weight() > MaxBlobs {
		return v.damage(ErrDamaged, fmt.Sprintf("blob lines of over %d bytes before one entry", MaxBlobs))
	}
	v.carry(b)
	return nil
}

// carry takes a blob that stands before an entry.
func (v *verifier) carry(b Blob) {
	v.report.Blobs++
	v.report.Hashed += int64(len(b.Data))
	v.carried = append(v.carried, b.Digest)
	v.weight += b.weight()
	if v.o.KeepBlobs {
		v.kept = append(v.kept, b)
	} else {
		v.data = b.Data
	}
}

// entryLine checks an entry by itself and at its place.
func (v *verifier) entryLine(line []byte) error {
	e, err := v.reader.entry(line)
	if err != nil {
		return v.damage(ErrDamaged, err.Error())
	}
	why := v.chain(&e)
	if why == "" {
		why = v.generation(&e)
	}
	if why == "" {
		why = v.blobs(&e)
	}
	if why == "" {
		why = v.erasures(&e)
	}
	if why != "" {
		return v.damage(ErrDamaged, why)
	}
	if e.Kind == ThreadCreated && v.key == "" {
		v.key = headKey(e.Body)
	}
	v.report.Thread, v.report.Head, v.gen = e.Thread, e.Head(), e.Gen
	v.report.Entries++
	v.report.Unanchored++
	v.report.Hashed += v.reader.hashed
	v.reader.hashed = 0
	if h := v.o.Head; h != nil && e.Thread == h.Thread && e.Seq == h.Seq {
		if err := v.head(*h); err != nil {
			return err
		}
		v.anchored = true
	}
	if v.each == nil {
		return nil
	}
	e.Blobs, v.kept = v.kept, nil
	return v.each(e)
}

// chain checks that e follows the entry before it.
func (v *verifier) chain(e *Entry) string {
	last := v.report.Head
	switch {
	case e.Body == nil && (e.Kind == ThreadCreated || e.Kind == ThreadForked || e.Kind == EntryErased):
		return fmt.Sprintf("%s is erased", e.Kind)
	case v.report.Entries == 0 && e.Kind != ThreadCreated:
		return fmt.Sprintf("the first entry is %s, not %s", e.Kind, ThreadCreated)
	case e.Seq != last.Next():
		return fmt.Sprintf("seq is %d", e.Seq)
	case e.Prev != last.Hash:
		return fmt.Sprintf("prev is %s, the entry before has %s", e.Prev, last.Hash)
	case e.Kind == ThreadCreated && e.Seq > 0:
		return "thread.created is not the first entry"
	case v.report.Entries == 0 || e.Kind != ThreadForked && e.Thread == v.report.Thread:
		return ""
	case e.Kind != ThreadForked:
		return fmt.Sprintf("thread changes to %s without a fork", e.Thread)
	}
	parent, at, err := ForkOf(*e)
	if err != nil {
		return err.Error()
	}
	if parent != v.report.Thread || at != last {
		return fmt.Sprintf("fork of seq %d of %s stands after another entry", at.Seq, parent)
	}
	return ""
}

// generation checks that only engine.started begins a generation.
func (v *verifier) generation(e *Entry) string {
	if v.report.Entries == 0 || e.Gen == v.gen || e.Gen > v.gen && e.Kind == EngineStarted {
		return ""
	}
	return fmt.Sprintf("%s has gen %d, the entry before %d", e.Kind, e.Gen, v.gen)
}

// fresh returns the blobs that no entry before lists.
func (v *verifier) fresh(body []byte) []Digest {
	return slices.DeleteFunc(ListedBlobs(body), func(d Digest) bool {
		_, ok := v.listed[d]
		return ok
	})
}

// blobs checks that the blob lines before e are those of the blobs that e is the first to list, in its order.
func (v *verifier) blobs(e *Entry) string {
	fresh := v.fresh(e.Body)
	if !slices.Equal(fresh, v.carried) {
		return fmt.Sprintf("the blob lines before it are not the %d blobs that it is the first to list", len(fresh))
	}
	for _, d := range fresh {
		v.listed[d] = struct{}{}
	}
	v.carried, v.weight = v.carried[:0], 0
	return ""
}

// finished says whether nothing may follow: the head of an export was read.
func (v *verifier) finished() bool {
	return v.report.Signed != nil && !v.o.Unsigned && v.o.Head == nil
}

// head checks a signed head at its place.
func (v *verifier) head(h SignedHead) error {
	switch {
	case len(v.carried) > 0:
		return v.damage(ErrDamaged, "blob lines that no entry lists")
	case h.Thread != v.report.Thread || h.Place() != v.report.Head:
		return v.damage(ErrHead, fmt.Sprintf("head names seq %d of %s with hash %s", h.Seq, h.Thread, h.Hash))
	case v.finished():
		return v.damage(ErrDamaged, "line after the signed head")
	case v.o.Opener != nil && v.key == "":
		return v.damage(ErrHead, "thread.created names no head key")
	}
	if v.o.Opener != nil {
		if err := h.Open(v.o.Opener, v.key); err != nil {
			return v.damage(ErrHead, err.Error())
		}
	}
	v.report.Signed, v.report.Key, v.report.Unanchored = &h, v.key, 0
	return nil
}

// end checks what only the end of the record shows.
func (v *verifier) end() error {
	if err := v.openErasures(); err != nil {
		return err
	}
	switch h := v.o.Head; {
	case len(v.carried) > 0:
		return v.damage(ErrDamaged, "blob lines that no entry lists")
	case v.report.Entries == 0:
		return v.damage(ErrNotRecord, "it holds no entry")
	case h != nil && !v.anchored:
		return v.damage(ErrHead, fmt.Sprintf("the record ends before seq %d, which is signed", h.Seq))
	case v.line > 0 && v.report.Signed == nil && !v.o.Unsigned:
		return v.damage(ErrNoHead, "the last line is an entry")
	}
	return nil
}

// headKey returns the verifier key that the body of a thread.created names, or "".
func headKey(body []byte) string {
	var created struct {
		HeadKey string `json:"head_key"`
	}
	if err := json.Unmarshal(body, &created); err != nil {
		return ""
	}
	return created.HeadKey
}

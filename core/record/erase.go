package record

import (
	"bytes"
	"fmt"
)

// Erasure is what the body of an entry.erased says: whose salt and body are gone.
type Erasure struct {
	Seq  Seq
	Hash Digest
	// By is, in a fork, the seq of the parent's entry.erased when that lies past the fork; 0 otherwise.
	By Seq
}

// ErasureOf reads the front of the body of an entry.erased, which has one byte form up to the reason. The error wraps
// [ErrInvalidEntry].
func ErasureOf(e Entry) (Erasure, error) {
	var x Erasure
	p := parser{rest: e.Body}
	p.literal(`{"seq":`)
	x.Seq = Seq(p.number())
	p.literal(`,"hash":"`)
	x.Hash = p.digest()
	p.literal(`"`)
	if p.err == nil && bytes.HasPrefix(p.rest, []byte(`,"by":`)) {
		p.literal(`,"by":`)
		x.By = Seq(p.number())
	}
	p.literal(`,"reason":"`)
	if p.err == nil && (e.Kind != EntryErased || x.Seq >= e.Seq) {
		p.err = fmt.Errorf("%s of seq %d at seq %d: %w", e.Kind, x.Seq, e.Seq, ErrInvalidEntry)
	}
	return x, p.err
}

// erasure is an erased entry whose entry.erased has not come.
type erasure struct {
	thread ThreadID
	hash   Digest
	by     Seq
	line   int64
}

// erasures notes an erased entry, and ends the waiting of the one that an entry.erased names.
func (v *verifier) erasures(e *Entry) string {
	if e.Body == nil {
		v.erased[e.Seq] = erasure{thread: e.Thread, hash: e.Hash, by: e.ErasedBy, line: v.line}
		v.report.Erased++
		return ""
	}
	if e.Kind != EntryErased {
		return ""
	}
	x, err := ErasureOf(*e)
	if err != nil {
		return err.Error()
	}
	by := e.Seq
	if x.By != 0 {
		by = x.By
	}
	want, ok := v.erased[x.Seq]
	if ok && want.hash == x.Hash && want.by == by && (want.thread == e.Thread) == (x.By == 0) {
		delete(v.erased, x.Seq)
	}
	return ""
}

// openErasures names the first entry whose body is missing without an entry.erased that says so.
func (v *verifier) openErasures() error {
	if len(v.erased) == 0 {
		return nil
	}
	first := Seq(maxInteger)
	for seq := range v.erased {
		first = min(first, seq)
	}
	x := v.erased[first]
	return &Damage{Line: x.line, Thread: x.thread, Seq: first, Err: ErrDamaged, Why: fmt.Sprintf(
		"it says that seq %d erased it, and no entry.erased there names it", x.by)}
}

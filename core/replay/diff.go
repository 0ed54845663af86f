package replay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"

	"condensate.dev/cnd/core/record"
)

// Divergence says where two threads begin to differ.
type Divergence struct {
	// Entry is the first place at which the threads hold different entries: another kind, another body, or none. Id,
	// time and salt do not count. It is nil when there is none.
	Entry *EntryDivergence `json:"entry,omitempty"`
	// Request is the first pair of requests, counted from the start of each thread, whose rebuilt bytes differ.
	Request *RequestDivergence `json:"request,omitempty"`
}

// EntryDivergence is a place at which two threads hold different entries.
type EntryDivergence struct {
	Seq   record.Seq  `json:"seq"`
	KindA record.Kind `json:"kind_a,omitempty"` // "" when the thread has ended
	KindB record.Kind `json:"kind_b,omitempty"`
	A     string      `json:"a"` // bodies around the first byte that differs
	B     string      `json:"b"`
}

// RequestDivergence is a pair of requests that differ.
type RequestDivergence struct {
	N      int64      `json:"n"`     // 0-based count of request.prepared entries
	SeqA   record.Seq `json:"seq_a"` // meaningful unless OnlyIn is "b"
	SeqB   record.Seq `json:"seq_b"` // meaningful unless OnlyIn is "a"
	OnlyIn string     `json:"only_in,omitempty"`
	Offset int64      `json:"offset"` // of the first byte that differs
	A      string     `json:"a"`      // the bodies around it
	B      string     `json:"b"`
}

// Diff compares two threads.
func Diff(ctx context.Context, a, b Source) (Divergence, error) {
	var d Divergence
	var err error
	if d.Entry, err = diffEntries(ctx, a, b); err != nil {
		return d, err
	}
	d.Request, err = diffRequests(ctx, a, b)
	return d, err
}

func diffEntries(ctx context.Context, a, b Source) (*EntryDivergence, error) {
	nextA, stopA := iter.Pull2(a.Entries(ctx, 0))
	defer stopA()
	nextB, stopB := iter.Pull2(b.Entries(ctx, 0))
	defer stopB()
	for seq := record.Seq(0); ; seq++ {
		ea, errA, moreA := nextA()
		eb, errB, moreB := nextB()
		if err := errors.Join(errA, errB); err != nil {
			return nil, err
		}
		if !moreA && !moreB {
			return nil, nil
		}
		if ea.Kind != eb.Kind || !bytes.Equal(ea.Body, eb.Body) {
			_, aroundA, aroundB := firstByte(ea.Body, eb.Body)
			return &EntryDivergence{Seq: seq, KindA: ea.Kind, KindB: eb.Kind, A: aroundA, B: aroundB}, nil
		}
	}
}

// firstByte returns the offset of the first byte that differs, and both texts around it.
func firstByte(a, b []byte) (offset int64, aroundA, aroundB string) {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	around := func(s []byte) string { return string(s[max(0, n-before):min(len(s), n+after)]) }
	return int64(n), around(a), around(b)
}

func diffRequests(ctx context.Context, a, b Source) (*RequestDivergence, error) {
	nextA, stopA := iter.Pull2(Requests(ctx, a))
	defer stopA()
	nextB, stopB := iter.Pull2(Requests(ctx, b))
	defer stopB()
	for n := int64(0); ; n++ {
		ra, errA, moreA := nextA()
		rb, errB, moreB := nextB()
		if err := errors.Join(errA, errB); err != nil {
			return nil, err
		}
		switch {
		case !moreA && !moreB:
			return nil, nil
		case !moreB:
			return &RequestDivergence{N: n, SeqA: ra.Seq, OnlyIn: "a"}, nil
		case !moreA:
			return &RequestDivergence{N: n, SeqB: rb.Seq, OnlyIn: "b"}, nil
		case ra.BodySHA256 != rb.BodySHA256:
			d, err := diffBodies(ctx, a, b, ra.Seq, rb.Seq)
			if d != nil {
				d.N = n
			}
			return d, err
		}
	}
}

// diffBodies rebuilds two requests side by side up to the first byte that differs.
func diffBodies(ctx context.Context, a, b Source, seqA, seqB record.Seq) (*RequestDivergence, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	readA, readB := bodyReader(ctx, a, seqA), bodyReader(ctx, b, seqB)
	defer readA.Close()
	defer readB.Close()
	d := &RequestDivergence{SeqA: seqA, SeqB: seqB}
	var tail []byte // the last bytes that are the same
	bufA, bufB := make([]byte, 32<<10), make([]byte, 32<<10)
	for {
		nA, errA := io.ReadFull(readA, bufA)
		nB, errB := io.ReadFull(readB, bufB)
		for _, err := range []error{errA, errB} {
			if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return nil, err
			}
		}
		n, _, _ := firstByte(bufA[:nA], bufB[:nB])
		if int(n) == len(bufA) {
			tail = append(tail[:0], bufA[len(bufA)-before:]...)
			d.Offset += n
			continue
		}
		show := func(buf []byte) string {
			shown := append(bytes.Clone(tail), buf[:min(len(buf), int(n)+after)]...)
			return string(shown[max(0, len(tail)+int(n)-before):])
		}
		d.Offset += n
		d.A, d.B = show(bufA[:nA]), show(bufB[:nB])
		return d, nil
	}
}

func bodyReader(ctx context.Context, src Source, seq record.Seq) *io.PipeReader {
	r, w := io.Pipe()
	go func() { w.CloseWithError(rebuildAt(ctx, src, seq, w)) }()
	return r
}

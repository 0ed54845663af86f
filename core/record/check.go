package record

import (
	"fmt"
	"slices"
	"time"
)

// maxInteger is the largest number of a header: above it, readers that use doubles lose digits.
const maxInteger = 1<<53 - 1

// checkHeader checks what the layout alone does not: the forms of thread and kind, the ranges of the numbers, and
// that exactly the entry with seq 0 has no predecessor.
func checkHeader(e *Entry) error {
	switch {
	case !ValidID(PrefixThread, string(e.Thread)):
		return fmt.Errorf("thread %.80q: %w", e.Thread, ErrInvalidEntry)
	case !validKind(e.Kind):
		return fmt.Errorf("kind %.80q: %w", e.Kind, ErrInvalidEntry)
	case e.Seq > maxInteger || e.Gen > maxInteger:
		return fmt.Errorf("seq %d, gen %d: over 2^53-1: %w", e.Seq, e.Gen, ErrInvalidEntry)
	case (e.Seq == 0) != e.Prev.IsZero():
		return fmt.Errorf("seq %d after %s: only seq 0 has no predecessor: %w", e.Seq, e.Prev, ErrInvalidEntry)
	}
	return nil
}

// validKind says whether k is two words of lower-case letters and a dot, at most MaxKind bytes.
func validKind(k Kind) bool {
	dot := -1
	for i := range len(k) {
		switch c := k[i]; {
		case c == '.' && dot < 0:
			dot = i
		case c < 'a' || c > 'z':
			return false
		}
	}
	return dot > 0 && dot < len(k)-1 && len(k) <= MaxKind
}

// checkTime refuses a year that the layout cannot hold.
func checkTime(t time.Time) error {
	if y := t.Year(); y < 0 || y > 9999 {
		return fmt.Errorf("year %d: %w", y, ErrInvalidEntry)
	}
	return nil
}

// checkBlobs says whether carried are the contents of exactly the digests that body lists, in that order.
func checkBlobs(body []byte, carried []Blob) error {
	listed := ListedBlobs(body)
	if len(listed) != len(carried) {
		return fmt.Errorf("body lists %d blobs, %d are carried: %w", len(listed), len(carried), ErrInvalidEntry)
	}
	size := 0
	for i, b := range carried {
		if size += b.weight(); size > MaxBlobs {
			return fmt.Errorf("blobs of over %d bytes together: %w", MaxBlobs, ErrInvalidEntry)
		}
		if b.Digest != listed[i] {
			return fmt.Errorf("blob %d is %s, the body lists %s: %w", i, b.Digest, listed[i], ErrInvalidEntry)
		}
		if err := b.check(); err != nil {
			return err
		}
	}
	return nil
}

// CheckAppend is the part of [Store.Append] that needs no store: entries is not empty, all are of thread, the first
// follows expect and each other one its predecessor; each carries only blobs that it lists; thread.created stands only at seq 0 and thread.forked only at
// the front, naming expect. It returns the digests that the entries list and do not carry: the store must hold them.
func CheckAppend(thread ThreadID, expect Head, entries []Entry) (needed []Digest, err error) {
	if len(entries) == 0 {
		return nil, fmt.Errorf("append to %s: no entries: %w", thread, ErrInvalidEntry)
	}
	carried := make(map[Digest]bool)
	at := expect
	for i := range entries {
		e := &entries[i]
		if err := follows(thread, at, e, i == 0); err != nil {
			return nil, fmt.Errorf("append entry %d to %s: %w", e.Seq, thread, err)
		}
		at = e.Head()
		listed := ListedBlobs(e.Body)
		for _, b := range e.Blobs {
			err := b.check()
			if err == nil && !slices.Contains(listed, b.Digest) {
				err = fmt.Errorf("blob %s is not listed: %w", b.Digest, ErrInvalidEntry)
			}
			if err != nil {
				return nil, fmt.Errorf("append entry %d to %s: %w", e.Seq, thread, err)
			}
			carried[b.Digest] = true
		}
		for _, d := range listed {
			if !carried[d] {
				needed = append(needed, d)
			}
		}
	}
	return needed, nil
}

func follows(thread ThreadID, at Head, e *Entry, front bool) error {
	switch {
	case e.Thread != thread:
		return fmt.Errorf("it is of thread %s: %w", e.Thread, ErrInvalidEntry)
	case e.Seq != at.Next() || e.Prev != at.Hash:
		return fmt.Errorf("it does not follow seq %d: %w", at.Seq, ErrInvalidEntry)
	case e.Kind == ThreadCreated && e.Seq != 0:
		return fmt.Errorf("%s stands only at seq 0: %w", e.Kind, ErrInvalidEntry)
	case e.Kind == ThreadForked && !front:
		return fmt.Errorf("%s stands only at the front: %w", e.Kind, ErrInvalidEntry)
	}
	if e.Kind == ThreadForked {
		_, parent, err := ForkOf(*e)
		if err == nil && parent != at {
			err = fmt.Errorf("it names seq %d, but follows seq %d: %w", parent.Seq, at.Seq, ErrInvalidEntry)
		}
		return err
	}
	return nil
}

package notes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

// ErrHeadsDamaged: the file of heads is not what was appended to it.
var ErrHeadsDamaged = fault.New(fault.Corrupt, "heads-damaged", "file of signed heads is damaged")

// place is where the newest note of a thread stands in the file.
type place struct {
	offset int64
	length int // of the line, without its newline
	head   record.Head
}

// scan reads a file of heads from r and hands each one to each with its place. It checks that the notes chain, and
// returns the last one and the length of the complete lines.
func scan(r io.Reader, each func(record.SignedHead, place)) (last record.SignedHead, size int64, err error) {
	lines := record.NewLineReader(r)
	for n := 1; ; n++ {
		at := lines.Offset()
		line, err := lines.Next()
		if err == io.EOF || errors.Is(err, record.ErrTorn) {
			return last, at, nil
		}
		if err != nil && !errors.Is(err, record.ErrLineTooLong) {
			return last, at, fmt.Errorf("read heads: %w", err)
		}
		var h record.SignedHead
		if err == nil {
			h, err = record.ParseHeadLine(line)
		}
		if err == nil && n > 1 && h.Prev != last.NoteHash() || err == nil && n == 1 && !h.Prev.IsZero() {
			err = errors.New("prev is not the hash of the note before")
		}
		if err != nil {
			return last, at, fmt.Errorf("line %d: %v: %w", n, err, ErrHeadsDamaged)
		}
		each(h, place{offset: at, length: len(line), head: h.Place()})
		last = h
	}
}

// newer says whether the note at p replaces the one at old as the newest of its thread. Notes of one thread are
// normally in order of seq; one that was signed late for an older place does not hide a newer one.
func (p place) newer(old place, known bool) bool { return !known || p.head.Seq >= old.head.Seq }

// Newest returns the newest head of a thread in the file at path, which another process may be appending to; nil when
// there is none. The notes chain, their signatures are not checked.
func Newest(path string, thread record.ThreadID) (*record.SignedHead, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("heads: %w", err)
	}
	defer f.Close()
	var newest *record.SignedHead
	_, _, err = scan(f, func(h record.SignedHead, p place) {
		if h.Thread == thread && (newest == nil || h.Seq >= newest.Seq) {
			newest = &h
		}
	})
	if err != nil {
		return nil, fmt.Errorf("heads %s: %w", path, err)
	}
	return newest, nil
}

package record

import (
	"bytes"
	"fmt"
	"io"

	"condensate.dev/cnd/core/fault"
)

// Errors of files of lines.
var (
	// ErrTorn: the last line has no newline.
	ErrTorn = fault.New(fault.Corrupt, "line-torn", "last line has no newline")
	// ErrLineTooLong: a line is longer than its kind may be.
	ErrLineTooLong = fault.New(fault.Invalid, "line-too-long", "line is longer than its kind may be")
)

// LineReader reads the lines of an export, or of a file of heads, with bounded memory: at most [MaxBlobLine] for a
// blob and [MaxLine] for any other line.
type LineReader struct {
	r          io.Reader
	buf        []byte
	start, end int   // buf[start:end] is read and not yet returned
	offset     int64 // of the next line
	eof        bool
}

// The buffer begins small and grows to a size at which reading costs little, then only for lines that need it.
const (
	minBuffer = 8 << 10
	maxBuffer = 64 << 10
)

// NewLineReader returns a reader of the lines of r; r needs no buffer.
func NewLineReader(r io.Reader) *LineReader {
	return &LineReader{r: r, buf: make([]byte, minBuffer)}
}

// Offset returns where the next line begins, in bytes from where the reader began.
func (l *LineReader) Offset() int64 { return l.offset }

// Next returns the next line without its newline; it is valid until the next call. At the end the error is io.EOF,
// or wraps [ErrTorn] when there are bytes after the last newline, which are returned too. A line over its limit is an error wrapping
// [ErrLineTooLong].
func (l *LineReader) Next() ([]byte, error) {
	for seen := 0; ; {
		if n := bytes.IndexByte(l.buf[l.start+seen:l.end], '\n'); n >= 0 {
			line := l.buf[l.start : l.start+seen+n]
			if err := checkLength(line); err != nil {
				return nil, err
			}
			l.start += len(line) + 1
			l.offset += int64(len(line)) + 1
			return line, nil
		}
		seen = l.end - l.start
		switch err := checkLength(l.buf[l.start:l.end]); {
		case err != nil:
			return nil, err
		case l.eof && seen == 0:
			return nil, io.EOF
		case l.eof:
			return l.buf[l.start:l.end], fmt.Errorf("%d bytes after the last newline: %w", seen, ErrTorn)
		}
		if err := l.fill(); err != nil {
			return nil, err
		}
	}
}

func checkLength(line []byte) error {
	limit := MaxLine
	if IsBlobLine(line) {
		limit = MaxBlobLine
	}
	if len(line)+1 > limit {
		return fmt.Errorf("line of more than %d bytes: %w", limit, ErrLineTooLong)
	}
	return nil
}

// fill reads more bytes, making room first.
func (l *LineReader) fill() error {
	buf := l.buf
	if n := l.end - l.start; l.end == len(buf) && (n == len(buf) || len(buf) < maxBuffer) {
		buf = make([]byte, 2*len(buf))
	}
	l.end = copy(buf, l.buf[l.start:l.end])
	l.buf, l.start = buf, 0
	for range 100 {
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		if err == io.EOF {
			l.eof = true
			return nil
		}
		if n > 0 || err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

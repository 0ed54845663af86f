package rawjson

import (
	"encoding/base64"
	"io"
	"strconv"
)

// bufSize bounds what a Writer holds back, in bytes; longer parts go through without a copy.
const bufSize = 4 << 10

// Writer writes JSON to an io.Writer, gathering small parts. The first error sticks. It is not safe for concurrent
// use.
type Writer struct {
	w   io.Writer
	buf []byte
	n   int64
	err error
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, buf: make([]byte, 0, bufSize)} }

// Raw writes s, which the caller knows to be JSON at this place.
func (w *Writer) Raw(s string) {
	w.n += int64(len(s))
	if len(w.buf)+len(s) > bufSize {
		w.flush()
	}
	w.buf = append(w.buf, s...)
}

// Bytes writes b as Raw does: a value that was read, a literal for example, stands as it was.
func (w *Writer) Bytes(b []byte) {
	w.n += int64(len(b))
	if len(w.buf)+len(b) > bufSize {
		w.flush()
		if len(b) > bufSize/4 {
			w.write(b)
			return
		}
	}
	w.buf = append(w.buf, b...)
}

// String writes s as a literal.
func (w *Writer) String(s string) { w.Bytes(Quote(s)) }

// Int writes i as a number.
func (w *Writer) Int(i int) { w.Raw(strconv.Itoa(i)) }

// Base64 writes data as a literal in standard base64 with padding.
func (w *Writer) Base64(data []byte) {
	w.Raw(`"`)
	const chunk = bufSize / 4 * 3
	var b [bufSize]byte
	for len(data) > 0 {
		part := data[:min(chunk, len(data))]
		w.Bytes(base64.StdEncoding.AppendEncode(b[:0], part))
		data = data[len(part):]
	}
	w.Raw(`"`)
}

// Len returns how many bytes were written.
func (w *Writer) Len() int64 { return w.n }

// Flush hands everything on and returns the first error.
func (w *Writer) Flush() error {
	w.flush()
	return w.err
}

func (w *Writer) flush() {
	w.write(w.buf)
	w.buf = w.buf[:0]
}

func (w *Writer) write(b []byte) {
	if w.err == nil && len(b) > 0 {
		_, w.err = w.w.Write(b)
	}
}

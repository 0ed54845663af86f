package anthropic

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"
)

// MaxEvent is the largest server-sent event accepted, in bytes of its lines. A larger one makes the answer malformed.
const MaxEvent = 8 << 20

// errEventTooLarge is returned for an event over MaxEvent.
var errEventTooLarge = fmt.Errorf("event over %d bytes", MaxEvent)

// event is one server-sent event. Data is valid UTF-8 and belongs to the splitter until the next call of next.
type event struct {
	name string // of its "event:" line; "" when it has none
	data []byte // its "data:" lines, joined by newlines
}

// splitter cuts a stream into server-sent events (WHATWG HTML, 9.2.6). Lines end with LF, CR or CRLF; comments, "id"
// and "retry" are ignored; an event that the end of the stream cuts off is not delivered. The events do not depend on
// how the stream is cut into reads.
type splitter struct {
	r     io.Reader
	chunk []byte // read buffer
	rest  []byte // the part of chunk that is not consumed
	err   error  // of the reader; returned when rest is used up

	line   []byte // the unfinished line
	name   []byte
	data   []byte
	filled bool // the event has a data line
	size   int  // bytes of the event's lines so far
	began  bool // a line was seen: a byte order mark can no longer come
	skipLF bool // the last line ended with CR: an LF directly after it belongs to that end
}

func newSplitter(r io.Reader) *splitter {
	return &splitter{r: r, chunk: make([]byte, 32<<10)}
}

// next returns the next event, or the reader's error (io.EOF at the end), or errEventTooLarge.
func (s *splitter) next() (event, error) {
	s.name, s.data, s.filled, s.size = s.name[:0], s.data[:0], false, 0
	for {
		line, err := s.nextLine()
		if err != nil {
			return event{}, err
		}
		if len(line) > 0 {
			if !s.field(line) {
				s.size -= len(line) // comments may come for ever
			}
			continue
		}
		if !s.filled {
			s.name = s.name[:0] // an event without data is none
			s.size = 0
			continue
		}
		data := s.data
		if !utf8.Valid(data) {
			data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
		}
		return event{name: string(s.name), data: data}, nil
	}
}

// field takes one line that is not empty and says whether it is kept.
func (s *splitter) field(line []byte) bool {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		s.name = append(s.name[:0], value...)
	case "data":
		if s.filled {
			s.data = append(s.data, '\n')
		}
		s.data = append(s.data, value...)
		s.filled = true
	default:
		return false
	}
	return true
}

// nextLine returns the next line without its end. The line is valid until the next call.
func (s *splitter) nextLine() ([]byte, error) {
	s.line = s.line[:0]
	for {
		if len(s.rest) == 0 {
			if s.err != nil {
				return nil, s.err
			}
			n, err := s.r.Read(s.chunk)
			s.rest, s.err = s.chunk[:n], err
			continue
		}
		if s.skipLF {
			s.skipLF = false
			if s.rest[0] == '\n' {
				s.rest = s.rest[1:]
				continue
			}
		}
		end := bytes.IndexAny(s.rest, "\r\n")
		piece := s.rest
		if end >= 0 {
			piece = s.rest[:end]
		}
		if s.size += len(piece); s.size > MaxEvent {
			return nil, errEventTooLarge
		}
		s.line = append(s.line, piece...)
		if end < 0 {
			s.rest = nil
			continue
		}
		s.skipLF = s.rest[end] == '\r'
		s.rest = s.rest[end+1:]
		line := s.line
		if !s.began {
			s.began = true
			line = bytes.TrimPrefix(line, []byte("\uFEFF"))
		}
		return line, nil
	}
}

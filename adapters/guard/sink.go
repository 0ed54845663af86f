package guard

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// sink takes what a command prints from a pipe into a file, up to a limit.
type sink struct {
	read, write *os.File
	file        *os.File
	limit       int64  // most bytes to keep
	more        func() // called after the file has grown; must not block
	drained     chan struct{}

	mu      sync.Mutex // guards what follows
	kept    int64
	dropped int64
	closed  bool
}

func newSink(name string, limit int64, more func()) (*sink, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &sink{read: r, write: w, file: f, limit: limit, more: more, drained: make(chan struct{})}, nil
}

// drain starts to take what comes; this process's end of the pipe for writing must have been handed on.
func (s *sink) drain() {
	_ = s.write.Close()
	go func() {
		defer close(s.drained)
		chunk := make([]byte, 32<<10)
		for {
			n, err := s.read.Read(chunk)
			s.keep(chunk[:n])
			if err != nil && !errors.Is(err, io.ErrNoProgress) {
				return
			}
		}
	}()
}

func (s *sink) keep(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	fits := p[:min(int64(len(p)), s.limit-s.kept)]
	n, _ := s.file.Write(fits) // on a full disk the rest is dropped and counted
	s.kept += int64(n)
	s.dropped += int64(len(p) - n)
	if n > 0 {
		s.more()
	}
}

// close waits at most grace for the end of the output, makes the file durable and returns the final counts.
func (s *sink) close(grace time.Duration) (kept, dropped int64) {
	limit := time.NewTimer(grace)
	defer limit.Stop()
	select {
	case <-s.drained:
	case <-limit.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	_ = errors.Join(s.file.Sync(), s.file.Close(), s.read.Close())
	return s.kept, s.dropped
}

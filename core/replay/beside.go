package replay

import (
	"context"

	"condensate.dev/cnd/core/record"
)

// Bounds of what waits between the caller of Beside and its goroutine.
const (
	batchBytes = 64 << 10 // of bodies in a batch; a longer body is a batch of its own
	batches    = 4
)

// Beside is a Verifier that works in a goroutine of its own, beside the one that checks the entries. It is for one
// caller.
type Beside struct {
	full  chan *batch
	free  chan *batch
	ended chan struct{} // closed when the goroutine has ended
	now   *batch        // filled by Add

	verifier *Verifier // of the goroutine; read after ended
	err      error     // of the goroutine; read after ended
}

// batch is a run of entries whose bodies are copies.
type batch struct {
	entries []record.Entry
	bodies  []byte
}

func newBatch() *batch { return &batch{bodies: make([]byte, 0, batchBytes)} }

// StartBeside starts a verifier of the thread that src holds. It must be ended with [Beside.Wait].
func StartBeside(ctx context.Context, src Source) *Beside {
	b := &Beside{
		full: make(chan *batch, batches), free: make(chan *batch, batches), ended: make(chan struct{}),
		now: newBatch(), verifier: NewVerifier(src),
	}
	for range batches {
		b.free <- newBatch()
	}
	go func() {
		defer close(b.ended)
		b.err = b.run(ctx)
	}()
	return b
}

func (b *Beside) run(ctx context.Context) error {
	for batch := range b.full {
		for _, e := range batch.entries {
			if err := b.verifier.Add(ctx, e); err != nil {
				return err
			}
		}
		batch.entries, batch.bodies = batch.entries[:0], batch.bodies[:0]
		b.free <- batch // never blocks: there are as many places as batches but the one that is filled
	}
	return nil
}

// Add takes the next entry, as [Verifier.Add] does, and copies what it keeps. An error may be about an earlier entry.
func (b *Beside) Add(e record.Entry) error {
	if n := len(b.now.bodies); n > 0 && n+len(e.Body) > batchBytes {
		if err := b.pass(); err != nil {
			return err
		}
	}
	at := len(b.now.bodies)
	if b.now.bodies = append(b.now.bodies, e.Body...); e.Body != nil {
		e.Body = b.now.bodies[at:len(b.now.bodies):len(b.now.bodies)]
	}
	e.Line, e.Blobs = nil, nil
	b.now.entries = append(b.now.entries, e)
	return nil
}

// pass hands on what was added.
func (b *Beside) pass() error {
	select {
	case b.full <- b.now:
	case <-b.ended:
		return b.err
	}
	select {
	case b.now = <-b.free:
		return nil
	case <-b.ended:
		return b.err
	}
}

// Wait ends the verifier and returns what it found, or its first error.
func (b *Beside) Wait() (Report, error) {
	err := b.pass()
	close(b.full)
	<-b.ended
	if err == nil {
		err = b.err
	}
	return b.verifier.Report(), err
}

package notes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/internal/durable"
)

const (
	// MaxDelay is how long a head that was given to [Heads.Add] may wait for others before the file is synced.
	MaxDelay = 500 * time.Millisecond
	// RetryDelay is how long the background writer waits after a failed write. What waits is kept.
	RetryDelay = 10 * time.Second
)

// Errors of heads.
var (
	// ErrOtherKey: the last note in the file was signed by another key than the one that was given.
	ErrOtherKey = fault.New(fault.Config, "record-key-changed", "the file of signed heads was signed by another key")
	// ErrOtherHead: the thread does not hold the entry that its newest signed head names.
	ErrOtherHead = fault.New(fault.Corrupt, "head-signed-otherwise", "the thread is not the one whose head was signed before")
	// ErrClosed: the file is closed.
	ErrClosed = fault.New(fault.Unavailable, "heads-closed", "file of signed heads is closed")
)

// HashAt returns the hash of the thread's entry at seq; the zero digest when there is none.
type HashAt func(thread record.ThreadID, seq record.Seq) (record.Digest, error)

// file is what Heads needs of an *os.File.
type file interface {
	ReadAt(b []byte, off int64) (int, error)
	Write(b []byte) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Heads signs heads and appends the notes to the file of heads. It signs a thread's head only after it has seen that the
// thread still holds what was signed of it last, and never an older place than that. It is safe for concurrent use;
// there must be only one for a file (the lock of the store sees to that). What a failed write left is cut off before the next one.
type Heads struct {
	key     record.HeadSigner
	hashAt  HashAt
	onError func(error)
	wake    chan struct{} // holds one token while something waits
	done    chan struct{} // closed by Close
	ended   chan struct{} // closed when the background writer has ended

	adding  sync.Mutex // guards what follows; never held while the file is used
	waiting []waiting  // given to Add and not yet taken by flush, one for a thread
	err     error      // of the last write; nil when it went well

	mu     sync.Mutex // guards what follows; taken before adding
	file   file
	size   int64
	last   record.Digest // hash of the last note
	newest map[record.ThreadID]place
	closed bool
}

type waiting struct {
	thread record.ThreadID
	at     record.Head
}

// OpenHeads opens the file of heads at path, or makes it, and starts a background writer; onError hears its failures
// and the heads that could not be signed. Neither onError nor hashAt may call the Heads. A last line without a newline is trimmed; other
// damage is an error wrapping [ErrHeadsDamaged], a file signed by another key one wrapping [ErrOtherKey].
func OpenHeads(path string, key record.HeadSigner, hashAt HashAt, onError func(error)) (*Heads, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("heads: %w", err)
	}
	h := &Heads{
		key: key, hashAt: hashAt, onError: onError, file: f, newest: make(map[record.ThreadID]place),
		wake: make(chan struct{}, 1), done: make(chan struct{}), ended: make(chan struct{}),
	}
	if err := h.load(f); err != nil {
		return nil, errors.Join(fmt.Errorf("heads %s: %w", path, err), f.Close())
	}
	if err := durable.SyncFolder(filepath.Dir(path)); err != nil {
		return nil, errors.Join(fmt.Errorf("heads %s: %w", path, err), f.Close())
	}
	go h.write()
	return h, nil
}

// load reads what is there and trims a torn end.
func (h *Heads) load(f *os.File) error {
	last, size, err := scan(f, func(head record.SignedHead, p place) {
		if old, known := h.newest[head.Thread]; p.newer(old, known) {
			h.newest[head.Thread] = p
		}
	})
	if err != nil {
		return err
	}
	if last.Note != "" {
		h.last = last.NoteHash()
		// The last note commits to all before it.
		if err := last.Open(Opener{}, h.key.VerifierKey()); err != nil {
			err = fmt.Errorf("last note: %v: %w", err, ErrOtherKey)
			return fault.WithHint(err, "put the key back, or move the file of heads away to begin a new one")
		}
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h.size = size
	if info.Size() == size {
		return nil
	}
	return errors.Join(f.Truncate(size), f.Sync())
}

// Add has a head signed, written and synced within [MaxDelay]. It does not wait for that. Of several heads of one
// thread that come within the delay only the last is signed.
func (h *Heads) Add(thread record.ThreadID, at record.Head) {
	h.adding.Lock()
	defer h.adding.Unlock()
	for i := range h.waiting {
		if h.waiting[i].thread == thread {
			h.waiting[i].at = at
			return
		}
	}
	h.waiting = append(h.waiting, waiting{thread, at})
	if len(h.waiting) > 1 {
		return // the writer knows
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// take returns what waits.
func (h *Heads) take() []waiting {
	h.adding.Lock()
	defer h.adding.Unlock()
	taken := h.waiting
	h.waiting = nil
	return taken
}

// wrote notes how the write of taken went. After a failure they wait again, but for the threads that something newer
// waits for.
func (h *Heads) wrote(taken []waiting, err error) {
	h.adding.Lock()
	defer h.adding.Unlock()
	h.err = err
	if err == nil {
		return
	}
	for _, w := range taken {
		if !slices.ContainsFunc(h.waiting, func(n waiting) bool { return n.thread == w.thread }) {
			h.waiting = append(h.waiting, w)
		}
	}
}

// Sign returns the signed head of that place, or the newest one of the thread when that is not older. It is in the file
// and synced, with all heads given to Add before.
func (h *Heads) Sign(thread record.ThreadID, at record.Head) (record.SignedHead, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.flush(&waiting{thread, at})
}

// Flush returns when all heads given to Add are synced, or with the error that prevents it.
func (h *Heads) Flush() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.flush(nil)
	return err
}

// Err returns why heads are not signed at present: the error of the last write; nil when it went well. It does not wait.
func (h *Heads) Err() error {
	h.adding.Lock()
	defer h.adding.Unlock()
	return h.err
}

// Check says whether the store still holds what was signed last of the thread, if anything was. Another entry in that
// place, or none, is an error wrapping [ErrOtherHead]: the store was changed, or lost what it had acknowledged.
func (h *Heads) Check(thread record.ThreadID) error {
	h.mu.Lock()
	newest, ok := h.newest[thread]
	h.mu.Unlock()
	if !ok {
		return nil
	}
	return h.holds(thread, newest.head)
}

// Newest returns the newest signed head of a thread that is in the file; nil when there is none.
func (h *Heads) Newest(thread record.ThreadID) (*record.SignedHead, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.newest[thread]
	if !ok {
		return nil, nil
	}
	head, err := h.read(p)
	if err != nil {
		return nil, err
	}
	return &head, nil
}

func (h *Heads) read(p place) (record.SignedHead, error) {
	line := make([]byte, p.length)
	if _, err := h.file.ReadAt(line, p.offset); err != nil {
		return record.SignedHead{}, fmt.Errorf("read head %d: %w", p.head.Seq, err)
	}
	head, err := record.ParseHeadLine(line)
	if err != nil {
		return record.SignedHead{}, fmt.Errorf("head at byte %d: %v: %w", p.offset, err, ErrHeadsDamaged)
	}
	return head, nil
}

// Close writes what waits, ends the background writer and closes the file.
func (h *Heads) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	_, err := h.flush(nil)
	h.closed = true
	err = errors.Join(err, h.file.Close())
	h.mu.Unlock()
	close(h.done)
	<-h.ended
	return err
}

// write is the background writer.
func (h *Heads) write() {
	defer close(h.ended)
	for {
		select {
		case <-h.done:
			return
		case <-h.wake:
		}
		for delay := MaxDelay; delay > 0; { // at first for others to join
			select {
			case <-h.done:
				return
			case <-time.After(delay):
			}
			delay = 0
			if err := h.Flush(); err != nil && !errors.Is(err, ErrClosed) {
				h.onError(err)
				delay = RetryDelay
			}
		}
	}
}

// flush signs what waits, then extra, writes the notes in one piece and syncs. The caller holds mu. It returns the
// head of extra. A waiting head that cannot be signed is reported and dropped: it must not stop other threads. After a
// failed write all of them wait again.
func (h *Heads) flush(extra *waiting) (signed record.SignedHead, err error) {
	if h.closed {
		return record.SignedHead{}, ErrClosed
	}
	taken := h.take()
	b := batch{heads: h, last: h.last, newest: make(map[record.ThreadID]fresh)}
	for _, w := range taken {
		if _, err := b.add(w); err != nil {
			h.onError(err)
		}
	}
	if extra != nil {
		signed, err = b.add(*extra)
	}
	if len(b.lines) == 0 {
		return signed, err
	}
	failed := h.append(b.lines)
	h.wrote(taken, failed)
	if failed != nil {
		return record.SignedHead{}, failed
	}
	h.last = b.last
	for thread, n := range b.newest {
		h.newest[thread] = n.place
	}
	return signed, err
}

// append writes lines after the whole ones.
func (h *Heads) append(lines []byte) error {
	if h.Err() != nil {
		if err := errors.Join(h.file.Truncate(h.size), h.file.Sync()); err != nil {
			return fmt.Errorf("cut off what a failed write left of heads: %w", err)
		}
	}
	if _, err := h.file.Write(lines); err != nil {
		return fmt.Errorf("write heads: %w", err)
	}
	if err := h.file.Sync(); err != nil {
		return fmt.Errorf("sync heads: %w", err)
	}
	h.size += int64(len(lines))
	return nil
}

// batch is a piece of the file that is not written yet.
type batch struct {
	heads  *Heads
	lines  []byte
	last   record.Digest
	newest map[record.ThreadID]fresh
}

// fresh is a signed head of a batch with its place.
type fresh struct {
	place
	signed record.SignedHead
}

// add signs one place after what is in the batch, unless that or a later place of the thread is signed already.
func (b *batch) add(w waiting) (record.SignedHead, error) {
	mine, here := b.newest[w.thread]
	old, known := mine.place, here
	if !here {
		old, known = b.heads.newest[w.thread]
	}
	if known {
		if err := b.heads.check(w, old.head); err != nil {
			return record.SignedHead{}, err
		}
	}
	switch {
	case !known || old.head.Seq < w.at.Seq:
	case here:
		return mine.signed, nil
	default:
		return b.heads.read(old)
	}
	signed, err := record.SignHead(b.heads.key, w.thread, w.at, b.last)
	if err != nil {
		return record.SignedHead{}, err
	}
	start := len(b.lines)
	b.lines = signed.AppendLine(b.lines)
	b.newest[w.thread] = fresh{place{offset: b.heads.size + int64(start), length: len(b.lines) - start, head: w.at}, signed}
	b.lines = append(b.lines, '\n')
	b.last = signed.NoteHash()
	return signed, nil
}

// check says whether the thread that w is a place of still holds what was signed of it last.
func (h *Heads) check(w waiting, signed record.Head) error {
	if w.at.Seq != signed.Seq {
		return h.holds(w.thread, signed)
	}
	return same(w.thread, w.at.Hash, signed)
}

// holds says whether the store still holds what was signed of the thread.
func (h *Heads) holds(thread record.ThreadID, signed record.Head) error {
	hash, err := h.hashAt(thread, signed.Seq)
	if err != nil {
		return fmt.Errorf("check signed head %d of %s: %w", signed.Seq, thread, err)
	}
	return same(thread, hash, signed)
}

func same(thread record.ThreadID, hash record.Digest, signed record.Head) error {
	if hash != signed.Hash {
		return fmt.Errorf("entry %d of %s: %w", signed.Seq, thread, ErrOtherHead)
	}
	return nil
}

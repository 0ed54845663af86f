// Package record is the durable memory of a thread: entries that are chained by hash, committed to by signed heads
// and kept by a [Store].
//
// An entry is one line of JSON (docs/formats/record.md). Hashes are over stored bytes; nothing is re-encoded to be
// checked. Every line checks itself, chains to its predecessor and commits to its body by a salted sum, so a body can
// be erased, or withheld from a proof, without breaking the chain. The package does no I/O of its own: bytes come
// from a [Store] or an io.Reader, times and randomness from the caller.
package record

import (
	"context"
	"iter"

	"condensate.dev/cnd/core/fault"
)

// Errors that every Store returns (wrapped).
var (
	// ErrNotFound: no thread, or no blob, of that name.
	ErrNotFound = fault.New(fault.NotFound, "no-such-thread", "no such thread")
	// ErrNoBlob: the store does not hold that blob.
	ErrNoBlob = fault.New(fault.NotFound, "no-such-blob", "no such blob")
	// ErrConflict: the thread's head is not the expected one; nothing was written.
	ErrConflict = fault.New(fault.Conflict, "head-moved", "the thread's head is not the expected one")
	// ErrReadOnly: the thread was imported, or the store has latched after an I/O error; nothing was written.
	ErrReadOnly = fault.New(fault.Unavailable, "store-read-only", "the store takes no more writes until it is opened again")
)

// Store keeps the entries of threads. Implementations must pass recordtest.TestStore.
//
// All methods are safe for concurrent use. Byte slices belong to the caller before and after each call: an
// implementation copies what it keeps.
type Store interface {
	// Append makes entries, and the blobs that they carry, durable as one unit if the thread's head is still expect,
	// then returns the new head. The same bytes at the same place succeed again; another head fails with an error
	// wrapping ErrConflict. For a new thread expect is the zero Head; for a fork (first entry thread.forked) it is
	// the parent's head at the fork, which the store must hold. When Append returns any other error, the entries may
	// or may not be durable: ask again with the same bytes, or read the head.
	Append(ctx context.Context, thread ThreadID, expect Head, entries ...Entry) (Head, error)

	// Entries yields the thread's own entries from seq on, in order, as of the call; an unknown thread yields one
	// error wrapping ErrNotFound. A fork's inherited entries are read with [ReadThrough].
	Entries(ctx context.Context, thread ThreadID, from Seq) iter.Seq2[Entry, error]

	// Head returns the place of the thread's newest entry, or an error wrapping ErrNotFound. While it is undecided
	// whether the entries of a failed Append of this thread become durable, it waits: what it returns holds for good.
	Head(ctx context.Context, thread ThreadID) (Head, error)

	// Blob returns the content with that digest, or an error wrapping ErrNoBlob.
	Blob(ctx context.Context, d Digest) ([]byte, error)
}

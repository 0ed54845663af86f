// Package wire holds what the request builders of all provider formats share. A builder is a pure, versioned function
// from entries to the bytes of a request; the formats are in the packages below this one.
package wire

import (
	"context"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// Errors of builders.
var (
	// ErrUnknownBuilder: the epoch names a builder version that this program does not have.
	ErrUnknownBuilder = fault.New(fault.Invalid, "unknown-builder", "request builder version is not known")
	// ErrUnprovable: an erased body was part of the epoch's requests, so they cannot be rebuilt.
	ErrUnprovable = fault.New(fault.Invalid, "unprovable", "request used an erased entry")
	// ErrHistory: the history cannot be rendered; the message names the entry.
	ErrHistory = fault.New(fault.Invalid, "invalid-history", "history cannot be sent")
)

// Blobs reads content by digest. A record.Store is one.
type Blobs interface {
	Blob(ctx context.Context, d record.Digest) ([]byte, error)
}

// Problem is a block that the provider would refuse, with the repair that the loop must record before the next
// request is built.
type Problem struct {
	Repair thread.HistoryRepaired
	// Sent says that the bytes of the block are written already, in a request of this epoch or with the history that
	// the epoch began with: the repair counts from the next epoch on, so a new one must follow.
	Sent bool
}

// Builder renders one epoch. It is fed every entry of the thread in order and writes the growing part of the request
// body (head and messages, all but the tail) to the writer that it was made with. It is not safe for concurrent use.
//
// An epoch's builder is made from its epoch.started entry and the entries before it (which it renders first, anew);
// then Add takes each entry after it. What it writes depends on the entries alone: never on which problems it knows of,
// so that a later version of the same builder, which may know of more, writes the same bytes.
type Builder interface {
	// Add folds the next entry. It writes nothing that a later entry could change, and it copies what it keeps of the
	// entry.
	Add(ctx context.Context, e record.Entry) error

	// Problems returns what must be repaired before the next request may be built; nil is the normal case.
	Problems() []Problem

	// Close ends the open message: what is pending is written, and a later entry starts a new message. It returns the
	// tail that completes the bytes written so far to a request body. Closing again without a new entry writes
	// nothing and returns the same tail, so a resend has the same bytes. Close must be called exactly where the
	// record has a request.prepared, before that entry is added.
	Close() (Tail, error)
}

// Tail completes a request.
type Tail struct {
	Bytes    []byte // from the end of the last message to the end of the body
	Messages int    // messages in the body
	Blocks   int    // cacheable blocks in the body: tools, system and content
	// Reach says that the end of the epoch's previous request is within the provider's look-back from a cache
	// breakpoint of this one, so that what was cached there can be read. It is false for the first request.
	Reach bool
}

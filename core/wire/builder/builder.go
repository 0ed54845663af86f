// Package builder makes the request builder that an epoch names. It knows every builder version that ever made a
// request; old versions stay, because records are verified with the builder that wrote them.
package builder

import (
	"context"
	"fmt"
	"io"
	"iter"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/anthropic"
)

// Source is what a builder reads of a thread. Entries reads through forks: from seq 0 on it yields the whole history
// of the thread, its ancestors' entries first.
type Source interface {
	Entries(ctx context.Context, from record.Seq) iter.Seq2[record.Entry, error]
	Blob(ctx context.Context, d record.Digest) ([]byte, error)
}

// Known says whether this program has that version of a builder.
func Known(version string) bool { return version == anthropic.Version }

// Open returns the builder of the epoch that starts at the entry epoch, after it has rendered the entries before it:
// what step.undone took away is left out, and every history.repaired before the epoch counts. The growing part of the
// request body goes to w. The source is read at most twice, up to the epoch; what comes after is given to
// [wire.Builder.Add].
//
// The error wraps [wire.ErrUnknownBuilder] for a version that this program does not have and [wire.ErrUnprovable] when
// the body of the epoch or of an amendment is erased.
func Open(ctx context.Context, src Source, epoch record.Entry, w io.Writer) (wire.Builder, error) {
	if epoch.Body == nil {
		return nil, fmt.Errorf("epoch at entry %d is erased: %w", epoch.Seq, wire.ErrUnprovable)
	}
	settings, err := thread.Decode[thread.EpochStarted](epoch)
	if err != nil {
		return nil, err
	}
	if !Known(settings.Builder) {
		return nil, fmt.Errorf("builder %.40q of the epoch at entry %d: %w", settings.Builder, epoch.Seq, wire.ErrUnknownBuilder)
	}
	var amend wire.Amendments
	err = before(ctx, src, epoch.Seq, amend.Add)
	if err != nil {
		return nil, err
	}
	b := anthropic.New(settings, epoch.Seq, &amend, src, w)
	err = before(ctx, src, epoch.Seq, func(e record.Entry) error {
		// A message that is accepted in the undone part and placed after it is still part of the conversation.
		if e.Kind != record.MessageAccepted && amend.Undone(e.Seq) {
			return nil
		}
		return b.Add(ctx, e)
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// before calls f with every entry before seq.
func before(ctx context.Context, src Source, seq record.Seq, f func(record.Entry) error) error {
	if seq == 0 {
		return nil
	}
	for e, err := range src.Entries(ctx, 0) {
		if err != nil {
			return err
		}
		if e.Seq >= seq {
			return nil
		}
		if err := f(e); err != nil {
			return err
		}
	}
	return nil
}

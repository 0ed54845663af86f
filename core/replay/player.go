package replay

import (
	"context"
	"errors"
	"fmt"
	"io"

	"condensate.dev/cnd/core/fingerprint"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/builder"
)

// player drives the builders of a thread's epochs with its entries.
type player struct {
	src Source
	out io.Writer // gets the growing part of the bodies; an epoch's starts anew

	builder     wire.Builder
	settings    thread.EpochStarted
	fingerprint fingerprint.Epoch
	epoch       record.Seq
	broken      error // why the epoch's next requests cannot be rebuilt
}

// errNoEpoch: a request stands before the first epoch.
var errNoEpoch = fmt.Errorf("no epoch has started: %w", wire.ErrHistory)

// add feeds the next entry. An error is one of the source or an unknown builder; what is wrong with the entries
// breaks the epoch instead.
func (p *player) add(ctx context.Context, e record.Entry) error {
	var err error
	switch {
	case e.Kind == record.EpochStarted:
		p.builder, p.settings, p.epoch, p.broken = nil, thread.EpochStarted{}, e.Seq, nil
		if p.builder, err = builder.Open(ctx, p.src, e, p.out); err == nil {
			p.settings, err = thread.Decode[thread.EpochStarted](e)
			p.fingerprint = fingerprint.For(p.settings)
		}
	case p.builder == nil || p.broken != nil:
		return nil
	default:
		err = p.builder.Add(ctx, e)
	}
	if err != nil && isInvalid(err) && !errors.Is(err, wire.ErrUnknownBuilder) {
		p.broken = err
		return nil
	}
	return err
}

// close ends the message and returns the tail of the request that stands here.
func (p *player) close() (wire.Tail, error) {
	switch {
	case p.broken != nil:
		return wire.Tail{}, p.broken
	case p.builder == nil:
		return wire.Tail{}, errNoEpoch
	}
	return p.builder.Close()
}

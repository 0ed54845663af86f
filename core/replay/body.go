package replay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/wire"
)

// Body writes the exact bytes of the request whose request.prepared stands at seq. It writes nothing unless they are
// the recorded ones: otherwise the error is a [*Difference]; or it wraps [ErrNoRequest] or wire.ErrUnprovable.
func Body(ctx context.Context, src Source, seq record.Seq, w io.Writer) error {
	recorded, err := preparedAt(ctx, src, seq)
	if err != nil {
		return err
	}
	sum := running{hash: sha256.New()}
	p, err := rebuild(ctx, src, recorded.epoch, seq, &sum)
	if err != nil {
		if isInvalid(err) && !errors.Is(err, wire.ErrUnprovable) && !errors.Is(err, wire.ErrUnknownBuilder) {
			d := recorded.difference(seq)
			d.Why = err.Error()
			return d
		}
		return fmt.Errorf("rebuild request at entry %d: %w", seq, err)
	}
	body := record.Digest(sum.hash.Sum(nil))
	if fingerprint := p.fingerprint.Of(body); !recorded.is(fingerprint, body, sum.n) {
		d := recorded.difference(seq)
		d.Rebuilt = rebuilt(fingerprint, body, sum.n)
		return d
	}
	_, err = rebuild(ctx, src, recorded.epoch, seq, w)
	return err
}

// rebuildAt writes the bytes that the entries give for the request at seq, whether or not they are the recorded ones.
func rebuildAt(ctx context.Context, src Source, seq record.Seq, w io.Writer) error {
	recorded, err := preparedAt(ctx, src, seq)
	if err != nil {
		return err
	}
	_, err = rebuild(ctx, src, recorded.epoch, seq, w)
	return err
}

// preparedAt reads the request.prepared at seq.
func preparedAt(ctx context.Context, src Source, seq record.Seq) (prepared, error) {
	for e, err := range src.Entries(ctx, seq) {
		switch {
		case err != nil:
			return prepared{}, err
		case e.Seq != seq || e.Kind != record.RequestPrepared:
			return prepared{}, fmt.Errorf("entry %d is %s: %w", e.Seq, e.Kind, ErrNoRequest)
		case e.Body == nil:
			return prepared{}, fmt.Errorf("request at entry %d is erased: %w", seq, wire.ErrUnprovable)
		}
		return decodePrepared(e.Clone())
	}
	return prepared{}, fmt.Errorf("the record ends before entry %d: %w", seq, ErrNoRequest)
}

// rebuild writes the body of the request at seq, which belongs to the epoch at epoch.
func rebuild(ctx context.Context, src Source, epoch, seq record.Seq, w io.Writer) (*player, error) {
	p := &player{src: src, out: w}
	for e, err := range src.Entries(ctx, epoch) {
		if err != nil {
			return nil, err
		}
		if e.Seq == epoch && e.Kind != record.EpochStarted {
			return nil, fmt.Errorf("entry %d is %s, not an epoch: %w", epoch, e.Kind, wire.ErrHistory)
		}
		if e.Seq < seq && e.Kind == record.RequestPrepared {
			if _, err := p.close(); err != nil {
				return nil, err
			}
		}
		if e.Seq < seq {
			if err := p.add(ctx, e); err != nil {
				return nil, err
			}
			continue
		}
		tail, err := p.close()
		if err != nil {
			return nil, err
		}
		_, err = w.Write(tail.Bytes)
		return p, err
	}
	return nil, fmt.Errorf("the record ends before entry %d: %w", seq, ErrNoRequest)
}

// Explain returns the first request from the epoch of the one at seq that does not verify, with the rebuilt bytes
// around the first place that may differ; nil when all of them up to seq verify. It is for the moment in which a
// resend is refused: the recorded bytes are gone, but their hashes bound where they were different.
func Explain(ctx context.Context, src Source, seq record.Seq) (*Difference, error) {
	recorded, err := preparedAt(ctx, src, seq)
	if err != nil {
		return nil, err
	}
	v := NewVerifier(src)
	for e, err := range src.Entries(ctx, recorded.epoch) {
		if err != nil {
			return nil, err
		}
		if err := v.Add(ctx, e); err != nil {
			return nil, err
		}
		if e.Seq >= seq || v.report.First != nil {
			break
		}
	}
	d := v.report.First
	if d == nil || d.Rebuilt.Fingerprint == "" {
		return d, nil
	}
	around := window{from: d.Same - before, to: d.Same + after}
	if _, err := rebuild(ctx, src, d.Epoch, d.Seq, &around); err != nil {
		return nil, err
	}
	d.Around = string(around.kept)
	return d, nil
}

// How many bytes before and after a place are shown.
const (
	before = 40
	after  = 80
)

// window keeps the bytes from offset from to offset to of what is written to it.
type window struct {
	from, to int64
	n        int64
	kept     []byte
}

// Write implements io.Writer.
func (w *window) Write(p []byte) (int, error) {
	from, to := max(w.from-w.n, 0), min(w.to-w.n, int64(len(p)))
	if from < to {
		w.kept = append(w.kept, p[from:to]...)
	}
	w.n += int64(len(p))
	return len(p), nil
}

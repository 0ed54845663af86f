package loop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"iter"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/fingerprint"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/replay"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/builder"
)

// body is the growing part of an epoch's request body, with its hash.
type body struct {
	builder wire.Builder
	bytes   bytes.Buffer
	sum     hash.Hash
}

// Write implements io.Writer for the builder.
func (b *body) Write(p []byte) (int, error) {
	b.sum.Write(p)
	return b.bytes.Write(p)
}

// complete returns the whole request body and its hash.
func (b *body) complete(tail []byte) ([]byte, record.Digest, error) {
	sum, err := b.sum.(hash.Cloner).Clone()
	if err != nil {
		return nil, record.Digest{}, err
	}
	sum.Write(tail)
	whole := make([]byte, 0, b.bytes.Len()+len(tail))
	whole = append(append(whole, b.bytes.Bytes()...), tail...)
	return whole, record.Digest(sum.Sum(nil)), nil
}

// prepare builds the next request, or the same one again, and returns what to append: request.prepared, or what must
// come instead of it. An error is one of the store; the same call may succeed later.
func (m *machine) prepare(ctx context.Context, p *Prepare) ([]Draft, error) {
	if err := m.open(ctx); err != nil {
		m.body = nil
		return m.unbuildable(err)
	}
	if problems := m.body.builder.Problems(); len(problems) > 0 {
		return m.repair(problems), nil
	}
	if p.Refused {
		return m.refused(p.Again), nil
	}
	tail, err := m.body.builder.Close()
	if err != nil {
		m.body = nil
		return m.unbuildable(err)
	}
	whole, sum, err := m.body.complete(tail.Bytes)
	if err != nil {
		return nil, err
	}
	prepared := thread.RequestPrepared{
		Turn: m.state.Turn.ID, Epoch: m.state.Epoch.Seq, Attempt: 1,
		BodySHA256: sum.String(), Fingerprint: fingerprint.Of(m.state.Epoch.EpochStarted, sum).String(),
		BodyBytes: int64(len(whole)), Messages: tail.Messages, Blocks: tail.Blocks,
	}
	if again := p.Again; again != nil {
		if prepared.Fingerprint != again.Fingerprint {
			m.body = nil // it was closed where the record has no request
			return drifted(m.state.Turn, again, prepared, replay.Drift(ctx, source{m}, again.Seq, whole)), nil
		}
		prepared.Attempt, prepared.First = again.Attempt+1, again.first()
	}
	m.bytes, m.live.Held = whole, true
	return []Draft{{Kind: record.RequestPrepared, Body: prepared}}, nil
}

// refused ends the turn of a request that the provider calls invalid although nothing in it is known to need repair.
func (m *machine) refused(r *Prepared) []Draft {
	return fail(m.state.Turn, fault.Invalid, "provider-refused",
		fmt.Sprintf("the provider refused request %d: %s", r.Seq, sentence(r.Aborted)),
		fmt.Sprintf("cnd-replay requests %s --seq %d prints what was sent", m.state.Thread, r.Seq)).Append
}

// drifted refuses to send a request whose bytes are not the recorded ones.
func drifted(t *Turn, recorded *Prepared, rebuilt thread.RequestPrepared, where string) []Draft {
	return wait(t, thread.TurnWaiting{Reason: thread.WaitResume, Detail: fmt.Sprintf(
		"request %d cannot be sent again: recorded fingerprint %s (%d bytes), rebuilt %s (%d bytes); %s",
		recorded.first(), recorded.Fingerprint, recorded.BodyBytes, rebuilt.Fingerprint, rebuilt.BodyBytes, where)}).Append
}

// repair records how the history is rendered from here on. What was sent before cannot change within its epoch.
func (m *machine) repair(problems []wire.Problem) []Draft {
	t := m.state.Turn
	if t.Repairs+len(problems) > MaxRepairs {
		return fail(t, fault.Invalid, "history-broken", fmt.Sprintf("more than %d blocks of the history need repair; entry %d: %s",
			MaxRepairs, problems[0].Repair.Target, problems[0].Repair.Why), "").Append
	}
	var drafts []Draft
	sent := false
	for _, p := range problems {
		drafts = append(drafts, Draft{Kind: record.HistoryRepaired, Body: p.Repair})
		sent = sent || p.Sent
	}
	if sent {
		epoch := m.state.Epoch.EpochStarted
		epoch.Reason, epoch.CacheTokensLost = thread.EpochRepair, m.state.Epoch.Cached
		drafts = append(drafts, Draft{Kind: record.EpochStarted, Body: epoch})
	}
	return drafts
}

// unbuildable decides what an error of the builder means for the turn.
func (m *machine) unbuildable(err error) ([]Draft, error) {
	t := m.state.Turn
	switch {
	case errors.Is(err, wire.ErrUnknownBuilder):
		return wait(t, thread.TurnWaiting{Reason: thread.WaitResume, Detail: err.Error()}).Append, nil
	case errors.Is(err, wire.ErrHistory), errors.Is(err, wire.ErrUnprovable), errors.Is(err, record.ErrInvalidEntry):
		f := fault.Find(err)
		return fail(t, f.Class, f.Code, err.Error(), fault.HintOf(err)).Append, nil
	}
	return nil, err
}

// open makes the builder of the newest epoch and feeds it everything up to the newest entry.
func (m *machine) open(ctx context.Context) error {
	if m.body != nil {
		return nil
	}
	b := &body{sum: sha256.New()}
	var err error
	src := source{m}
	if b.builder, err = m.options.builder()(ctx, src, m.epoch, b); err != nil {
		return err
	}
	m.body = b
	for e, err := range src.Entries(ctx, m.epoch.Seq+1) {
		if err != nil {
			return err
		}
		if err := b.add(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// feed gives the builder an entry that was just applied. If it fails, the next request builds anew and says why.
func (m *machine) feed(ctx context.Context, e record.Entry) {
	if e.Kind == record.EpochStarted {
		m.epoch, m.body = e, nil
	}
	if m.body != nil && m.body.add(ctx, e) != nil {
		m.body = nil
	}
}

// add closes the open message exactly where the record has a request.
func (b *body) add(ctx context.Context, e record.Entry) error {
	if e.Kind == record.RequestPrepared {
		if _, err := b.builder.Close(); err != nil {
			return err
		}
	}
	return b.builder.Add(ctx, e)
}

// source is the record as the builder reads it: what the store holds and what is about to be appended.
type source struct{ m *machine }

var _ builder.Source = source{}

func (s source) Entries(ctx context.Context, from record.Seq) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		if base := s.m.base; !base.Hash.IsZero() && from <= base.Seq {
			for e, err := range record.ReadThrough(ctx, s.m.ports.Store, s.m.state.Thread, from) {
				if err == nil && e.Seq > base.Seq {
					break // the batch, durable although its append failed
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
		for _, e := range s.m.batch {
			if e.Seq >= from && !yield(e, nil) {
				return
			}
		}
	}
}

func (s source) Blob(ctx context.Context, d record.Digest) ([]byte, error) {
	for _, e := range s.m.batch {
		for _, b := range e.Blobs {
			if b.Digest == d {
				return b.Data, nil
			}
		}
	}
	return s.m.ports.Store.Blob(ctx, d)
}

package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
)

var (
	// errGone says that the client does not take messages any more.
	errGone = errors.New("the client is gone")
	errGap  = fault.New(fault.Corrupt, "entry-missing", "the store lacks an entry of the thread")
)

// pageBytes bounds the entries that are read from the store before they are sent, so that no iterator of the store
// waits for a client. A page has one entry at least.
const pageBytes = 256 << 10

// follower is one stream. Its run is the only one that sends.
type follower struct {
	hub    *Hub
	id     record.ThreadID
	topic  *topic
	deltas bool
	woken  chan struct{} // capacity 1: something is pending
	next   record.Seq    // owned by run: seq of the next entry to send

	// Guarded by hub.mu: what is to be sent beside entries, in this order. A new follower is collapsed: what it missed
	// of a running attempt comes as a snapshot.
	owed      bool // a reset, since run has taken deltas of an attempt that is over
	owedAt    record.Seq
	queue     []queued
	queueSize int
	collapsed bool // a snapshot takes the place of the queue
	taken     bool // run has taken deltas or a snapshot since the last reset
}

// queued is a delta and the seq before which all entries go first.
type queued struct {
	delta loop.Delta
	at    record.Seq
}

func (f *follower) wake() {
	select {
	case f.woken <- struct{}{}:
	default:
	}
}

// push queues a delta. The caller holds hub.mu.
func (f *follower) push(d loop.Delta) {
	if !f.deltas || f.collapsed {
		return
	}
	f.queue = append(f.queue, queued{d, f.topic.next})
	f.queueSize += len(d.Text) + partOverhead
	if f.queueSize > MaxQueue {
		f.clear()
		f.collapsed = true
	}
	f.wake()
}

// reset forgets what was not sent and owes a reset for what was. The caller holds hub.mu.
func (f *follower) reset() {
	f.clear()
	f.collapsed = false
	if f.taken {
		f.owed, f.owedAt, f.taken = true, f.topic.next, false
		f.wake()
	}
}

func (f *follower) clear() { f.queue, f.queueSize = nil, 0 }

// pending is a message that is not an entry, and the seq before which all entries go first.
type pending struct {
	message message
	at      record.Seq
}

// take returns what is to be sent now, and the seq after the newest entry.
func (f *follower) take() ([]pending, record.Seq) {
	f.hub.mu.Lock()
	owed, owedAt, queue := f.owed, f.owedAt, f.queue
	var shown *snapshot
	if f.collapsed && f.topic.running != nil {
		s := f.topic.running.snapshot()
		shown = &s
	}
	f.taken = f.taken || shown != nil || len(queue) > 0
	f.owed, f.collapsed = false, false
	f.clear()
	next := f.topic.next
	f.hub.mu.Unlock()

	var out []pending
	if owed {
		out = append(out, pending{resetMessage(), owedAt})
	}
	if shown != nil {
		out = append(out, pending{snapshotMessage(*shown), next})
	}
	for _, q := range queue {
		out = append(out, pending{deltaMessage(q.delta), q.at})
	}
	return out, next
}

// leave ends the subscription.
func (f *follower) leave() {
	h := f.hub
	h.mu.Lock()
	delete(f.topic.followers, f)
	h.followers--
	h.drop(f.id, f.topic)
	h.mu.Unlock()
	h.streams.Done()
}

// run sends until ctx ends, the hub closes (ErrClosed), the client is gone (errGone) or an entry cannot be read. A
// heartbeat follows the entries that the thread has: from there on the stream is live.
func (f *follower) run(ctx context.Context, send func(message) error) error {
	heartbeat := time.NewTimer(f.hub.options.Heartbeat)
	defer heartbeat.Stop()
	emit := func(m message) error {
		if err := f.stopped(ctx); err != nil {
			return err
		}
		heartbeat.Reset(f.hub.options.Heartbeat)
		if err := send(m); err != nil {
			return fmt.Errorf("%w: %w", errGone, err)
		}
		return nil
	}
	for live := false; ; {
		if err := f.flush(ctx, emit); err != nil {
			return err
		}
		if !live {
			live = true
			if err := emit(f.heartbeat()); err != nil {
				return err
			}
		}
		select {
		case <-f.woken:
		case <-heartbeat.C:
			if err := emit(f.heartbeat()); err != nil {
				return err
			}
		case <-ctx.Done():
		case <-f.hub.closing:
		}
		if err := f.stopped(ctx); err != nil {
			return err
		}
	}
}

// stopped returns why the stream ends, or nil.
func (f *follower) stopped(ctx context.Context) error {
	select {
	case <-f.hub.closing:
		return ErrClosed
	default:
		return context.Cause(ctx)
	}
}

// heartbeat tells the client what it has. A thread has an entry, so a follower that is live has one too.
func (f *follower) heartbeat() message { return heartbeatMessage(f.next - 1) }

// flush sends all that is pending.
func (f *follower) flush(ctx context.Context, emit func(message) error) error {
	ephemeral, next := f.take()
	for _, p := range ephemeral {
		if err := f.sendEntries(ctx, p.at, emit); err != nil {
			return err
		}
		if err := emit(p.message); err != nil {
			return err
		}
	}
	return f.sendEntries(ctx, next, emit)
}

// sendEntries sends the entries from f.next up to, not including, until.
func (f *follower) sendEntries(ctx context.Context, until record.Seq, emit func(message) error) error {
	for f.next < until {
		page, err := f.page(ctx, until)
		for _, e := range page {
			if err := emit(entryMessage(e)); err != nil {
				return err
			}
			f.next = e.Seq + 1
		}
		if err != nil {
			return fmt.Errorf("follow %s: %w", f.id, err)
		}
	}
	return nil
}

// page reads entries from f.next on, and returns those before an error too. It reads none from until on, since a store
// may show entries that are not durable.
func (f *follower) page(ctx context.Context, until record.Seq) (page []record.Entry, err error) {
	size, next := 0, f.next
	for e, err := range record.ReadThrough(ctx, f.hub.store, f.id, f.next) {
		if err != nil {
			return page, err
		}
		if e.Seq != next {
			return page, fmt.Errorf("entry %d stands where %d should: %w", e.Seq, next, errGap)
		}
		page = append(page, e)
		size += len(e.Line)
		next++
		if next == until || size >= pageBytes {
			return page, nil
		}
	}
	return page, fmt.Errorf("entry %d is not there: %w", next, errGap)
}

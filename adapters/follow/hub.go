// Package follow streams threads to their followers over WebSocket and SSE: every entry once and in order from any
// seq on, and the deltas of running answers.
//
// The [Hub] never queues entries. It tells followers that the head of a thread has moved, and each one reads from the
// store what it has not sent yet, so that there is no gap and no duplicate and a slow client costs no memory. Deltas
// are ephemeral: each follower has a bounded queue of them, and when it overflows (or the follower comes late) the
// queue collapses into one snapshot of the running attempt. Nothing here waits for a client except that client's own
// goroutine; one that does not read is dropped after [WriteTimeout].
package follow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
)

// Limits of followers.
const (
	// HeartbeatInterval is how long a stream is silent at most.
	HeartbeatInterval = 15 * time.Second
	// WriteTimeout is how long a client may take to accept one message. After it the client is dropped.
	WriteTimeout = 20 * time.Second
	// CloseGrace is how long a write may still take when the hub closes.
	CloseGrace = time.Second
	// MaxFollowers is how many streams are open at once. One more is refused with ErrTooMany.
	MaxFollowers = 1000
	// MaxQueue bounds the deltas that wait for one follower, in bytes of text and overhead. Beyond it they collapse.
	MaxQueue = 64 << 10
)

// Refusals.
var (
	ErrTooMany = fault.New(fault.Unavailable, "too-many-followers", "too many streams are open")
	ErrClosed  = fault.New(fault.Unavailable, "shutting-down", "the runtime is shutting down")
	ErrBeyond  = fault.New(fault.Conflict, "after-beyond-head", "the thread has no entry of that seq yet")
)

// Options replace the limits of the package where they are not zero.
type Options struct {
	Heartbeat    time.Duration
	MaxFollowers int
}

// Hub connects the loop with the followers of its threads. It is safe for concurrent use.
type Hub struct {
	store   record.Store
	options Options
	closing chan struct{} // closed by Close: streams end in an orderly way
	forced  context.Context
	force   context.CancelFunc // called after CloseGrace: writes that hang are cut off
	streams sync.WaitGroup

	mu        sync.Mutex // guards all below and the followers; held for bounded work only, never for I/O
	closed    bool
	followers int
	topics    map[record.ThreadID]*topic // of threads that are followed or that stream
}

// topic is a thread as the hub sees it.
type topic struct {
	next      record.Seq // seq after the newest entry known to be durable
	running   *attempt   // nil when nothing streams
	followers map[*follower]struct{}
}

var _ loop.Follower = (*Hub)(nil)

// NewHub returns a hub over the store that the loop appends to.
func NewHub(store record.Store, o Options) *Hub {
	if o.Heartbeat == 0 {
		o.Heartbeat = HeartbeatInterval
	}
	if o.MaxFollowers == 0 {
		o.MaxFollowers = MaxFollowers
	}
	h := &Hub{store: store, options: o, closing: make(chan struct{}), topics: map[record.ThreadID]*topic{}}
	h.forced, h.force = context.WithCancel(context.Background())
	return h
}

// Close ends all streams and returns when they have ended, within some seconds. Further ones are refused. Entries that
// were announced before may not have been sent: clients go on from their last seq.
func (h *Hub) Close() {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.closing)
	}
	h.mu.Unlock()
	grace := time.AfterFunc(CloseGrace, h.force)
	h.streams.Wait()
	grace.Stop()
	h.force()
}

// Appended implements [loop.Follower].
func (h *Hub) Appended(id record.ThreadID, entries []record.Entry) {
	if len(entries) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[id]
	if t == nil {
		return
	}
	t.next = max(t.next, entries[len(entries)-1].Seq+1)
	if t.running != nil {
		t.settle(entries)
	}
	for f := range t.followers {
		f.wake()
	}
	h.drop(id, t)
}

// settle forgets what streamed where entries have replaced it.
func (t *topic) settle(entries []record.Entry) {
	for _, e := range entries {
		switch e.Kind {
		case record.ToolFinished, record.ToolUnknown:
			t.running.dropCall(callOf(e.Body))
		case record.RequestPrepared, record.TurnFinished:
			t.running.parts, t.running.size = nil, 0
		}
	}
	if len(t.running.parts) == 0 {
		t.running = nil
	}
}

// callOf reads the call of a tool's entry, which stands at the front of the body, without decoding what the tool put
// out.
func callOf(body []byte) string {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.Token() // the brace
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return ""
		}
		var field json.RawMessage
		if dec.Decode(&field) != nil {
			return ""
		}
		if key == "call" {
			return strings.Trim(string(field), `"`)
		}
	}
	return ""
}

// Streamed implements [loop.Follower].
func (h *Hub) Streamed(id record.ThreadID, d loop.Delta) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topic(id)
	if t.running == nil || t.running.request != d.Request || t.running.number != d.Attempt {
		t.running = &attempt{request: d.Request, number: d.Attempt}
	}
	t.running.add(d)
	for f := range t.followers {
		f.push(d)
	}
}

// Reset implements [loop.Follower].
func (h *Hub) Reset(id record.ThreadID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[id]
	if t == nil {
		return
	}
	t.running = nil
	for f := range t.followers {
		f.reset()
	}
	h.drop(id, t)
}

// topic returns the topic of a thread, which it makes when there is none. The caller holds mu.
func (h *Hub) topic(id record.ThreadID) *topic {
	t := h.topics[id]
	if t == nil {
		t = &topic{followers: map[*follower]struct{}{}}
		h.topics[id] = t
	}
	return t
}

// drop forgets a topic that nobody needs. The caller holds mu.
func (h *Hub) drop(id record.ThreadID, t *topic) {
	if len(t.followers) == 0 && t.running == nil {
		delete(h.topics, id)
	}
}

// subscribe adds a follower that has every entry before from. The caller must call leave.
func (h *Hub) subscribe(ctx context.Context, id record.ThreadID, from record.Seq, deltas bool) (*follower, error) {
	f := &follower{hub: h, id: id, next: from, deltas: deltas, woken: make(chan struct{}, 1), collapsed: deltas}
	if err := h.join(f); err != nil {
		return nil, err
	}
	// Only now is the head read: what is appended from here on is told.
	head, err := h.store.Head(ctx, id)
	if err == nil && from > head.Next() {
		err = fault.WithHint(ErrBeyond, fmt.Sprintf("the newest entry is %d; follow from the start to see what the thread holds", head.Seq))
	}
	if err != nil {
		f.leave()
		return nil, fmt.Errorf("follow %s: %w", id, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f.topic.next = max(f.topic.next, head.Next())
	return f, nil
}

func (h *Hub) join(f *follower) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return ErrClosed
	case h.followers == h.options.MaxFollowers:
		return fault.WithHint(ErrTooMany, fmt.Sprintf("%d are; close some", h.followers))
	}
	h.followers++
	h.streams.Add(1)
	f.topic = h.topic(f.id)
	f.topic.followers[f] = struct{}{}
	return nil
}

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

// Times and limits of a stream.
const (
	// StallTimeout is how long a stream may be silent. It is three heartbeats of the runtime: a stream without them is
	// dead even when its connection looks alive.
	StallTimeout = 45 * time.Second
	// MaxMessage is the longest message of a stream: an entry's line and its envelope.
	MaxMessage = record.MaxLine + 4<<10
	// FirstRetry is the first wait before a new connection; it doubles up to LastRetry.
	FirstRetry = 100 * time.Millisecond
	LastRetry  = 5 * time.Second
)

// ErrDiverged: the entry that the runtime sent does not follow the one before it.
var ErrDiverged = fault.New(fault.Corrupt, "record-diverged", "the entry does not follow the one that was received before")

// FollowOptions say what to follow. The zero value follows the entries from the start, over one connection.
type FollowOptions struct {
	// From is the seq of the first entry wanted: the last one received plus 1.
	From record.Seq
	// Deltas asks for what running answers and tools show before it is durable.
	Deltas bool
	// Reconnect goes on after a lost connection, from the entry after the last one received, for as long as ctx lives.
	// Refusals still end the stream.
	Reconnect bool
	// Lost, if set, hears of each connection that was lost and will be tried again.
	Lost func(err error)
}

// Follow yields what happens in the thread, each entry once and in order, until ctx ends, the caller stops or an error
// is yielded last. Entries are checked to be one chain: each is hashed and names the hash of the one before. Deltas
// come between entries and may be replaced at any time by a snapshot or a reset.
func (c *Client) Follow(ctx context.Context, id record.ThreadID, o FollowOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s := &stream{client: c, id: id, o: o, next: o.From, yield: yield}
		wait := FirstRetry
		for {
			got := s.received
			err := s.once(ctx)
			switch {
			case errors.Is(err, errStopped):
				return
			case ctx.Err() != nil:
				yield(Event{}, context.Cause(ctx))
				return
			case !o.Reconnect || !temporary(err):
				yield(Event{}, err)
				return
			}
			if o.Lost != nil {
				o.Lost(err)
			}
			if s.shown {
				s.shown = false
				if !yield(resetEvent, nil) {
					return
				}
			}
			if s.received != got {
				wait = FirstRetry
			}
			if !sleep(ctx, wait) {
				yield(Event{}, context.Cause(ctx))
				return
			}
			wait = min(2*wait, LastRetry)
		}
	}
}

// temporary says whether the same call may succeed later.
func temporary(err error) bool { return fault.ClassOf(err) == fault.Unavailable }

// sleep waits and says whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// errStopped says that the caller wants no more events.
var errStopped = errors.New("stopped")

// stream is the state that outlives a connection.
type stream struct {
	client   *Client
	id       record.ThreadID
	o        FollowOptions
	yield    func(Event, error) bool
	next     record.Seq    // seq of the next entry
	last     record.Digest // hash of the entry before it; zero when unknown
	shown    bool          // deltas were yielded that no reset has ended
	received uint64        // messages
}

// once follows over one connection and returns why it ended.
func (s *stream) once(ctx context.Context) error {
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	conn.SetReadLimit(MaxMessage)
	for {
		text, err := s.read(ctx, conn)
		if err != nil {
			return err
		}
		s.received++
		e, err := parseEvent(text)
		if err != nil {
			return err
		}
		if err := s.take(e); err != nil {
			return err
		}
	}
}

func (s *stream) dial(ctx context.Context) (*websocket.Conn, error) {
	at, err := s.client.locate()
	if err != nil {
		return nil, err
	}
	query := after(s.next)
	if s.o.Deltas {
		query += map[bool]string{true: "?", false: "&"}[query == ""] + "deltas=1"
	}
	deadline, cancel := context.WithTimeout(ctx, StallTimeout)
	defer cancel()
	conn, answer, err := websocket.Dial(deadline, "ws://"+at.addr+threadPath(s.id, "/follow"+query), &websocket.DialOptions{
		HTTPClient: s.client.http,
		HTTPHeader: http.Header{"Authorization": {"Bearer " + at.key}},
	})
	switch {
	case err == nil:
		return conn, nil
	case answer != nil && answer.StatusCode != http.StatusSwitchingProtocols:
		return nil, s.client.refusal(answer)
	default:
		return nil, lost(ctx, at.addr, err)
	}
}

// read returns the next message. Silence is a lost connection.
func (s *stream) read(ctx context.Context, conn *websocket.Conn) ([]byte, error) {
	deadline, cancel := context.WithTimeout(ctx, StallTimeout)
	defer cancel()
	_, text, err := conn.Read(deadline)
	switch {
	case err == nil:
		return text, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case deadline.Err() != nil:
		return nil, streamLost(fmt.Sprintf("no message for %s", StallTimeout))
	case websocket.CloseStatus(err) == websocket.StatusGoingAway:
		return nil, streamLost("the runtime is shutting down")
	case errors.Is(err, websocket.ErrMessageTooBig):
		return nil, strange(fmt.Sprintf("a message of the stream is over %d bytes", MaxMessage))
	case errors.Is(err, io.EOF):
		return nil, streamLost("the connection broke")
	default:
		return nil, streamLost(err.Error())
	}
}

func streamLost(why string) error {
	return fault.New(fault.Unavailable, "stream-lost", "the stream ended: "+why)
}

// take checks an event and hands it on.
func (s *stream) take(e Event) error {
	switch e.Type {
	case EventEntry:
		if e.Seq != s.next || (!s.last.IsZero() && e.Entry.Prev != s.last) {
			return fmt.Errorf("entry %d of %s after entry %d: %w", e.Seq, s.id, int64(s.next)-1, ErrDiverged)
		}
		s.next, s.last = e.Seq+1, e.Entry.Hash
	case EventHeartbeat:
		if e.Seq+1 != s.next {
			return fmt.Errorf("heartbeat of %s names entry %d, the last one received is %d: %w", s.id, e.Seq, int64(s.next)-1, ErrDiverged)
		}
	case EventDelta, EventSnapshot:
		s.shown = true
	case EventReset:
		s.shown = false
	}
	if !s.yield(e, nil) {
		return errStopped
	}
	return nil
}

package follow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

// RetryAfter is how long an SSE client waits before it connects again.
const RetryAfter = time.Second

// Serve streams the thread to the client until one of them ends it: as WebSocket when the request asks for the
// upgrade, else as SSE. Parameters are after (the last seq that the client has; absent: from the start) and deltas (0
// or 1); for SSE the header Last-Event-ID goes before after. It returns an error only when nothing was written.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, id record.ThreadID) error {
	from, deltas, err := parameters(r)
	if err != nil {
		return err
	}
	f, err := h.subscribe(r.Context(), id, from, deltas)
	if err != nil {
		return err
	}
	defer f.leave()
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		h.serveWebSocket(w, r, f)
	} else {
		h.serveEvents(w, r, f)
	}
	return nil
}

// parameters returns the first seq that the client wants and whether it wants deltas.
func parameters(r *http.Request) (from record.Seq, deltas bool, err error) {
	after := ""
	for name, values := range r.URL.Query() {
		switch {
		case len(values) != 1:
			return 0, false, malformed("parameter %q stands there twice", name)
		case name == "after":
			after = values[0]
			if after == "" {
				return 0, false, malformed("after: the seq of an entry is needed")
			}
		case name == "deltas" && (values[0] == "0" || values[0] == "1"):
			deltas = values[0] == "1"
		case name == "deltas":
			return 0, false, malformed("deltas: 0 or 1 is needed")
		default:
			return 0, false, malformed("unknown parameter %.80q; it takes after, deltas", name)
		}
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		after = last
	}
	if after == "" {
		return 0, deltas, nil
	}
	seq, err := strconv.ParseUint(after, 10, 53)
	if err != nil {
		return 0, false, malformed("after: %.80q is not the seq of an entry", after)
	}
	return record.Seq(seq) + 1, deltas, nil
}

func malformed(format string, args ...any) error {
	return fault.New(fault.Invalid, "malformed-request", "URL: "+fmt.Sprintf(format, args...))
}

// serveWebSocket sends each message as one text message. The client sends nothing.
func (h *Hub) serveWebSocket(w http.ResponseWriter, r *http.Request, f *follower) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	defer conn.CloseNow()
	ctx, end := context.WithCancel(h.forced)
	defer end()
	go func() {
		defer end()
		if _, _, err := conn.Reader(ctx); err == nil {
			conn.Close(websocket.StatusPolicyViolation, "the stream takes no messages")
		}
	}()
	send := func(m message) error {
		ctx, cancel := context.WithTimeout(ctx, WriteTimeout)
		defer cancel()
		return conn.Write(ctx, websocket.MessageText, m.data)
	}
	err = f.run(ctx, send)
	switch {
	case errors.Is(err, ErrClosed):
		conn.Close(websocket.StatusGoingAway, ErrClosed.Message)
	case ctx.Err() == nil && !errors.Is(err, errGone):
		if send(errorMessage(err)) == nil {
			conn.Close(websocket.StatusInternalError, fault.Find(err).Code)
		}
	}
}

// serveEvents sends each message as one event; entries have their seq as id.
func (h *Hub) serveEvents(w http.ResponseWriter, r *http.Request, f *follower) {
	rc := http.NewResponseController(w)
	stop := context.AfterFunc(h.forced, func() { rc.SetWriteDeadline(time.Now()) })
	defer stop()
	write := func(event []byte) error {
		if err := rc.SetWriteDeadline(time.Now().Add(WriteTimeout)); err != nil {
			return err
		}
		if _, err := w.Write(event); err != nil {
			return err
		}
		return rc.Flush()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if write(fmt.Appendf(nil, "retry: %d\n\n", RetryAfter.Milliseconds())) != nil {
		return
	}
	err := f.run(r.Context(), func(m message) error { return write(event(m)) })
	if r.Context().Err() == nil && !errors.Is(err, errGone) && !errors.Is(err, ErrClosed) {
		write(event(errorMessage(err))) // the last one: whether it arrives changes nothing
	}
}

// event is the form of a message in an SSE stream.
func event(m message) []byte {
	b := make([]byte, 0, len(m.data)+64)
	if m.kind == typeEntry {
		b = fmt.Appendf(b, "id: %d\n", m.seq)
	}
	b = fmt.Appendf(b, "event: %s\ndata: ", m.kind)
	b = append(b, m.data...)
	return append(b, "\n\n"...)
}

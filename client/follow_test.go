package client_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/internal/pipenet"
)

const testThread = record.ThreadID("thr_00000000000000000000000001")

func newThread(t *testing.T, r *runtime, notes int) record.ThreadID {
	t.Helper()
	id := testThread
	_, err := r.Create(t.Context(), loop.NewThread{ID: id, Created: thread.Created{Cwd: "/work"}})
	require.NoError(t, err)
	for range notes {
		r.note(t, id, "note")
	}
	return id
}

// TestFollowGoesOnAcrossRestarts stops and starts the runtime again and again, each time on another port, while entries
// are appended, also while it is down. The client misses none and gets none twice.
func TestFollowGoesOnAcrossRestarts(t *testing.T) {
	r := startRuntime(t)
	id := newThread(t, r, 3)
	configDir, dataDir := r.folders(t)
	c := client.Open(configDir, dataDir)
	t.Cleanup(c.CloseIdle)
	const entries = 80
	rng := rand.New(rand.NewPCG(1, 1))
	stops, losses := 0, 0
	var lines []string
	stopped := make(chan struct{}, 1)
	stop := func() {
		r.stop()
		stopped <- struct{}{}
	}
	o := client.FollowOptions{Reconnect: true, Lost: func(err error) {
		require.Equal(t, fault.Unavailable, fault.ClassOf(err), "%v", err)
		losses++
		if len(r.lines(t, id)) < entries {
			r.note(t, id, "while it was down")
		}
		r.addr = "127.0.0.1:0"
		<-stopped
		require.NoError(t, r.start())
		r.publish(t, dataDir)
	}}
	for e, err := range c.Follow(t.Context(), id, o) {
		require.NoError(t, err)
		if e.Type == client.EventEntry {
			lines = append(lines, string(e.Entry.Line))
			require.Equal(t, `{"v":0,"type":"entry","entry":`+string(e.Entry.Line)+`}`, string(e.JSON))
		}
		if len(lines) == entries {
			break
		}
		if len(r.lines(t, id)) < entries {
			r.note(t, id, "live")
		}
		if rng.IntN(6) == 0 && stops == losses {
			stops++
			go stop()
		}
	}
	require.Equal(t, r.lines(t, id), lines)
	require.Greater(t, losses, 1)
	if stops > losses {
		<-stopped
		require.NoError(t, r.start())
	}
}

// TestFollowEndsWithoutReconnect reports the loss as the last thing.
func TestFollowEndsWithoutReconnect(t *testing.T) {
	r := startRuntime(t)
	id := newThread(t, r, 1)
	var last error
	for e, err := range r.client(t).Follow(t.Context(), id, client.FollowOptions{From: 1}) {
		last = err
		if e.Type == client.EventHeartbeat {
			go r.hub.Close()
		}
	}
	require.ErrorContains(t, last, "shutting down")
	require.Equal(t, fault.Unavailable, fault.ClassOf(last))
}

// TestRefusalsEndAFollow does not try again what will not become right.
func TestRefusalsEndAFollow(t *testing.T) {
	r := startRuntime(t)
	id := newThread(t, r, 1)
	for _, c := range []struct {
		client *client.Client
		id     record.ThreadID
		from   record.Seq
		class  fault.Class
	}{
		{r.client(t), "thr_00000000000000000000000009", 0, fault.NotFound},
		{r.client(t), id, 9, fault.Conflict},
		{client.New(r.addr, "wrong"), id, 0, fault.Unauthenticated},
	} {
		var errs []error
		for _, err := range c.client.Follow(t.Context(), c.id, client.FollowOptions{From: c.from, Reconnect: true}) {
			errs = append(errs, err)
		}
		require.Len(t, errs, 1)
		require.Equal(t, c.class, fault.ClassOf(errs[0]))
	}
}

// TestFollowShowsDeltas hands on deltas and snapshots, and voids them when their connection is lost.
func TestFollowShowsDeltas(t *testing.T) {
	r := startRuntime(t)
	id := newThread(t, r, 0)
	configDir, dataDir := r.folders(t)
	c := client.Open(configDir, dataDir)
	t.Cleanup(c.CloseIdle)
	r.hub.Streamed(id, loop.Delta{Request: 1, Attempt: 1, Kind: "text", Text: "be"})
	var events []client.Event
	stopped := make(chan struct{})
	o := client.FollowOptions{Deltas: true, Reconnect: true, Lost: func(error) {
		<-stopped
		r.addr = "127.0.0.1:0"
		require.NoError(t, r.start())
		r.publish(t, dataDir)
	}}
	for e, err := range c.Follow(t.Context(), id, o) {
		require.NoError(t, err)
		if e.Type != client.EventHeartbeat {
			events = append(events, e)
		}
		switch e.Type {
		case client.EventSnapshot:
			r.hub.Streamed(id, loop.Delta{Request: 1, Attempt: 1, Offset: 2, Kind: "text", Text: "gin"})
		case client.EventDelta:
			go func() {
				r.stop()
				close(stopped)
			}()
		}
		if e.Type == client.EventReset {
			break
		}
	}
	require.Len(t, events, 4)
	require.Equal(t, client.EventEntry, events[0].Type)
	require.Equal(t, client.Snapshot{Request: 1, Attempt: 1, Parts: []client.Part{{Kind: "text", Text: "be"}}}, events[1].Snapshot)
	require.Equal(t, loop.Delta{Request: 1, Attempt: 1, Offset: 2, Kind: "text", Text: "gin"}, events[2].Delta)
	require.Equal(t, `{"v":0,"type":"reset"}`, string(events[3].JSON))
}

// script answers each follow with the next list of messages, then closes the connection; a silent one stays open, but
// for the last.
func script(t *testing.T, streams ...[]string) *client.Client {
	t.Helper()
	server := httptest.NewServer(scriptHandler(t, false, streams...))
	t.Cleanup(server.Close)
	c := client.New(server.Listener.Addr().String(), testKey)
	t.Cleanup(c.CloseIdle)
	return c
}

func scriptHandler(t *testing.T, silent bool, streams ...[]string) http.Handler {
	var connections atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(connections.Add(1))
		if n > len(streams) {
			http.Error(w, `{"error":{"class":"not_found","code":"end-of-script","message":"there is no further stream"}}`, http.StatusNotFound)
			return
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		for _, m := range streams[n-1] {
			if conn.Write(context.Background(), websocket.MessageText, []byte(m)) != nil {
				return // the client has heard enough
			}
		}
		if silent && n < len(streams) {
			conn.Read(context.Background()) // until the client gives up
			return
		}
		conn.Close(websocket.StatusGoingAway, "")
	})
}

// entryMessages returns the messages of a thread of n entries whose texts start with text.
func entryMessages(t *testing.T, n int, text string) (messages []string) {
	t.Helper()
	r := newRuntime()
	require.NoError(t, r.start())
	defer r.stop()
	id := newThread(t, r, 0)
	for range n - 1 {
		r.note(t, id, text)
	}
	for _, line := range r.lines(t, id) {
		messages = append(messages, `{"v":0,"type":"entry","entry":`+line+`}`)
	}
	return messages
}

// TestFollowRefusesAnotherHistory ends when the runtime comes back with a record that is not the one before: a gap, a
// repeated entry, other entries, less than was there.
func TestFollowRefusesAnotherHistory(t *testing.T) {
	one, other := entryMessages(t, 5, "one"), entryMessages(t, 5, "other")
	for name, streams := range map[string][][]string{
		"late start":         {one[1:]},
		"gap":                {{one[0], one[2]}},
		"repeated":           {{one[0], one[1], one[1]}},
		"other":              {{one[0], one[1], other[2]}},
		"other on reconnect": {one[:2], other[2:]},
		"heartbeat ahead":    {{one[0], `{"v":0,"type":"heartbeat","seq":3}`}},
		"heartbeat behind":   {one[:3], {`{"v":0,"type":"heartbeat","seq":1}`}},
	} {
		t.Run(name, func(t *testing.T) {
			var last error
			for _, err := range script(t, streams...).Follow(t.Context(), testThread, client.FollowOptions{Reconnect: true}) {
				last = err
			}
			require.ErrorIs(t, last, client.ErrDiverged)
		})
	}
}

// TestFollowChecksMessages refuses what does not speak the protocol, names an error that ends the stream, and passes
// over types that it does not know.
func TestFollowChecksMessages(t *testing.T) {
	one := entryMessages(t, 1, "")
	for name, c := range map[string]struct {
		message, want string
	}{
		"no json":       {`hello`, "strange-answer"},
		"no version":    {`{"type":"heartbeat","seq":0}`, "strange-answer"},
		"later version": {`{"v":1,"type":"heartbeat","seq":0}`, "strange-answer"},
		"edited entry":  {strings.Replace(one[0], "/work", "/home", 1), "invalid-entry"},
		"error":         {`{"v":0,"type":"error","error":{"class":"corrupt","code":"record-damaged","message":"entry 3"}}`, "record-damaged"},
		"unknown type":  {`{"v":0,"type":"weather","sun":true}`, "stream-lost"},
	} {
		t.Run(name, func(t *testing.T) {
			var last error
			for _, err := range script(t, []string{c.message}).Follow(t.Context(), testThread, client.FollowOptions{}) {
				last = err
			}
			require.Equal(t, c.want, fault.Find(last).Code, "%v", last)
		})
	}
}

// TestFollowLeavesADeadStream gives up a connection that is open but silent, and goes on over a new one.
func TestFollowLeavesADeadStream(t *testing.T) {
	one := entryMessages(t, 4, "one")
	synctest.Test(t, func(t *testing.T) {
		p := pipenet.Listen()
		server := &http.Server{Handler: scriptHandler(t, true, one[:2], one[2:])}
		go server.Serve(p)
		defer server.Close()
		c := client.New("runtime:1", testKey)
		c.DialWith(p.Dial)
		defer c.CloseIdle()

		n, start := 0, time.Now()
		var lost error
		for e, err := range c.Follow(t.Context(), testThread, client.FollowOptions{Reconnect: true, Lost: func(err error) { lost = err }}) {
			require.NoError(t, err)
			require.Equal(t, record.Seq(n), e.Seq)
			if n++; n == 4 {
				break
			}
		}
		require.ErrorContains(t, lost, "no message for 45s")
		require.Equal(t, client.StallTimeout+client.FirstRetry, time.Since(start))
	})
}

// TestFollowEndsWithItsContext yields the context's error, also while it waits to connect again.
func TestFollowEndsWithItsContext(t *testing.T) {
	r := startRuntime(t)
	id := newThread(t, r, 0)
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	for e, err := range r.client(t).Follow(ctx, id, client.FollowOptions{Reconnect: true}) {
		last = err
		if e.Type == client.EventHeartbeat {
			cancel()
		}
	}
	require.ErrorIs(t, last, context.Canceled)

	ctx, cancel = context.WithCancel(t.Context())
	down := client.New("127.0.0.1:1", testKey)
	for _, err := range down.Follow(ctx, id, client.FollowOptions{Reconnect: true, Lost: func(error) { cancel() }}) {
		last = err
	}
	require.ErrorIs(t, last, context.Canceled)
}

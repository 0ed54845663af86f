package follow

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/internal/pipenet"
)

// serve serves the bed's first thread on loopback; the errors of Serve come as "class code".
func (b *bed) serve() *httptest.Server {
	b.t.Helper()
	server := httptest.NewServer(b.handler())
	b.t.Cleanup(server.Close)
	b.t.Cleanup(b.hub.Close)
	return server
}

func (b *bed) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { b.ended <- r.URL.RawQuery }()
		if err := b.hub.Serve(w, r, threadN(1)); err != nil {
			f := fault.Find(err)
			http.Error(w, f.Class.String()+" "+f.Code+" "+err.Error(), http.StatusTeapot)
		}
	})
}

// events reads an SSE stream until it ends, or until enough says so.
func events(t *testing.T, body io.Reader, s *seen, enough func() bool) {
	t.Helper()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 8<<20)
	var m message
	id := ""
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			id = text
		case "event":
			m.kind = text
		case "data":
			m.data = []byte(text)
		case "retry":
			require.Equal(t, "1000", text)
			m.kind = "retry"
		case "":
			if m.kind == "retry" {
				m, id = message{}, ""
				continue
			}
			require.Equal(t, m.kind == "entry", id != "", "entries, and only they, have an id")
			if id != "" {
				seq, err := strconv.ParseUint(id, 10, 64)
				require.NoError(t, err)
				m.seq = record.Seq(seq)
			}
			s.take(t, m)
			m, id = message{}, ""
			if enough() {
				return
			}
		default:
			t.Fatalf("line %q", lines.Text())
		}
	}
}

func get(t *testing.T, url, lastEventID string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if lastEventID != "" {
		r.Header.Set("Last-Event-ID", lastEventID)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	t.Cleanup(func() { answer.Body.Close(); http.DefaultClient.CloseIdleConnections() })
	return answer
}

func never() bool { return false }

// TestEventStream reads entries by SSE, breaks off, goes on by Last-Event-ID and ends with the hub.
func TestEventStream(t *testing.T) {
	b := newBed(t, Options{})
	b.create(threadN(1), 6)
	server := b.serve()

	answer := get(t, server.URL+"/?after=0", "")
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	s := &seen{}
	events(t, answer.Body, s, func() bool { return len(s.lines) == 2 })
	answer.Body.Close()
	require.Equal(t, b.lines(threadN(1))[1:3], s.lines)

	answer = get(t, server.URL+"/?after=0&deltas=1", "2")
	s = &seen{}
	events(t, answer.Body, s, func() bool { return len(s.beats) == 1 })
	require.Equal(t, b.lines(threadN(1))[3:], s.lines, "Last-Event-ID goes before after")
	b.hub.Streamed(threadN(1), text(6, 1, "live <&>"))
	events(t, answer.Body, s, func() bool { return s.shown["text"] == "live <&>" })

	go b.hub.Close()
	events(t, answer.Body, s, never) // returns at the clean end of the stream
}

func dial(t *testing.T, server *httptest.Server, query string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), server.URL+"/"+query, nil)
	require.NoError(t, err)
	conn.SetReadLimit(8 << 20)
	t.Cleanup(func() { conn.CloseNow() })
	return conn
}

// read takes one message of a WebSocket.
func (s *seen) read(t *testing.T, conn *websocket.Conn) error {
	t.Helper()
	_, data, err := conn.Read(t.Context())
	if err != nil {
		return err
	}
	m := message{data: data}
	for _, kind := range []string{typeEntry, typeDelta, typeSnapshot, typeReset, typeHeartbeat, typeError} {
		if strings.HasPrefix(string(data), `{"v":0,"type":"`+kind+`"`) {
			m.kind = kind
		}
	}
	if m.kind == typeEntry {
		e, err := record.Parse([]byte(strings.TrimSuffix(strings.TrimPrefix(string(data), `{"v":0,"type":"entry","entry":`), "}")))
		require.NoError(t, err)
		m.seq = e.Seq
	}
	s.take(t, m)
	return nil
}

// TestWebSocket reads entries, deltas and heartbeats, and is closed with 1001 when the hub ends.
func TestWebSocket(t *testing.T) {
	b := newBed(t, Options{Heartbeat: 5 * time.Millisecond})
	b.create(threadN(1), 4)
	server := b.serve()
	conn, s := dial(t, server, "?after=1&deltas=1"), &seen{}
	for len(s.beats) < 3 {
		require.NoError(t, s.read(t, conn))
	}
	require.Equal(t, b.lines(threadN(1))[2:], s.lines)
	b.hub.Streamed(threadN(1), text(3, 1, "live"))
	for s.shown["text"] != "live" {
		require.NoError(t, s.read(t, conn))
	}
	go b.hub.Close()
	var err error
	for err == nil {
		err = s.read(t, conn)
	}
	require.Equal(t, websocket.StatusGoingAway, websocket.CloseStatus(err), "%v", err)
}

// TestWebSocketClientSaysNothing closes a client that sends messages.
func TestWebSocketClientSaysNothing(t *testing.T) {
	b := newBed(t, Options{})
	b.create(threadN(1), 1)
	conn, s := dial(t, b.serve(), ""), &seen{}
	require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte("hello")))
	var err error
	for err == nil {
		err = s.read(t, conn)
	}
	require.Equal(t, websocket.StatusPolicyViolation, websocket.CloseStatus(err), "%v", err)
}

// TestClientThatDoesNotReadIsDropped has a client that takes the beginning of its stream and then nothing. It is cut off
// after the write timeout; another one gets everything without waiting for that.
func TestClientThatDoesNotReadIsDropped(t *testing.T) {
	for name, header := range map[string]string{
		"sse": "", "websocket": "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, Options{})
				b.create(threadN(1), 1)
				p := pipenet.Listen()
				server := &http.Server{Handler: b.handler()}
				go server.Serve(p)
				defer server.Close()
				defer b.hub.Close()

				silent, err := p.Dial(t.Context(), "", "")
				require.NoError(t, err)
				defer silent.Close()
				_, err = io.WriteString(silent, "GET /?deltas=1 HTTP/1.1\r\nHost: h\r\n"+header+"\r\n")
				require.NoError(t, err)
				_, err = http.ReadResponse(bufio.NewReader(silent), nil)
				require.NoError(t, err)

				transport := &http.Transport{DialContext: p.Dial}
				defer transport.CloseIdleConnections()
				reader, _, err := websocket.Dial(t.Context(), "ws://h/", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
				require.NoError(t, err)
				defer reader.CloseNow()
				s, start := &seen{}, time.Now()
				for range 20 {
					b.note(threadN(1), "entry")
				}
				for len(s.lines) < 21 {
					require.NoError(t, s.read(t, reader))
				}
				require.Zero(t, time.Since(start), "nobody waits for the silent client")
				go func() {
					for s.read(t, reader) == nil {
					}
				}()
				require.Equal(t, "deltas=1", <-b.ended, "the stream ends while its client is still there")
				require.Equal(t, WriteTimeout, time.Since(start))
			})
		})
	}
}

// TestBrokenThreadIsTold ends a stream whose thread cannot be read with an error that names why.
func TestBrokenThreadIsTold(t *testing.T) {
	b := newBed(t, Options{})
	b.create(threadN(1), 3)
	b.hub.store = &poisonStore{b.store, threadN(1), func() error {
		return fault.WithHint(fmt.Errorf("read entry 1: %w", fault.New(fault.Corrupt, "record-damaged", "damaged")), "cnd-replay verify")
	}}
	server := b.serve()
	const want = `{"v":0,"type":"error","error":{"class":"corrupt","code":"record-damaged",` +
		`"message":"follow thr_00000000000000000000000001: read entry 1: damaged","hint":"cnd-replay verify"}}`

	conn := dial(t, server, "")
	_, data, err := conn.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, string(data))
	_, _, err = conn.Read(t.Context())
	require.Equal(t, websocket.StatusInternalError, websocket.CloseStatus(err), "%v", err)

	body, err := io.ReadAll(get(t, server.URL, "").Body)
	require.NoError(t, err)
	require.Equal(t, "retry: 1000\n\nevent: error\ndata: "+want+"\n\n", string(body))
}

// TestManyClients has many followers of both kinds at once; each gets every entry once and in order.
func TestManyClients(t *testing.T) {
	b := newBed(t, Options{})
	b.create(threadN(1), 3)
	server := b.serve()
	const clients, entries = 24, 60
	var ready, done sync.WaitGroup
	all := make([]*seen, clients)
	for n := range clients {
		s := &seen{}
		all[n] = s
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			if n%2 == 0 {
				conn := dial(t, server, "?deltas=1")
				ready.Done()
				for len(s.lines) < entries {
					if err := s.read(t, conn); err != nil {
						t.Error(err)
						return
					}
				}
				return
			}
			answer := get(t, server.URL+"/?deltas=0", "")
			ready.Done()
			events(t, answer.Body, s, func() bool { return len(s.lines) == entries })
			answer.Body.Close()
		}()
	}
	ready.Wait()
	for n := range entries - 3 {
		b.hub.Streamed(threadN(1), text(1, 1, "delta"))
		b.note(threadN(1), strings.Repeat("n", n*20))
	}
	done.Wait()
	want := b.lines(threadN(1))
	for n, s := range all {
		require.Equal(t, want, s.lines, "client %d", n)
	}
}

// TestParameters refuses what it does not understand, by name, before a stream starts.
func TestParameters(t *testing.T) {
	b := newBed(t, Options{})
	b.create(threadN(1), 2)
	server := b.serve()
	for query, want := range map[string]string{
		"?after=x":                `after: "x" is not the seq`,
		"?after=":                 "after: the seq of an entry is needed",
		"?after=-1":               "is not the seq",
		"?after=9007199254740992": "is not the seq",
		"?after=1&after=2":        `"after" stands there twice`,
		"?deltas=yes":             "deltas: 0 or 1",
		"?since=1":                `unknown parameter "since"`,
		"?after=2":                "conflict after-beyond-head",
	} {
		answer := get(t, server.URL+"/"+query, "")
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusTeapot, answer.StatusCode, query)
		require.Contains(t, string(text), want)
	}
	answer := get(t, server.URL+"/", "what")
	require.Equal(t, http.StatusTeapot, answer.StatusCode)
}

// TestCloseWhileClientsCome leaves no stream behind, whenever it happens.
func TestCloseWhileClientsCome(t *testing.T) {
	for range 30 {
		b := newBed(t, Options{})
		b.create(threadN(1), 2)
		var streams sync.WaitGroup
		for range 8 {
			streams.Go(func() {
				f, err := b.hub.subscribe(context.Background(), threadN(1), 0, true)
				if err == nil {
					err = f.run(context.Background(), func(message) error { return nil })
					f.leave()
				}
				if !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			})
		}
		b.hub.Close()
		streams.Wait()
		require.Zero(t, b.hub.followers)
	}
}

package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/internal/pipenet"
)

// servePipes serves the bed in a bubble and returns a connection to it.
func (b *bed) servePipes() net.Conn {
	p := pipenet.Listen()
	server := &http.Server{Handler: New(b.options)}
	go server.Serve(p)
	b.t.Cleanup(func() { server.Close() })
	conn, err := p.Dial(b.t.Context(), "", "")
	require.NoError(b.t, err)
	b.t.Cleanup(func() { conn.Close() })
	return conn
}

// TestSilentClientLosesItsConnection sends half a request and then nothing. The answer comes, and the connection ends,
// within the named times, with or without a key.
func TestSilentClientLosesItsConnection(t *testing.T) {
	path := "/v1/threads/" + string(threadN(1)) + "/messages"
	for _, c := range []struct {
		name, path, key, contentType string
		status                       int
	}{
		{"message", path, testKey, "application/json", 400},
		{"import", "/v1/import", testKey, "application/x-ndjson", 400},
		{"no key", path, "none", "application/json", 401},
		{"wrong type", path, testKey, "text/plain", 415},
		{"no route", "/v1/nothing", testKey, "application/json", 404},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				conn := b.servePipes()
				start := time.Now()
				go fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: 100\r\n\r\n{\"half",
					c.path, testAddr, c.key, c.contentType)
				answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
				require.NoError(t, err)
				require.Equal(t, c.status, answer.StatusCode)
				if c.status != 400 {
					require.Zero(t, time.Since(start), "what is wrong is known without the body")
				}
				_, err = io.Copy(io.Discard, conn)
				require.NoError(t, err)
				require.Less(t, time.Since(start), BodyTimeout+StallTimeout)
				require.Empty(t, b.asked)
			})
		})
	}
}

// slowHost takes an hour for a message.
type slowHost struct{ Host }

func (slowHost) Submit(ctx context.Context, _ record.ThreadID, _ loop.Message) (loop.Receipt, error) {
	select {
	case <-time.After(time.Hour):
		return loop.Receipt{Seq: 9, State: loop.ReceiptAccepted}, nil
	case <-ctx.Done():
		return loop.Receipt{}, ctx.Err()
	}
}

// TestTimesOfBodiesDoNotEndWork lets the runtime take longer for a request than a client may take for a body.
func TestTimesOfBodiesDoNotEndWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.options.Host = slowHost{b}
		b.options.Import = func(ctx context.Context, r io.Reader) (Imported, error) {
			if _, err := io.ReadAll(r); err != nil {
				return Imported{}, err
			}
			_, err := r.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF, "asking again changes nothing")
			_, err = slowHost{}.Submit(ctx, "", loop.Message{})
			return Imported{Thread: threadN(1)}, err
		}
		conn := b.servePipes()
		answers := bufio.NewReader(conn)
		for _, c := range []struct {
			path, contentType, body string
			status                  int
		}{
			{"/v1/threads/" + string(threadN(1)) + "/messages", "application/json", `{"content":"hi"}`, 202},
			{"/v1/import", "application/x-ndjson", "line\n", 201},
		} {
			r, err := http.NewRequest("POST", "http://"+testAddr+c.path, strings.NewReader(c.body))
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer "+testKey)
			r.Header.Set("Content-Type", c.contentType)
			go r.Write(conn)
			answer, err := http.ReadResponse(answers, r)
			require.NoError(t, err)
			text, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.Equal(t, c.status, answer.StatusCode, "%s", text)
		}
	})
}

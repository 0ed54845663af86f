package lifecycle

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
)

// A request in flight when the daemon is told to stop is answered; a new one is not taken.
func TestServeDrains(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	entered, release := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		io.WriteString(w, "answered")
	})
	ctx, cancel := context.WithCancel(t.Context())
	ready, stopping, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, h, slog.New(slog.DiscardHandler), func() error { close(ready); return nil }, func() { close(stopping) })
	}()
	<-ready

	answer := make(chan string, 1)
	go func() {
		resp, err := http.Get("http://" + l.Addr().String())
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answer <- string(body)
	}()
	<-entered
	cancel()
	<-stopping
	_, err = net.Dial("tcp", l.Addr().String())
	require.Error(t, err, "a stopping daemon takes no new connection")
	close(release)
	require.Equal(t, "answered", <-answer)
	require.NoError(t, <-done)
	http.DefaultClient.CloseIdleConnections()
}

// Listening where somebody listens is worth a retry.
func TestListenInUse(t *testing.T) {
	l, err := Listen("127.0.0.1:0", "")
	require.NoError(t, err)
	defer l.Close()
	_, err = Listen(l.Addr().String(), "pick another")
	require.Equal(t, fault.Unavailable, fault.ClassOf(err))
	require.Equal(t, "address-in-use", fault.Find(err).Code)
	require.Equal(t, "pick another", fault.HintOf(err))
}

// What the server says, here of a handler that panics, is a line of the tool's own log.
func TestServeLogs(t *testing.T) {
	l, err := Listen("127.0.0.1:0", "")
	require.NoError(t, err)
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("sentinel") }), log, nil, nil)
	}()
	_, err = http.Get("http://" + l.Addr().String())
	require.Error(t, err)
	cancel()
	require.NoError(t, <-done)
	require.Regexp(t, `^\{.*"level":"WARN","msg":".*sentinel`, out.String())
	http.DefaultClient.CloseIdleConnections()
}

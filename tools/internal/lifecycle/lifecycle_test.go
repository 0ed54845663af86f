package lifecycle

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
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
		done <- Serve(ctx, l, h, func() error { close(ready); return nil }, func() { close(stopping) })
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

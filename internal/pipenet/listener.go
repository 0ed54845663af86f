// Package pipenet is a network in memory for tests in a testing/synctest bubble: its connections are net.Pipe, so time
// can be waited for without waiting. Nothing is buffered: a write returns when it is read.
package pipenet

import (
	"context"
	"net"
)

// Listener is a net.Listener whose connections come from Dial. It is safe for concurrent use.
type Listener struct {
	conns chan net.Conn
	done  chan struct{}
}

// Listen returns a listener. It must be closed once.
func Listen() *Listener { return &Listener{make(chan net.Conn), make(chan struct{})} }

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error { close(l.done); return nil }

// Addr implements net.Listener: a loopback address, so that whoever checks a Host has one.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4785} }

// Dial returns the client's end of a new connection. Its form is that of http.Transport.DialContext.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

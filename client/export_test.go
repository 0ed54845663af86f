package client

import (
	"context"
	"net"
	"net/http"
)

// DialWith has c make its connections with dial.
func (c *Client) DialWith(dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	c.http.Transport.(*http.Transport).DialContext = dial
}

// Package client is the Go SDK of the runtime's API (docs/API.md). The command line is its first user.
//
//	c := client.Open(configDir, dataDir)
//	id, err := c.NewThread(ctx, client.NewThread{Cwd: "/srv/site"})
//	receipt, err := c.Send(ctx, id, client.Message{Content: client.Text("fix the build")})
//	for event, err := range c.Follow(ctx, id, client.FollowOptions{Reconnect: true}) { … }
//
// Failures are *fault.Error values with the class, code and hint that the runtime gave, so that a program can go by
// errors.As and a tool exits with the same code as if it had done the work itself. Two codes of class unavailable are
// made here: runtime-unreachable (nothing was sent) and answer-lost (the runtime may have done it: send the same ids
// again, it is done once).
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"condensate.dev/cnd/core/fault"
)

// Names of the files through which a runtime is found.
const (
	// KeyFile holds the bearer key, in the configuration folder.
	KeyFile = "runtime.key"
	// AddressFile holds {"addr":"127.0.0.1:4785","pid":N} of the running runtime, in the data folder.
	AddressFile = "runtime.json"
)

// DialTimeout bounds the time in which a runtime must accept a connection.
const DialTimeout = 5 * time.Second

// MaxAnswer is the largest JSON answer that is read, in bytes.
const MaxAnswer = 64 << 20

// Client talks to one runtime. It is safe for concurrent use and needs no closing.
type Client struct {
	locate  func() (place, error)
	keyFile string // "" when the caller gave the key itself
	http    *http.Client
}

// place is where a runtime listens and the key that it takes.
type place struct{ addr, key string }

// New returns a client of the runtime at addr ("127.0.0.1:4785") that takes key.
func New(addr, key string) *Client {
	return newClient(func() (place, error) { return place{addr, key}, nil })
}

// Open returns a client of the runtime that uses these folders. Both files are read again for each call, so that the
// client survives a restart of the runtime on another port.
func Open(configDir, dataDir string) *Client {
	keyFile := filepath.Join(configDir, KeyFile)
	c := newClient(func() (place, error) {
		var file struct{ Addr string }
		text, err := os.ReadFile(filepath.Join(dataDir, AddressFile))
		if err == nil {
			err = json.Unmarshal(text, &file)
		}
		if err != nil || file.Addr == "" {
			return place{}, unreachable(fmt.Sprintf("no runtime has left its address in %s", dataDir))
		}
		key, err := os.ReadFile(keyFile)
		if err != nil {
			return place{}, fault.WithHint(fault.New(fault.Unauthenticated, "no-key", "read the runtime's key: "+err.Error()),
				keyHint(err))
		}
		return place{file.Addr, strings.TrimSpace(string(key))}, nil
	})
	c.keyFile = keyFile
	return c
}

func keyHint(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "only the owner of the runtime can read its key"
	}
	return "cnd-runtime serve makes the key at its first start"
}

func newClient(locate func() (place, error)) *Client {
	return &Client{
		locate: locate,
		http: &http.Client{
			Transport: &http.Transport{
				Proxy:               nil, // the runtime is local, and the key is for nobody else
				DialContext:         (&net.Dialer{Timeout: DialTimeout}).DialContext,
				MaxIdleConnsPerHost: 4,
				IdleConnTimeout:     time.Minute,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// CloseIdle closes connections that are kept for later calls.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// Media types of bodies.
const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"
)

// do sends a request and returns the answer when its status is 2xx, else the fault in it. The caller closes the body.
func (c *Client) do(ctx context.Context, method, path, contentType string, body io.Reader) (*http.Response, error) {
	answer, err := c.send(ctx, method, path, contentType, body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode/100 != 2 {
		defer answer.Body.Close()
		return nil, c.refusal(answer)
	}
	return answer, nil
}

// send sends a request and returns the answer, whatever its status. The caller closes the body.
func (c *Client) send(ctx context.Context, method, path, contentType string, body io.Reader) (*http.Response, error) {
	at, err := c.locate()
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+at.addr+path, body)
	if err != nil {
		return nil, fault.New(fault.Config, "bad-address", err.Error())
	}
	r.Header.Set("Authorization", "Bearer "+at.key)
	if body != nil {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, lost(ctx, at.addr, err)
	}
	return answer, nil
}

// call sends in as JSON (nil: no body) and decodes the answer into out.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fault.New(fault.Invalid, "malformed-request", err.Error())
		}
		body = bytes.NewReader(text)
	}
	answer, err := c.do(ctx, method, path, typeJSON, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return decode(ctx, answer, out)
}

// decode reads the answer into out.
func decode(ctx context.Context, answer *http.Response, out any) error {
	text, err := io.ReadAll(io.LimitReader(answer.Body, MaxAnswer))
	if err != nil {
		return lost(ctx, answer.Request.URL.Host, err)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return strange(fmt.Sprintf("%s answered %s with something else than the runtime's API: %v", answer.Request.URL.Host, answer.Status, err))
	}
	return nil
}

// Package anthropic sends requests of the built-in loop to a provider that speaks Anthropic's Messages API and reads
// the streamed answer.
//
// The body is posted as it is, with the epoch's pinned headers and the account's credential; nothing else of a request
// comes from here but the user agent. An answer's content blocks are rebuilt token for token as the provider would have
// sent them without streaming: signatures, encrypted parts, escapes and the spelling of numbers survive. A request is
// sent once: nothing is retried, no redirect is followed, no proxy of the environment is used. The credential appears
// in no error and no log; over plain http it goes to this machine only.
package anthropic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/thread"
)

// Limits of waiting; a request that exceeds one fails with the cause network.
const (
	// ConnectTimeout bounds connecting, TLS included.
	ConnectTimeout = 20 * time.Second
	// DefaultHeaderTimeout bounds the time from the last byte of the request to the first byte of the answer.
	DefaultHeaderTimeout = 5 * time.Minute
	// DefaultIdleTimeout bounds the time between two bytes of a stream; providers send pings in between.
	DefaultIdleTimeout = 2 * time.Minute
	// lingerTimeout bounds the wait for the end of a stream whose answer is complete, so that its connection can be
	// used again.
	lingerTimeout = 250 * time.Millisecond
)

// UserAgent is sent unless the epoch pins another one.
const UserAgent = "condensate-cnd/0"

// Options configure a Client.
type Options struct {
	// Dial maps the origin of a logical URL ("https://api.anthropic.com") to the base URL that is contacted instead
	// ("http://127.0.0.1:4789"). An origin that is not listed is contacted itself.
	Dial map[string]string
	// Key returns the credential of an account. Its errors must not contain it.
	Key func(account string) (string, error)
	// Now is the clock that a Retry-After counts from; nil means time.Now.
	Now func() time.Time
	// HeaderTimeout and IdleTimeout replace the defaults when they are not 0.
	HeaderTimeout, IdleTimeout time.Duration
}

// Client implements [loop.Model]. It is safe for concurrent use and keeps idle connections until Close.
type Client struct {
	options   Options
	transport *http.Transport
	http      *http.Client
}

var _ loop.Model = (*Client)(nil)

// New returns a client.
func New(o Options) *Client {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.HeaderTimeout == 0 {
		o.HeaderTimeout = DefaultHeaderTimeout
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = DefaultIdleTimeout
	}
	transport := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: ConnectTimeout}).DialContext,
		TLSHandshakeTimeout:    ConnectTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // a compressed stream may be held back
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 256 << 10,
	}
	return &Client{
		options:   o,
		transport: transport,
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close drops the idle connections. Requests under way are not touched.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Reasons why a request was given up, as causes of its context.
var (
	errNoAnswer = errors.New("no answer in time")
	errSilence  = errors.New("the stream fell silent")
	errLinger   = errors.New("the answer is complete")
)

// Send implements [loop.Model]. deltas gets text, thinking, and for a tool call its name and a space, its input as it
// is written, and a newline.
func (c *Client) Send(ctx context.Context, r loop.Request, deltas func(kind, text string)) (loop.Answer, error) {
	key, err := c.options.Key(r.Epoch.Account)
	if key = strings.TrimSpace(key); err != nil || key == "" || strings.ContainsFunc(key, unicode.IsControl) {
		return loop.Answer{}, &loop.ModelError{Cause: thread.CauseAuth, Detail: "no usable credential for " + r.Epoch.Account}
	}
	a := &assembly{deltas: deltas, limit: MaxAnswer}
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	failure := c.exchange(watched, cancel, r, key, a)
	if failure == nil {
		return a.answer, nil
	}
	if ctx.Err() != nil {
		failure = a.broken(thread.CauseInterrupt, "the request was stopped")
	}
	failure.Detail = sentence(failure.Detail, key)
	return loop.Answer{}, failure
}

// exchange sends the request and reads the answer into a. cancel ends ctx with a reason.
func (c *Client) exchange(ctx context.Context, cancel context.CancelCauseFunc, r loop.Request, key string, a *assembly) *loop.ModelError {
	req, err := c.request(ctx, r, key)
	if err != nil {
		return a.broken(thread.CauseInvalid, err.Error())
	}
	patience := time.AfterFunc(c.options.HeaderTimeout, func() { cancel(errNoAnswer) })
	resp, err := c.http.Do(req)
	patience.Stop()
	if err != nil {
		return a.broken(thread.CauseNetwork, reason(ctx, err))
	}
	defer resp.Body.Close()
	silence := time.AfterFunc(c.options.IdleTimeout, func() { cancel(errSilence) })
	defer silence.Stop()
	body := &watchedBody{r: resp.Body, timer: silence, limit: c.options.IdleTimeout}
	a.answer.ProviderRequestID = sentence(resp.Header.Get("request-id"), key)
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(body, maxErrorBody))
		failure := a.broken(causeOfStatus(resp.StatusCode), describe(resp.StatusCode, text))
		failure.RetryAt = retryAt(failure.Cause, resp.Header, c.options.Now())
		return failure
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "text/event-stream" {
		return a.broken(thread.CauseMalformed, fmt.Sprintf("the answer is %q, not an event stream", media))
	}
	if failure := c.stream(ctx, body, resp.Header, a); failure != nil {
		return failure
	}
	linger := time.AfterFunc(lingerTimeout, func() { cancel(errLinger) })
	defer linger.Stop()
	io.CopyN(io.Discard, body, 4<<10)
	return nil
}

// stream reads the events of a 200.
func (c *Client) stream(ctx context.Context, body io.Reader, header http.Header, a *assembly) *loop.ModelError {
	err := a.read(body)
	var said *apiError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said):
		failure := a.broken(said.cause(), said.Error())
		failure.RetryAt = retryAt(failure.Cause, header, c.options.Now())
		return failure
	case errors.Is(err, errMalformed):
		return a.broken(thread.CauseMalformed, err.Error())
	case errors.Is(err, io.EOF):
		return a.broken(thread.CauseNetwork, "the stream ended before the answer was complete")
	default:
		return a.broken(thread.CauseNetwork, reason(ctx, err))
	}
}

// request builds the HTTP request for the place where the logical URL is dialled.
func (c *Client) request(ctx context.Context, r loop.Request, key string) (*http.Request, error) {
	target, err := c.target(r.Epoch.URL)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, r.Epoch.Method, target, bytes.NewReader(r.Body))
	if err != nil {
		return nil, errors.New("method or URL of the epoch is not valid")
	}
	req.Header.Set("User-Agent", UserAgent)
	for _, pinned := range r.Epoch.Headers {
		req.Header.Set(pinned[0], pinned[1])
	}
	req.Header.Set("X-Api-Key", key)
	return req, nil
}

// target returns where a logical URL is dialled.
func (c *Client) target(logical string) (string, error) {
	u, err := url.Parse(logical)
	if err != nil || u.Host == "" || u.User != nil {
		return "", errors.New("URL of the epoch is not valid")
	}
	if base, ok := c.options.Dial[u.Scheme+"://"+u.Host]; ok {
		to, err := url.Parse(base)
		if err != nil || to.Host == "" || to.User != nil {
			return "", fmt.Errorf("dial address of %s://%s is not a valid URL", u.Scheme, u.Host)
		}
		u.Scheme, u.Host = to.Scheme, to.Host
		u.Path = strings.TrimSuffix(to.Path, "/") + u.Path
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return "", fmt.Errorf("a credential is not sent to %s://%s: only https, or http to this machine", u.Scheme, u.Host)
	}
	return u.String(), nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// reason says in one sentence why an exchange broke.
func reason(ctx context.Context, err error) string {
	if cause := context.Cause(ctx); cause != nil {
		return cause.Error()
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return err.Error()
}

// watchedBody resets a timer with every byte that arrives.
type watchedBody struct {
	r     io.Reader
	timer *time.Timer
	limit time.Duration
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.timer.Reset(b.limit)
	return n, err
}

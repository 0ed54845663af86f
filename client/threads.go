package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// NewThread is what a client decides of a new thread; the runtime's configuration decides the rest.
type NewThread struct {
	ID      record.ThreadID `json:"id,omitempty"` // "" to have one made; the same id and content again is answered as before
	Title   string          `json:"title,omitempty"`
	Cwd     string          `json:"cwd"` // absolute path of the thread's folder
	Model   string          `json:"model,omitempty"`
	Account string          `json:"account,omitempty"`
	Allow   []string        `json:"allow,omitempty"`  // tools that need no approval
	Resume  string          `json:"resume,omitempty"` // "auto" (default) or "ask"
}

// Message is what to say to an agent.
type Message struct {
	ID      string    `json:"id"`             // "msg_…"; "" to have one made. The same id and content again is accepted once
	Mode    string    `json:"mode,omitempty"` // one of the modes of package thread; "" is queue
	Content []Content `json:"content"`
}

// Content is a block of a message; make it with [Text] or [Image].
type Content struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	MediaType string `json:"media_type,omitempty"`
	Data      []byte `json:"data,omitempty"` // base64 in JSON
}

// Text returns the content of a message that is only text.
func Text(s string) []Content { return []Content{{Type: "text", Text: s}} }

// Image returns a block with an image: image/png, image/jpeg, image/gif or image/webp, at most loop.MaxImage bytes.
func Image(mediaType string, data []byte) Content {
	return Content{Type: "image", MediaType: mediaType, Data: data}
}

// Imported is what an import stored.
type Imported struct {
	ID   record.ThreadID `json:"id"`
	Seq  record.Seq      `json:"seq"` // of the newest entry
	Hash string          `json:"hash"`
}

// Health is the state of the runtime.
type Health struct {
	Ready     bool   `json:"ready"`
	Version   string `json:"version"`
	Isolation string `json:"isolation"`
	Reason    string `json:"reason,omitempty"` // why it is not ready
}

// NewMessageID returns a new id for a message.
func NewMessageID() string { return newID(record.PrefixMessage) }

func newID(prefix string) string {
	id, err := record.NewID(prefix, time.Now(), rand.Reader)
	if err != nil {
		panic("client: no entropy: " + err.Error()) // crypto/rand does not fail
	}
	return id
}

func threadPath(id record.ThreadID, below string) string {
	return "/v1/threads/" + url.PathEscape(string(id)) + below
}

// NewThread makes a thread and returns its id.
func (c *Client) NewThread(ctx context.Context, n NewThread) (record.ThreadID, error) {
	if n.ID == "" {
		n.ID = record.ThreadID(newID(record.PrefixThread))
	}
	var made struct{ ID record.ThreadID }
	err := c.call(ctx, http.MethodPost, "/v1/threads", n, &made)
	return made.ID, err
}

// Threads yields all threads in the order in which they were made. It ends at the first error.
func (c *Client) Threads(ctx context.Context) iter.Seq2[thread.Summary, error] {
	return func(yield func(thread.Summary, error) bool) {
		path := "/v1/threads"
		for {
			var page struct {
				Threads []thread.Summary
				More    bool
			}
			if err := c.call(ctx, http.MethodGet, path, nil, &page); err != nil {
				yield(thread.Summary{}, err)
				return
			}
			for _, s := range page.Threads {
				if !yield(s, nil) {
					return
				}
			}
			if !page.More || len(page.Threads) == 0 {
				return
			}
			path = "/v1/threads?after=" + url.QueryEscape(string(page.Threads[len(page.Threads)-1].ID))
		}
	}
}

// Thread returns the summary of one thread.
func (c *Client) Thread(ctx context.Context, id record.ThreadID) (s thread.Summary, err error) {
	err = c.call(ctx, http.MethodGet, threadPath(id, ""), nil, &s)
	return s, err
}

// Send gives the thread a message and returns after it is durable.
func (c *Client) Send(ctx context.Context, id record.ThreadID, m Message) (receipt loop.Receipt, err error) {
	if m.ID == "" {
		m.ID = NewMessageID()
	}
	err = c.call(ctx, http.MethodPost, threadPath(id, "/messages"), m, &receipt)
	return receipt, err
}

// Interrupt stops the running turn. Command makes it safe to repeat: the same one again changes nothing; "" to have
// one made.
func (c *Client) Interrupt(ctx context.Context, id record.ThreadID, command string) (receipt loop.Receipt, err error) {
	if command == "" {
		command = newID("int_")
	}
	body := struct {
		ID string `json:"id"`
	}{command}
	err = c.call(ctx, http.MethodPost, threadPath(id, "/interrupt"), body, &receipt)
	return receipt, err
}

// Resume makes a turn that waits or was lost go on.
func (c *Client) Resume(ctx context.Context, id record.ThreadID) (receipt loop.Receipt, err error) {
	err = c.call(ctx, http.MethodPost, threadPath(id, "/resume"), nil, &receipt)
	return receipt, err
}

// Answer allows or denies the call that waits for approval: verdict is thread.VerdictAllow or thread.VerdictDeny. The
// first answer wins.
func (c *Client) Answer(ctx context.Context, id record.ThreadID, call, verdict, reason string) (receipt loop.Receipt, err error) {
	body := struct {
		Verdict string `json:"verdict"`
		Reason  string `json:"reason,omitempty"`
	}{verdict, reason}
	err = c.call(ctx, http.MethodPost, threadPath(id, "/approvals/"+url.PathEscape(call)), body, &receipt)
	return receipt, err
}

// Entries yields the thread's entries from seq on, as of the call of each page, inherited ones first. Each line is
// checked as record.Parse does. It ends at the first error.
func (c *Client) Entries(ctx context.Context, id record.ThreadID, from record.Seq) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		for {
			var page struct {
				Entries []rawLine
				More    bool
			}
			if err := c.call(ctx, http.MethodGet, threadPath(id, "/entries"+after(from)), nil, &page); err != nil {
				yield(record.Entry{}, err)
				return
			}
			for _, line := range page.Entries {
				e, err := record.Parse(line)
				if err != nil {
					yield(record.Entry{}, fmt.Errorf("entry %d of %s: %w", from, id, err))
					return
				}
				if !yield(e, nil) {
					return
				}
				from = e.Seq + 1
			}
			if !page.More || len(page.Entries) == 0 {
				return
			}
		}
	}
}

// rawLine keeps a line's bytes as they came.
type rawLine []byte

// UnmarshalJSON implements json.Unmarshaler.
func (l *rawLine) UnmarshalJSON(b []byte) error {
	*l = append(rawLine(nil), b...)
	return nil
}

// after is the parameter for who has every entry before from.
func after(from record.Seq) string {
	if from == 0 {
		return ""
	}
	return "?after=" + strconv.FormatUint(uint64(from-1), 10)
}

// Export writes the thread's export to w: complete when it returns nil, and then it ends with a signed head.
func (c *Client) Export(ctx context.Context, id record.ThreadID, w io.Writer) error {
	answer, err := c.do(ctx, http.MethodGet, threadPath(id, "/export"), "", nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	from := &source{r: answer.Body}
	if _, err := io.Copy(w, from); err != nil {
		if from.failure() != nil {
			return lost(ctx, answer.Request.URL.Host, err)
		}
		return err
	}
	return nil
}

// source tells errors of reading from those of writing. It may be read and asked by two goroutines.
type source struct {
	r   io.Reader
	err atomic.Pointer[error]
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && err != io.EOF {
		s.err.Store(&err)
	}
	return n, err
}

// failure returns the error of reading, or nil.
func (s *source) failure() error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Import stores an export that carries its head. The runtime verifies all of it first. An error of r is returned as it
// is, wrapped.
func (c *Client) Import(ctx context.Context, r io.Reader) (imported Imported, err error) {
	from := &source{r: r}
	answer, err := c.do(ctx, http.MethodPost, "/v1/import", typeNDJSON, from)
	if err != nil {
		if failed := from.failure(); failed != nil && ctx.Err() == nil {
			return Imported{}, fmt.Errorf("read the export: %w", failed)
		}
		return Imported{}, err
	}
	defer answer.Body.Close()
	err = decode(ctx, answer, &imported)
	return imported, err
}

// Reindex rebuilds all projections from the records and returns of how many threads.
func (c *Client) Reindex(ctx context.Context) (threads int, err error) {
	var done struct{ Threads int }
	err = c.call(ctx, http.MethodPost, "/v1/reindex", nil, &done)
	return done.Threads, err
}

// Health returns the state of the runtime, also when it is not ready. It needs no key.
func (c *Client) Health(ctx context.Context) (h Health, err error) {
	answer, err := c.send(ctx, http.MethodGet, "/health", "", nil)
	if err != nil {
		return Health{}, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusServiceUnavailable {
		return Health{}, c.refusal(answer)
	}
	if err := decode(ctx, answer, &h); err != nil {
		return Health{}, err
	}
	return h, nil
}

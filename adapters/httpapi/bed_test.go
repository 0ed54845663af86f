package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/memstore"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

const (
	testKey  = "correct horse"
	testAddr = "127.0.0.1:4785"
)

// threadN returns the id of a thread of the test.
func threadN(n int) record.ThreadID { return record.ThreadID(fmt.Sprintf("thr_%026d", n)) }

// bed is the API over fakes that remember what they were asked and fail with err when it is set.
type bed struct {
	t       *testing.T
	store   *memstore.Store
	options Options
	log     bytes.Buffer

	err       error
	created   loop.NewThread
	submitted loop.Message
	asked     []string // commands in words
	imported  string
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, store: memstore.New()}
	b.options = Options{
		Host: b, Store: b.store, Threads: b, Follow: b,
		NewThread: func(_ context.Context, r ThreadRequest) (loop.NewThread, error) {
			return loop.NewThread{ID: r.ID, Created: thread.Created{Title: r.Title, Cwd: r.Cwd, Allow: r.Allow, Resume: r.Resume},
				Epoch: thread.EpochStarted{Model: r.Model, Account: r.Account}}, b.err
		},
		Export: func(_ context.Context, id record.ThreadID, w io.Writer) error {
			if b.err == nil {
				io.WriteString(w, "export of "+string(id)+"\n")
			}
			return b.err
		},
		Import: func(_ context.Context, r io.Reader) (Imported, error) {
			text, err := io.ReadAll(r)
			b.imported = string(text)
			return Imported{threadN(5), record.Head{Seq: 41, Hash: record.Digest{1}}}, errOr(b.err, err)
		},
		Reindex: func(context.Context) (int, error) { return 3, b.err },
		Health: func(context.Context) Health {
			return Health{Ready: b.err == nil, Version: "v0.1.0", Isolation: "none"}
		},
		Key: testKey, Addr: testAddr,
		Logger: slog.New(slog.NewTextHandler(&b.log, nil)),
	}
	return b
}

func errOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (b *bed) Create(_ context.Context, n loop.NewThread) (record.ThreadID, error) {
	b.created = n
	return threadN(1), b.err
}

func (b *bed) Submit(_ context.Context, id record.ThreadID, m loop.Message) (loop.Receipt, error) {
	b.submitted = m
	return b.receipt("submit", id)
}

func (b *bed) Interrupt(_ context.Context, id record.ThreadID, by, command string) (loop.Receipt, error) {
	return b.receipt("interrupt", id, by, command)
}

func (b *bed) Resume(_ context.Context, id record.ThreadID) (loop.Receipt, error) {
	return b.receipt("resume", id)
}

func (b *bed) Answer(_ context.Context, id record.ThreadID, a thread.ApprovalAnswered) (loop.Receipt, error) {
	return b.receipt("answer", id, a.Call, a.Verdict, a.By, a.Reason)
}

func (b *bed) receipt(what ...any) (loop.Receipt, error) {
	b.asked = append(b.asked, strings.TrimSpace(fmt.Sprintln(what...)))
	return loop.Receipt{Seq: 7, State: loop.ReceiptAccepted}, b.err
}

func (b *bed) Summaries(_ context.Context, after record.ThreadID) iter.Seq2[thread.Summary, error] {
	return func(yield func(thread.Summary, error) bool) {
		if b.err != nil {
			yield(thread.Summary{}, b.err)
			return
		}
		for n := range 10 {
			if id := threadN(n); id > after && !yield(thread.Summary{ID: id}, nil) {
				return
			}
		}
	}
}

func (b *bed) Summary(_ context.Context, id record.ThreadID) (thread.Summary, error) {
	if id != threadN(1) {
		return thread.Summary{}, fmt.Errorf("thread %s: %w", id, record.ErrNotFound)
	}
	return thread.Summary{ID: id, State: thread.StateIdle}, b.err
}

func (b *bed) Serve(w http.ResponseWriter, r *http.Request, id record.ThreadID) error {
	if b.err == nil {
		fmt.Fprintf(w, "stream of %s %s", id, r.URL.RawQuery)
	}
	return b.err
}

// reply is an answer of the API.
type reply struct {
	status int
	header http.Header
	text   string
}

// code returns the code and class of an error, and checks the form of the body.
func (r reply) code(t *testing.T) (class, code string) {
	t.Helper()
	var body map[string]map[string]string
	require.NoError(t, json.Unmarshal([]byte(r.text), &body), r.text)
	require.Equal(t, "application/json", r.header.Get("Content-Type"))
	require.Len(t, body, 1)
	for _, field := range []string{"class", "code", "message"} {
		require.NotEmpty(t, body["error"][field], r.text)
	}
	return body["error"]["class"], body["error"]["code"]
}

// ask sends a request with the key. Change, if set, changes it first.
func (b *bed) ask(method, path, body string, change func(r *http.Request)) reply {
	b.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = testAddr
	r.Header.Set("Authorization", "Bearer "+testKey)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	New(b.options).ServeHTTP(w, r)
	return reply{w.Code, w.Header(), w.Body.String()}
}

// fill stores a thread with n entries and returns their lines.
func (b *bed) fill(id record.ThreadID, n, bytes int) (lines []string) {
	b.t.Helper()
	head := record.Head{}
	for i := range n {
		kind, body := record.NoteInjected, thread.Encode(thread.NoteInjected{Text: strings.Repeat("<", bytes)})
		if i == 0 {
			kind, body = record.ThreadCreated, thread.Encode(thread.Created{Cwd: "/w", Engine: "loop", HeadKey: "k"})
		}
		e, err := record.Seal(id, head, record.Salt{}, record.Draft{Time: time.Unix(1e9, 0), Kind: kind, Body: body})
		require.NoError(b.t, err)
		head, err = b.store.Append(b.t.Context(), id, head, e)
		require.NoError(b.t, err)
		lines = append(lines, string(e.Line))
	}
	return lines
}

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// TestThreadFromBeginToEnd uses every method once against the real API.
func TestThreadFromBeginToEnd(t *testing.T) {
	r := startRuntime(t)
	c, ctx := r.client(t), t.Context()
	id, err := c.NewThread(ctx, client.NewThread{Title: "T", Cwd: "/work"})
	require.NoError(t, err)

	png := []byte("\x89PNG\x0d\x0a\x1a\x0a")
	receipt, err := c.Send(ctx, id, client.Message{Mode: thread.ModeSteer, Content: append(client.Text("hi"), client.Image("image/png", png))})
	require.NoError(t, err)
	require.Equal(t, loop.Receipt{Seq: 1, State: loop.ReceiptAccepted}, receipt)
	receipt, err = c.Answer(ctx, id, "1.0", thread.VerdictDeny, "no")
	require.NoError(t, err)
	require.Equal(t, record.Seq(2), receipt.Seq)
	receipt, err = c.Resume(ctx, id)
	require.NoError(t, err)
	require.Equal(t, loop.ReceiptDuplicate, receipt.State)

	s, err := c.Thread(ctx, id)
	require.NoError(t, err)
	require.Equal(t, "T", s.Title)
	require.Equal(t, record.Seq(2), s.Seq)

	var export bytes.Buffer
	require.NoError(t, c.Export(ctx, id, &export))
	require.Equal(t, strings.Join(r.lines(t, id), "\n")+"\n", export.String())
	imported, err := c.Import(ctx, &export)
	require.NoError(t, err)
	require.Equal(t, id, imported.ID)
	require.Equal(t, record.Seq(2), imported.Seq)
	require.Len(t, imported.Hash, 64)

	n, err := c.Reindex(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	h, err := c.Health(ctx)
	require.NoError(t, err)
	require.Equal(t, client.Health{Ready: true, Version: "v0.1.0", Isolation: "none"}, h)
	r.ready = false
	h, err = c.Health(ctx)
	require.NoError(t, err, "not being ready is an answer")
	require.False(t, h.Ready)
}

// TestPagesAreJoined lists more threads and entries than a page of the API has.
func TestPagesAreJoined(t *testing.T) {
	r := startRuntime(t)
	c, ctx := r.client(t), t.Context()
	var ids []record.ThreadID
	for n := range 230 {
		id := record.ThreadID(fmt.Sprintf("thr_%026d", n))
		_, err := r.Create(ctx, loop.NewThread{ID: id})
		require.NoError(t, err)
		ids = append(ids, id)
	}
	var got []record.ThreadID
	for s, err := range c.Threads(ctx) {
		require.NoError(t, err)
		got = append(got, s.ID)
	}
	require.Equal(t, ids, got)

	for n := range 249 {
		r.note(t, ids[0], strings.Repeat("<", n))
	}
	var lines []string
	for e, err := range c.Entries(ctx, ids[0], 5) {
		require.NoError(t, err)
		lines = append(lines, string(e.Line))
	}
	require.Equal(t, r.lines(t, ids[0])[5:], lines)
	for _, err := range c.Entries(ctx, "thr_00000000000000000000000999", 0) {
		require.ErrorContains(t, err, "no such thread")
	}
}

// TestFaultsComeBackWhole keeps class, code, message and hint over the wire, so that a tool exits as if it had done
// the work itself.
func TestFaultsComeBackWhole(t *testing.T) {
	r := startRuntime(t)
	c, ctx := r.client(t), t.Context()
	id, err := c.NewThread(ctx, client.NewThread{Cwd: "/work"})
	require.NoError(t, err)

	_, err = c.Interrupt(ctx, id, "stop-1")
	var f *fault.Error
	require.ErrorAs(t, err, &f)
	require.Equal(t, fault.Error{Class: fault.Conflict, Code: "not-running",
		Message: "interrupt stop-1 by owner: no turn is running", Hint: "cnd-runtime thread show " + string(id)}, *f)

	_, err = c.Thread(ctx, "thr_00000000000000000000000009")
	require.Equal(t, fault.NotFound, fault.ClassOf(err))
	_, err = c.Send(ctx, id, client.Message{Content: client.Text(" ")})
	require.Equal(t, fault.Invalid, fault.ClassOf(err))
	require.ErrorContains(t, err, "content[0].text: is blank")
	_, err = client.New(r.addr, "another key").Thread(ctx, id)
	require.Equal(t, fault.Unauthenticated, fault.ClassOf(err))
	require.NotContains(t, err.Error(), "another key")
}

// code returns class and code of a fault with a hint.
func code(t *testing.T, err error) string {
	t.Helper()
	require.Error(t, err)
	require.NotEmpty(t, fault.HintOf(err), "%v", err)
	f := fault.Find(err)
	return f.Class.String() + " " + f.Code
}

// TestUnreachable tells three cases apart: nothing was sent, it may have been done, and somebody else answered.
func TestUnreachable(t *testing.T) {
	ctx := t.Context()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed.Close()
	_, err = client.New(closed.Addr().String(), testKey).Health(ctx)
	require.Equal(t, "unavailable runtime-unreachable", code(t, err))
	_, err = client.Open(t.TempDir(), t.TempDir()).Health(ctx)
	require.Equal(t, "unavailable runtime-unreachable", code(t, err))

	breaks := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer breaks.Close()
	_, err = client.New(breaks.Listener.Addr().String(), testKey).Send(ctx, "thr_00000000000000000000000001", client.Message{Content: client.Text("hi")})
	require.Equal(t, "unavailable answer-lost", code(t, err))

	for name, answer := range map[string]http.HandlerFunc{
		"html": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"404":  http.NotFound,
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
	} {
		other := httptest.NewServer(answer)
		c := client.New(other.Listener.Addr().String(), testKey)
		_, err = c.Thread(ctx, "thr_00000000000000000000000001")
		require.Equal(t, "unavailable strange-answer", code(t, err), name)
		for _, err := range c.Follow(ctx, "thr_00000000000000000000000001", client.FollowOptions{}) {
			require.Equal(t, "unavailable strange-answer", code(t, err), name)
		}
		c.CloseIdle()
		other.Close()
	}
}

// TestCanceledContextStaysWhatItIs does not blame the runtime for the caller's own end.
func TestCanceledContextStaysWhatItIs(t *testing.T) {
	r := startRuntime(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.client(t).Health(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, fault.Internal, fault.ClassOf(err))
}

// TestOpenReadsItsFilesAgain finds a runtime that came back on another port.
func TestOpenReadsItsFilesAgain(t *testing.T) {
	first, second := startRuntime(t), startRuntime(t)
	configDir, dataDir := first.folders(t)
	c := client.Open(configDir, dataDir)
	t.Cleanup(c.CloseIdle)
	_, err := c.Health(t.Context())
	require.NoError(t, err)
	second.ready = false
	second.publish(t, dataDir)
	h, err := c.Health(t.Context())
	require.NoError(t, err)
	require.False(t, h.Ready, "the second one answered")

	_, err = client.Open(t.TempDir(), dataDir).Health(t.Context())
	require.Equal(t, "unauthenticated no-key", code(t, err))
}

// fullDisk takes a few bytes.
type fullDisk struct{}

var errFull = errors.New("disk full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

// TestExportKeepsErrorsApart names the writer's failure, and never takes a broken stream for a whole export.
func TestExportKeepsErrorsApart(t *testing.T) {
	r := startRuntime(t)
	c, ctx := r.client(t), t.Context()
	id, err := c.NewThread(ctx, client.NewThread{Cwd: "/work"})
	require.NoError(t, err)
	require.ErrorIs(t, c.Export(ctx, id, fullDisk{}), errFull)

	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(bytes.Repeat([]byte("line\n"), 10_000))
		panic(http.ErrAbortHandler)
	}))
	defer cut.Close()
	err = client.New(cut.Listener.Addr().String(), testKey).Export(ctx, id, &bytes.Buffer{})
	require.Equal(t, "unavailable answer-lost", code(t, err))
}

// endless is a body that never ends by itself.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// TestImportRefusedWhileSending hears why an import is refused although it could go on sending for ever.
func TestImportRefusedWhileSending(t *testing.T) {
	r := startRuntime(t)
	_, err := r.client(t).Import(t.Context(), endless{})
	require.ErrorContains(t, err, "line 1 is no entry")
	require.Equal(t, fault.Invalid, fault.ClassOf(err))
}

// TestImportKeepsErrorsOfItsReader holds that an input that cannot be read is not taken for a lost connection.
func TestImportKeepsErrorsOfItsReader(t *testing.T) {
	c := startRuntime(t).client(t)
	torn := fault.New(fault.Invalid, "torn", "the tape is torn")
	_, err := c.Import(t.Context(), io.MultiReader(strings.NewReader("{"), iotest.ErrReader(torn)))
	require.ErrorIs(t, err, torn)
	require.ErrorContains(t, err, "read the export: ")
}

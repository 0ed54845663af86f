package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

// TestEntriesArePagedVerbatim puts pages together to exactly the stored lines, whatever the size of a page.
func TestEntriesArePagedVerbatim(t *testing.T) {
	b := newBed(t)
	lines := b.fill(threadN(1), 12, 100)
	for limit := 1; limit <= 13; limit++ {
		var got []string
		for after, more := "", true; more; {
			answer := b.ask("GET", "/v1/threads/"+string(threadN(1))+"/entries?limit="+strconv.Itoa(limit)+after, "", nil)
			require.Equal(t, 200, answer.status)
			inside, ok := strings.CutPrefix(answer.text, `{"entries":[`)
			require.True(t, ok)
			array, tail, _ := strings.Cut(inside, `],"head":11,"more":`)
			for n, line := range strings.Split(strings.ReplaceAll(array, `},{"v":0`, "}\n{\"v\":0"), "\n") {
				require.Less(t, n, limit)
				e, err := record.Parse([]byte(line))
				require.NoError(t, err)
				got = append(got, line)
				after = "&after=" + strconv.FormatUint(uint64(e.Seq), 10)
			}
			more = tail == "true}\n"
			require.Equal(t, len(got) < 12, more)
		}
		require.Equal(t, lines, got)
	}
	require.Equal(t, `{"entries":[],"head":11,"more":false}`+"\n", b.ask("GET", "/v1/threads/"+string(threadN(1))+"/entries?after=11", "", nil).text)
	require.Equal(t, 400, b.ask("GET", "/v1/threads/"+string(threadN(1))+"/entries?after=-1", "", nil).status)
}

// TestPageOfEntriesIsBounded ends a page before its limit when the lines are long.
func TestPageOfEntriesIsBounded(t *testing.T) {
	b := newBed(t)
	b.fill(threadN(1), 8, 1<<20)
	answer := b.ask("GET", "/v1/threads/"+string(threadN(1))+"/entries", "", nil)
	require.Less(t, len(answer.text), MaxPageBytes+1000)
	require.Greater(t, len(answer.text), MaxPageBytes/2)
	require.True(t, strings.HasSuffix(answer.text, `"more":true}`+"\n"))
}

// brokenStore cannot read one entry.
type brokenStore struct {
	record.Store
	bad record.Seq
}

func (s brokenStore) Entries(ctx context.Context, id record.ThreadID, from record.Seq) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		for e, err := range s.Store.Entries(ctx, id, from) {
			if e.Seq == s.bad {
				yield(record.Entry{}, fault.New(fault.Corrupt, "record-damaged", "entry 2 is damaged"))
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestDamagedEntryHidesNoOther serves the entries before it; the page that starts with it fails and says why.
func TestDamagedEntryHidesNoOther(t *testing.T) {
	b := newBed(t)
	lines := b.fill(threadN(1), 4, 1)
	b.options.Store = brokenStore{b.store, 2}
	answer := b.ask("GET", "/v1/threads/"+string(threadN(1))+"/entries", "", nil)
	require.Equal(t, `{"entries":[`+lines[0]+","+lines[1]+`],"head":3,"more":true}`+"\n", answer.text)
	answer = b.ask("GET", "/v1/threads/"+string(threadN(1))+"/entries?after=1", "", nil)
	require.Equal(t, 500, answer.status)
	require.Contains(t, answer.text, "entry 2 is damaged")
}

// serve serves the bed's API on loopback.
func (b *bed) serve() (url string, client *http.Client) {
	b.t.Helper()
	server := httptest.NewUnstartedServer(nil)
	b.options.Addr = server.Listener.Addr().String()
	server.Config = &http.Server{Handler: New(b.options)}
	server.Start()
	b.t.Cleanup(server.Close)
	return server.URL, server.Client()
}

func (b *bed) request(method, url, contentType string, body io.Reader) *http.Request {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, url, body)
	require.NoError(b.t, err)
	r.Header.Set("Authorization", "Bearer "+testKey)
	r.Header.Set("Content-Type", contentType)
	return r
}

// TestExportThatBreaksIsNoCleanEnd cuts the connection, so that half an export is not taken for a whole one; a failure
// before the first byte is an ordinary error.
func TestExportThatBreaksIsNoCleanEnd(t *testing.T) {
	b := newBed(t)
	b.options.Export = func(_ context.Context, _ record.ThreadID, w io.Writer) error {
		w.Write(bytes.Repeat([]byte("line\n"), 10_000))
		return errors.New("disk")
	}
	url, client := b.serve()
	answer, err := client.Do(b.request("GET", url+"/v1/threads/"+string(threadN(1))+"/export", "", nil))
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, "application/x-ndjson", answer.Header.Get("Content-Type"))
	_, err = io.Copy(io.Discard, answer.Body)
	require.Error(t, err)

	b = newBed(t)
	b.err = record.ErrNotFound
	reply := b.ask("GET", "/v1/threads/"+string(threadN(1))+"/export", "", nil)
	require.Equal(t, 404, reply.status)
}

// TestImportStreams takes a body of any length and any pace, chunk by chunk.
func TestImportStreams(t *testing.T) {
	b := newBed(t)
	first := make(chan string)
	b.options.Import = func(_ context.Context, r io.Reader) (Imported, error) {
		line := make([]byte, 5)
		if _, err := io.ReadFull(r, line); err != nil {
			return Imported{}, err
		}
		first <- string(line)
		rest, err := io.ReadAll(r)
		b.imported = string(rest)
		return Imported{threadN(5), record.Head{Seq: 41, Hash: record.Digest{1}}}, err
	}
	url, client := b.serve()
	out, in := io.Pipe()
	go func() {
		io.WriteString(in, "one 1")
		<-first // the runtime works on the first line while the second is not sent
		io.WriteString(in, "two 2")
		in.Close()
	}()
	answer, err := client.Do(b.request("POST", url+"/v1/import", "application/x-ndjson", out))
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, 201, answer.StatusCode)
	require.Equal(t, `{"id":"`+string(threadN(5))+`","seq":41,"hash":"01`+strings.Repeat("0", 62)+`"}`+"\n", string(text))
	require.Equal(t, "two 2", b.imported)
}

// TestImportIsRefused tells a damaged body, which will never do, from damage in our own store.
func TestImportIsRefused(t *testing.T) {
	for status, line := range map[int]int64{422: 3, 500: 0} {
		b := newBed(t)
		b.err = &record.Damage{Line: line, Why: "hash differs", Err: record.ErrDamaged}
		answer := b.ask("POST", "/v1/import", "line\n", func(r *http.Request) { r.Header.Set("Content-Type", "application/x-ndjson") })
		require.Equal(t, status, answer.status)
		class, code := answer.code(t)
		require.Equal(t, "corrupt "+record.ErrDamaged.Code, class+" "+code)
	}
}

// TestOversizeBodyOverTheWire answers 413 although the client is still sending.
func TestOversizeBodyOverTheWire(t *testing.T) {
	b := newBed(t)
	url, client := b.serve()
	body := io.LimitReader(zeros{}, MaxMessageBody+(8<<20))
	answer, err := client.Do(b.request("POST", url+"/v1/threads/"+string(threadN(1))+"/messages", "application/json", body))
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, 413, answer.StatusCode)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"condensate.dev/cnd/adapters/notes"
	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire/wiretest"
	"condensate.dev/cnd/tools/internal/config"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"cnd-replay": main})
}

// TestScripts runs the tool as a process: streams, exit codes and reports.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(env *testscript.Env) error { return setup(t, env) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": checkCode, "runtime": startRuntime, "stop": stopRuntime,
		},
	})
}

// story is the thread of the scripts: two turns of two requests, the first with a tool.
func story(t *testing.T, key string, forge func(*thread.RequestPrepared)) *wiretest.Thread {
	th := wiretest.Signed(t, key)
	th.Begin(wiretest.Epoch())
	usage := func(read, write int64) thread.Usage { return thread.Usage{CacheRead: &read, CacheWrite: &write} }
	for i := range 2 {
		th.Message(wiretest.Text(fmt.Sprintf("question %d \x1b[31m", i)), thread.Block{Type: "text", Blob: th.Keep([]byte("a long text"))})
		if i == 1 {
			th.Forge = forge
		}
		e := th.Request()
		th.Forge = nil
		th.Add(record.AnswerFinished, thread.AnswerFinished{
			Request: e.Seq, Attempt: 1, Usage: usage(int64(1000*i), 1000),
			Native: []thread.Raw{{JSON: []byte(`{"type":"tool_use","id":"toolu_1","name":"bash","input":{"command":"ls"}}`)}},
			View:   []thread.Block{{Type: "tool_call", Call: th.Call(0), Name: "bash", Input: []byte(`{"command":"ls"}`)}},
		})
		th.Result(0, wiretest.Text("a\nb"))
		e = th.Request()
		th.Add(record.AnswerFinished, thread.AnswerFinished{
			Request: e.Seq, Attempt: 1, Usage: usage(int64(1000*i), 1000),
			Native: []thread.Raw{{JSON: []byte(`{"type":"text","text":"two files"}`)}}, View: []thread.Block{wiretest.Text("two files")},
		})
	}
	return th
}

// setup writes the files of the scripts: exports, and a data folder with a store and signed heads.
func setup(t *testing.T, env *testscript.Env) error {
	dir := env.WorkDir
	key, err := notes.LoadOrCreateKey(filepath.Join(dir, "record.key"), rand.NewChaCha8([32]byte{1}))
	if err != nil {
		return err
	}
	env.Setenv("CONDENSATE_DATA_DIR", filepath.Join(dir, "data"))
	env.Setenv("CONDENSATE_CONFIG_DIR", filepath.Join(dir, "config"))
	env.Setenv("THREAD", string(wiretest.ID))
	env.Setenv("KEY", key.VerifierKey())

	th := story(t, key.VerifierKey(), nil)
	head, err := record.SignHead(key, wiretest.ID, th.Head(), record.Digest{})
	if err != nil {
		return err
	}
	signed := func(th *wiretest.Thread) []byte {
		h, err := record.SignHead(key, wiretest.ID, th.Head(), record.Digest{})
		if err != nil {
			t.Fatal(err)
		}
		var lines bytes.Buffer
		th.Export(&lines)
		return append(h.AppendLine(lines.Bytes()), '\n')
	}
	var unsigned bytes.Buffer
	th.Export(&unsigned)
	forged := story(t, key.VerifierKey(), func(p *thread.RequestPrepared) { p.Fingerprint = strings.Repeat("0", 64) })
	erased := story(t, key.VerifierKey(), nil)
	erased.Erase(2)
	good := signed(th)
	at := bytes.Index(good, []byte("question 1"))
	for name, data := range map[string][]byte{
		"good.jsonl":     good,
		"unsigned.jsonl": unsigned.Bytes(),
		"forged.jsonl":   signed(forged),
		"erased.jsonl":   signed(erased),
		"edited.jsonl":   bytes.Replace(good, []byte("question 1"), []byte("question 2"), 1),
		"cut.jsonl":      good[:at],
		"empty.jsonl":    nil,
		"text.jsonl":     []byte("hello\n"),
		"request7.json":  th.Bodies[7],
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return fillStore(th, filepath.Join(dir, "data"), head)
}

// fillStore writes the thread into a store whose newest signed head is two entries before its end.
func fillStore(th *wiretest.Thread, data string, head record.SignedHead) error {
	store, err := pebblestore.Open(filepath.Join(data, config.StoreFolder), pebblestore.Options{})
	if err != nil {
		return err
	}
	if _, err := store.Append(th.T.Context(), wiretest.ID, record.Head{}, th.Lines...); err != nil {
		return err
	}
	more := th.Message(wiretest.Text("not signed yet"))
	if _, err := store.Append(th.T.Context(), wiretest.ID, head.Place(), th.Lines[more.Seq:]...); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(data, config.HeadsFile), append(head.AppendLine(nil), '\n'), 0o600); err != nil {
		return err
	}
	return store.Close()
}

// checkCode runs a command whose exit code must be the first argument; stdout and stderr are left to the script.
func checkCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program [args...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// running is the stand-in for a runtime that is up.
type running struct {
	store  *pebblestore.Store
	server *httptest.Server
}

var runtimes = make(map[*testscript.TestScript]*running)

// startRuntime holds the store as a runtime does, and serves the export of good.jsonl to who has the key.
func startRuntime(ts *testscript.TestScript, _ bool, _ []string) {
	export := ts.ReadFile("good.jsonl")
	data, settings := ts.Getenv("CONDENSATE_DATA_DIR"), ts.Getenv("CONDENSATE_CONFIG_DIR")
	store, err := pebblestore.Open(filepath.Join(data, config.StoreFolder), pebblestore.Options{})
	ts.Check(err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer sesame":
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":{"class":"unauthenticated","code":"wrong-key","message":"wrong key"}}`)
		case r.URL.Path != "/v1/threads/"+ts.Getenv("THREAD")+"/export":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":{"class":"not_found","code":"no-such-thread","message":"no such thread"}}`)
		default:
			fmt.Fprint(w, export)
		}
	}))
	ts.Check(os.MkdirAll(settings, 0o700))
	ts.Check(os.WriteFile(filepath.Join(settings, "runtime.key"), []byte("sesame\n"), 0o600))
	address := fmt.Sprintf(`{"addr":%q,"pid":1}`, server.Listener.Addr())
	ts.Check(os.WriteFile(filepath.Join(data, "runtime.json"), []byte(address), 0o600))
	runtimes[ts] = &running{store, server}
	ts.Defer(func() { stopRuntime(ts, false, nil) })
}

func stopRuntime(ts *testscript.TestScript, _ bool, _ []string) {
	if r := runtimes[ts]; r != nil {
		delete(runtimes, ts)
		r.server.Close()
		ts.Check(r.store.Close())
	}
}

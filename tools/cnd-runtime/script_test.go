package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"condensate.dev/cnd/adapters/notes"
	"condensate.dev/cnd/adapters/simprovider"
	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/record"
)

// patience bounds every wait of a script; reaching it is a failure.
const patience = time.Minute

// TestScripts runs the command line as a person or a program would, each script with a simulated provider and folders
// of its own. Beside testscript's commands there are those of scriptCommands.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Cmds:                scriptCommands,
	})
}

var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"serve":   serveScript,   // start cnd-runtime serve [args] and wait until it is ready
	"drain":   drainScript,   // SIGTERM, and it must exit 0
	"crash":   crashScript,   // SIGKILL
	"exits":   exitsScript,   // exits CODE PROGRAM [args]: run it; it must exit with that code
	"capture": captureScript, // capture NAME: put the line on stdout into a variable
	"await":   awaitScript,   // await THREAD KIND [N]: wait for the n-th entry of a kind, or for a "delta"
	"fault":   faultScript,   // fault JSON: have the simulator do that
	"verify":  verifyScript,  // verify FILE: it is an export with a signed head that holds
	"nosuch":  nosuchScript,  // nosuch TEXT: no file of the script holds the text
}

func setup(env *testscript.Env) error {
	provider := simprovider.New(simprovider.Options{ChunkDelay: time.Millisecond})
	sim := httptest.NewServer(provider)
	env.Defer(func() { provider.Close(); sim.Close() })
	env.Setenv("CONDENSATE_CONFIG_DIR", filepath.Join(env.WorkDir, "config"))
	env.Setenv("CONDENSATE_DATA_DIR", filepath.Join(env.WorkDir, "data"))
	env.Setenv("CONDENSATE_RUNTIME_ADDR", "127.0.0.1:0")
	env.Setenv("CONDENSATE_SIM_ADDR", sim.Listener.Addr().String())
	env.Setenv("CONDENSATE_MIN_FREE", "1")
	env.Setenv("GORACE", "atexit_sleep_ms=0") // else each of hundreds of processes sleeps for a second at its end
	env.Values[bedKey{}] = &bed{sim: sim.Listener.Addr().String()}
	return os.MkdirAll(filepath.Join(env.WorkDir, "w"), 0o700)
}

// passed are the variables that a runtime of a script gets.
var passed = []string{
	"PATH", "HOME", "TMPDIR", "CONDENSATE_CONFIG_DIR", "CONDENSATE_DATA_DIR", "CONDENSATE_RUNTIME_ADDR", "CONDENSATE_SIM_ADDR",
	"CONDENSATE_MIN_FREE", "ANTHROPIC_API_KEY", "GORACE",
}

// bedKey is where a script keeps its bed.
type bedKey struct{}

// bed is what a script has beside its folders.
type bed struct {
	sim   string // host:port of the simulator
	pid   int
	ended chan error // gets how the runtime ended
}

func bedOf(ts *testscript.TestScript) *bed { return ts.Value(bedKey{}).(*bed) }

// serveScript starts the runtime of the script, with its log in serve.log.
func serveScript(ts *testscript.TestScript, _ bool, args []string) {
	log, err := os.OpenFile(ts.MkAbs(logFile(ts)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	ts.Check(err)
	defer log.Close()
	ready, theirs, err := os.Pipe()
	ts.Check(err)
	defer ready.Close()
	cmd := exec.Command("cnd-runtime", append([]string{"serve", "--ready-fd", "3"}, args...)...)
	for _, name := range passed {
		if value := ts.Getenv(name); value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Stderr, cmd.ExtraFiles = log, []*os.File{theirs}
	ts.Check(cmd.Start())
	theirs.Close()
	b := bedOf(ts)
	b.pid, b.ended = cmd.Process.Pid, make(chan error, 1)
	go func() { b.ended <- cmd.Wait() }()
	ts.Defer(func() { cmd.Process.Kill() })
	if n, err := ready.Read(make([]byte, 1)); n != 1 {
		ts.Fatalf("the runtime did not become ready: %v\n%s", err, ts.ReadFile(logFile(ts)))
	}
	ts.Setenv("PID", strconv.Itoa(b.pid))
}

func logFile(ts *testscript.TestScript) string { return filepath.Join(ts.Getenv("WORK"), "serve.log") }

func drainScript(ts *testscript.TestScript, _ bool, _ []string) {
	b := bedOf(ts)
	ts.Check(syscall.Kill(b.pid, syscall.SIGTERM))
	if err := <-b.ended; err != nil {
		ts.Fatalf("the runtime ended with %v\n%s", err, ts.ReadFile(logFile(ts)))
	}
}

func crashScript(ts *testscript.TestScript, _ bool, _ []string) {
	b := bedOf(ts)
	ts.Check(syscall.Kill(b.pid, syscall.SIGKILL))
	<-b.ended
}

func exitsScript(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if want, err := strconv.Atoi(args[0]); err != nil || code != want {
		ts.Fatalf("%s exited %d, want %s", strings.Join(args[1:], " "), code, args[0])
	}
}

func captureScript(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

func awaitScript(ts *testscript.TestScript, _ bool, args []string) {
	count := 1
	if len(args) == 3 {
		var err error
		count, err = strconv.Atoi(args[2])
		ts.Check(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	api := client.Open(ts.Getenv("CONDENSATE_CONFIG_DIR"), ts.Getenv("CONDENSATE_DATA_DIR"))
	var kinds []record.Kind
	for e, err := range api.Follow(ctx, record.ThreadID(args[0]), client.FollowOptions{Reconnect: true, Deltas: args[1] == "delta"}) {
		if err != nil {
			ts.Fatalf("%s did not come: %v, after %v\n%s", args[1], err, kinds, ts.ReadFile(logFile(ts)))
		}
		if e.Type == client.EventEntry {
			kinds = append(kinds, e.Entry.Kind)
		}
		streams := e.Type == client.EventDelta || e.Type == client.EventSnapshot
		if (args[1] == "delta" && streams) || (e.Type == client.EventEntry && string(e.Entry.Kind) == args[1]) {
			count--
		}
		if count == 0 {
			return
		}
	}
}

func faultScript(ts *testscript.TestScript, _ bool, args []string) {
	resp, err := http.Post("http://"+bedOf(ts).sim+"/sim/faults", "application/json", strings.NewReader(args[0]))
	ts.Check(err)
	resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		ts.Fatalf("fault %s: %s", args[0], resp.Status)
	}
}

func verifyScript(ts *testscript.TestScript, _ bool, args []string) {
	r, err := record.VerifyExport(strings.NewReader(ts.ReadFile(args[0])), record.VerifyOptions{Opener: notes.Opener{}}, nil)
	ts.Check(err)
	ts.Setenv("HEAD", r.Head.Hash.String())
}

func nosuchScript(ts *testscript.TestScript, neg bool, args []string) {
	found := ""
	ts.Check(filepath.WalkDir(ts.Getenv("WORK"), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(args[0])) {
			found = path
		}
		return err
	}))
	if neg != (found != "") {
		ts.Fatalf("%q stands in %q", args[0], found)
	}
}

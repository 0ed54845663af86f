package guard_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"condensate.dev/cnd/adapters/guard"
	"condensate.dev/cnd/core/command"
	"condensate.dev/cnd/core/record"
)

// fakeRuntime is the first argument of a test binary that plays the runtime: it runs the script in its third argument
// as one call, of the thread in its fourth, in the folder of its second, and prints what the script prints. Tests kill
// it.
const fakeRuntime = "fake-runtime"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case guard.Word:
			syscall.Exit(guard.Main(os.Args[2:])) // os.Exit of a race build waits for a second
		case fakeRuntime:
			testThread = record.ThreadID(os.Args[4])
			os.Exit(playRuntime(os.Args[2], os.Args[3]))
		}
	}
	goleak.VerifyTestMain(m)
}

func playRuntime(dir, script string) int {
	g, err := guard.New(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 70
	}
	status, err := g.Run(context.Background(), shell(script), func(p []byte) { _, _ = os.Stdout.Write(p) })
	fmt.Fprintln(os.Stderr, status.State, err)
	return 0
}

// testThread is another one in every run of the tests, so that they find their own processes only.
var testThread = record.ThreadID(fmt.Sprintf("thr_%026d", os.Getpid()))

const testCall = "12.0"

// shell is the command that runs script as the test call.
func shell(script string) command.Command {
	return command.Command{
		Thread: testThread, Call: testCall, Dir: "/", Args: []string{"/bin/sh", "-c", script},
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, Timeout: time.Minute,
	}
}

// discard is an output that nobody looks at.
func discard([]byte) {}

// waitFor is an output that closes seen when it has got all of text.
func waitFor(text string) (output func([]byte), seen chan struct{}) {
	seen = make(chan struct{})
	var got bytes.Buffer
	return func(p []byte) {
		before := bytes.Contains(got.Bytes(), []byte(text))
		got.Write(p)
		if !before && bytes.Contains(got.Bytes(), []byte(text)) {
			close(seen)
		}
	}, seen
}

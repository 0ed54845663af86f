package pebblestore_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// process is another process with a store.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan []string // the words of the lines that it printed; closed at its end
}

// start starts a child that does task, under the commands that come before it.
func start(t *testing.T, task string, number int, dir string, under ...string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	args := append(under, self)
	p := &process{cmd: exec.Command(args[0], args[1:]...), lines: make(chan []string, 1<<20)}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", childEnv, task, number, dir), "GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr = os.Stderr
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.lines)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			p.lines <- strings.Fields(in.Text())
		}
	}()
	return p
}

// expect waits for the line that begins with word.
func (p *process) expect(t *testing.T, word string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			require.True(t, ok, "the process ended before it said %q", word)
			if line[0] == word {
				return
			}
		case <-timeout:
			t.Fatalf("the process did not say %q", word)
		}
	}
}

// kill ends the process and returns the lines that were not read.
func (p *process) kill(t *testing.T) [][]string {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	return p.rest()
}

// rest waits for the end of the process and returns the lines that were not read.
func (p *process) rest() (all [][]string) {
	for line := range p.lines {
		all = append(all, line)
	}
	_ = p.cmd.Wait() // how it ended is in ProcessState
	return all
}

// acks are the newest acknowledged entries, and how many there were.
type acks struct {
	newest map[record.ThreadID]record.Head
	n      int
}

func (a *acks) note(t *testing.T, lines [][]string) {
	t.Helper()
	for _, words := range lines {
		if words[0] != "ack" {
			continue
		}
		if len(words) < 4 || len(words[3]) < 64 {
			continue // the process died in the middle of the line
		}
		seq, err := strconv.ParseUint(words[2], 10, 64)
		require.NoError(t, err)
		hash, err := record.ParseDigest(words[3])
		require.NoError(t, err)
		a.newest[record.ThreadID(words[1])] = record.Head{Seq: record.Seq(seq), Hash: hash}
		a.n++
	}
}

// requireAll checks that everything acknowledged to threads from the number on is there and verifies.
func (a *acks) requireAll(t *testing.T, s *pebblestore.Store, from int) {
	t.Helper()
	for id, at := range a.newest {
		if id < recordtest.ThreadID(from) {
			continue
		}
		held := false
		_, err := record.VerifyThread(t.Context(), s, id, record.VerifyOptions{Unsigned: true}, func(e record.Entry) error {
			held = held || e.Head() == at
			return nil
		})
		require.NoError(t, err)
		require.True(t, held, "entry %d of %s was acknowledged", at.Seq, id)
	}
}

// TestKill kills a process that appends from 16 goroutines at random moments, also while it opens the store that the
// one before left. Everything acknowledged is there. This does not show that anything was synced: what a killed process
// wrote is still in the memory of the operating system; see TestPowerFailure for that.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(7, 7))
	all := &acks{newest: make(map[record.ThreadID]record.Head)}
	for round := range int(seeds(50)) {
		p := start(t, "append", 100*round, dir)
		if round%5 > 0 { // else the kill may come while it opens the store
			p.expect(t, "open")
		}
		<-time.After(time.Duration(1+rng.IntN(200)) * time.Millisecond)
		all.note(t, p.kill(t))
		if round%5 == 0 {
			continue // the next process has to open what two have left
		}
		s, err := pebblestore.Open(dir, pebblestore.Options{})
		require.NoError(t, err)
		all.requireAll(t, s, 100*max(0, round-1))
		require.NoError(t, s.Close())
	}
	s := openStore(t, dir, pebblestore.Options{ReadOnly: true})
	all.requireAll(t, s, 0)
	require.Positive(t, all.n)
	t.Logf("%d appends acknowledged", all.n)
}

// TestTwoProcesses lets a second process try to open a store: refused, also over another name of the folder, also
// while the first one is stopped, until the first one is gone.
func TestTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	refused := func(dir string) {
		t.Helper()
		for _, readOnly := range []bool{false, true} {
			_, err := pebblestore.Open(dir, pebblestore.Options{LockWait: moment, ReadOnly: readOnly})
			require.ErrorIs(t, err, pebblestore.ErrLocked)
			require.Equal(t, fault.Conflict, fault.ClassOf(err))
		}
	}
	first := start(t, "hold", 1, dir)
	first.expect(t, "open")
	refused(dir)
	refused(link)
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGSTOP))
	refused(dir)
	refused(link)
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGCONT))
	require.NoError(t, first.stdin.Close())
	first.rest()
	require.True(t, first.cmd.ProcessState.Success())

	second := start(t, "append", 1, link)
	second.expect(t, "ack")
	opened := make(chan error, 1)
	go func() {
		s, err := pebblestore.Open(dir, pebblestore.Options{LockWait: patience})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	second.kill(t)
	require.NoError(t, <-opened, "it waits for the end of the other process")
}

// TestSyscalls looks at the calls of a real process: between the last write to the log and the line that tells of an
// acknowledgement, a sync of that log began and ended.
func TestSyscalls(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("no strace here; TestAckedMeansSynced says the same from inside")
	}
	trace := filepath.Join(t.TempDir(), "trace")
	const appends = 25
	p := start(t, "few", appends, t.TempDir(), strace, "-f", "-y", "-s", "8", "-o", trace, "-e", "trace=write,pwrite64,fdatasync,fsync")
	all := &acks{newest: make(map[record.ThreadID]record.Head)}
	all.note(t, p.rest())
	if all.n == 0 && !p.cmd.ProcessState.Success() {
		t.Skip("strace may not trace here")
	}
	require.Equal(t, appends, all.n)
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	acked := 0
	dirty, syncing := true, map[string]bool{} // syncing: threads of the process with a sync of the log under way
	for line := range strings.Lines(string(text)) {
		pid, call, _ := strings.Cut(line, " ")
		call = strings.TrimSpace(call) // strace pads the process id
		onLog := strings.Contains(call, ".log>")
		switch {
		case strings.HasPrefix(call, "write(1<"):
			if strings.Contains(call, `"ack `) {
				require.False(t, dirty, "acknowledgement %d before the sync", acked)
				acked++
				dirty = true // the next one needs a sync of its own
			}
		case onLog && strings.Contains(call, "write"):
			dirty = true
			clear(syncing)
		case onLog && strings.Contains(call, "sync(") && strings.Contains(call, "unfinished"):
			syncing[pid] = true
		case onLog && strings.Contains(call, "sync(") && strings.HasSuffix(call, "= 0"):
			dirty = false
		case syncing[pid] && strings.Contains(call, "sync resumed") && strings.HasSuffix(call, "= 0"):
			dirty = false
			delete(syncing, pid)
		}
	}
	require.Equal(t, appends, acked)
}

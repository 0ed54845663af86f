package guard

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// tree is a command and all that it started.
type tree struct {
	pid    int                     // of the command's main process, which leads its own session and group
	exited chan syscall.WaitStatus // gets the end of the main process
	gone   chan struct{}           // closed when nothing of the tree is left
}

// start starts the command with out as stdout and stderr, and with nothing on standard input.
func start(o order, out *os.File) (*tree, error) {
	if info, err := os.Stat(o.Dir); err != nil {
		return nil, fmt.Errorf("working folder: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("working folder: %s is not a folder", o.Dir)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	fd := out.Fd()
	_ = syscall.SetNonblock(int(fd), false)
	pid, err := syscall.ForkExec(o.Args[0], o.Args, &syscall.ProcAttr{
		Dir: o.Dir, Env: o.Env, Files: []uintptr{null.Fd(), fd, fd}, Sys: commandAttr(),
	})
	if err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", o.Args[0], o.Dir, err)
	}
	t := &tree{pid: pid, exited: make(chan syscall.WaitStatus, 1), gone: make(chan struct{})}
	go t.reap()
	return t, nil
}

// reap takes the end of every process that has or gets this one as its parent, until there is none.
func (t *tree) reap() {
	defer close(t.gone)
	for {
		var end syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &end, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // no child left
			t.awaitStrays()
			return
		case pid == t.pid:
			t.exited <- end
		}
	}
}

// isGone says whether nothing of the tree is left, after waiting for it at most limit.
func (t *tree) isGone(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-t.gone:
		return true
	case <-timer.C:
		return false
	}
}

// end ends what is left of the tree and returns how many processes did not let themselves be ended.
func (t *tree) end() (left int) {
	if t.isGone(0) {
		return 0
	}
	signalAll(t.members(), syscall.SIGTERM)
	signalAll(t.members(), syscall.SIGCONT) // a stopped process does not hear SIGTERM
	if t.isGone(TermGrace) {
		return 0
	}
	for range killRounds {
		signalAll(t.members(), syscall.SIGKILL)
		if t.isGone(killInterval) {
			return 0
		}
	}
	return len(t.members())
}

const (
	killInterval = 5 * time.Millisecond
	killRounds   = int(KillGrace / killInterval)
)

func signalAll(pids []int, sig syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
	}
}

// exitCode returns the code of an ended process as a shell would: 128 and the signal's number when one ended it.
func exitCode(end syscall.WaitStatus) int {
	if end.Signaled() {
		return 128 + int(end.Signal())
	}
	return end.ExitStatus()
}

// process is one line of the system's list of processes.
type process struct{ pid, parent, group int }

// descendants returns the processes of list below root, and those of group when it is not 0.
func descendants(list []process, root, group int) []int {
	below := map[int]bool{root: true}
	var found []int
	for grown := true; grown; {
		grown = false
		for _, p := range list {
			if !below[p.pid] && (below[p.parent] || group != 0 && p.group == group) {
				below[p.pid] = true
				found = append(found, p.pid)
				grown = true
			}
		}
	}
	return found
}

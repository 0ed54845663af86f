package guard

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// executable names this program.
func executable() (string, error) { return os.Executable() }

// adopt does nothing: macOS has no subreaper.
func adopt() error { return nil }

// commandAttr gives the command a session of its own.
func commandAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// awaitStrays waits for the processes of the command's group whose parent is not the guard.
func (t *tree) awaitStrays() {
	for len(t.members()) > 0 {
		<-time.After(killInterval)
	}
}

// members returns the processes of the tree: those below the guard, and those of the command's group.
func (t *tree) members() []int {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	list := make([]process, 0, len(all))
	for _, p := range all {
		list = append(list, process{
			pid: int(p.Proc.P_pid), parent: int(p.Eproc.Ppid), group: int(p.Eproc.Pgid),
		})
	}
	return descendants(list, os.Getpid(), t.pid)
}

// endMarked finds nothing: the environment of other processes is not readable.
func endMarked(string) (left int) { return 0 }

package guard

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// executable names this program even after its file was replaced.
func executable() (string, error) { return "/proc/self/exe", nil }

// adopt makes this process the parent of every descendant that loses its own.
func adopt() error {
	_ = os.WriteFile("/proc/self/comm", []byte(processName), 0)
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// commandAttr gives the command a session of its own, and lets the kernel kill it when the guard is killed.
func commandAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStrays has nothing to wait for: to a subreaper, no child left means no descendant left.
func (t *tree) awaitStrays() {}

// members returns the processes of the tree.
func (t *tree) members() []int { return descendants(processes(), os.Getpid(), 0) }

// processes returns the parents of all processes; it leaves out what ends while it reads.
func processes() []process {
	var list []process
	for _, pid := range processIDs() {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state ppid …: the name may hold anything, also a parenthesis.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(string(fields[1])); err == nil {
			list = append(list, process{pid: pid, parent: parent})
		}
	}
	return list
}

func processIDs() []int {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// endMarked kills the processes that have [Mark] with that value in their environment, until there is none, and
// returns how many did not let themselves be killed. It is for what a killed guard left.
func endMarked(value string) (left int) {
	want := []byte("\x00" + Mark + "=" + value + "\x00")
	for range killRounds {
		var found []int
		for _, pid := range processIDs() {
			environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
			if err == nil && bytes.Contains(append([]byte{0}, environ...), want) {
				found = append(found, pid)
			}
		}
		left = len(found)
		if left == 0 {
			return 0
		}
		signalAll(found, syscall.SIGKILL)
		<-time.After(killInterval)
	}
	return left
}

package guard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"condensate.dev/cnd/core/command"
)

const (
	// maxOrder is the longest order line, in bytes.
	maxOrder = 4 << 20
	// lockFD is where a guard finds the lock that the runtime took for it.
	lockFD = 3
	// tickFD is standard output: a byte on it tells the runtime that there is more output in the file.
	tickFD = 1
	// exitUsage and exitFailed are the guard's codes when it could not do its work; nobody reads more into them.
	exitUsage, exitFailed = 64, 70
)

// Main is the guard process: it runs one command, whose order comes on standard input, and returns the exit code. args
// holds the folder of the call. It must be called before the program opens anything or starts other work, and the
// process must end when it returns.
func Main(args []string) int {
	if len(args) != 1 || !filepath.IsAbs(args[0]) {
		fmt.Fprintln(os.Stderr, "guard: not for use by hand: the runtime starts it")
		return exitUsage
	}
	runtime.LockOSThread() // the kernel ends the command with the thread that started it
	seal()
	if err := guard(&call{dir: args[0]}); err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		return exitFailed
	}
	return 0
}

// guard reads the order, runs the command and writes its status. An error means that there is no status.
func guard(c *call) error {
	terminated := takeSignals()
	if err := adopt(); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	if err := signLock(); err != nil {
		return fmt.Errorf("write the process id into the lock: %w", err)
	}
	in := bufio.NewReader(io.LimitReader(os.Stdin, maxOrder))
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the order: %w", err) // the runtime is gone: nothing starts
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil || o.Version != 0 || len(o.Args) == 0 {
		return errors.Join(errors.New("not an order of this version"), err)
	}
	abandoned := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(abandoned)
	}()
	if err := c.begin(); err != nil {
		return fmt.Errorf("mark the start: %w", err)
	}
	return c.write(c.supervise(o, abandoned, terminated))
}

// signLock says in the lock file who holds the lock.
func signLock() error {
	if err := syscall.Ftruncate(lockFD, 0); err != nil {
		return err
	}
	_, err := syscall.Pwrite(lockFD, []byte(strconv.Itoa(os.Getpid())), 0)
	return err
}

// supervise runs the command to its end and to the end of all that it started.
func (c *call) supervise(o order, abandoned <-chan struct{}, terminated <-chan os.Signal) status {
	_ = syscall.SetNonblock(tickFD, true)
	out, err := newSink(c.path(outputFile), o.Kept, tick)
	if err != nil {
		return status{State: command.NeverStarted, Problem: err.Error()}
	}
	begun := time.Now()
	t, err := start(o, out.write)
	out.drain()
	if err != nil {
		out.close(DrainGrace)
		return status{State: command.NeverStarted, Problem: err.Error()}
	}
	s := t.await(time.Duration(o.TimeoutMS)*time.Millisecond, abandoned, terminated)
	if s.State == command.Exited {
		t.isGone(LingerGrace)
	}
	s.Left = t.end()
	s.ElapsedMS = time.Since(begun).Milliseconds()
	s.Kept, s.Dropped = out.close(DrainGrace)
	return s
}

// tick tells the runtime that the output has grown. When the pipe is full, the runtime has ticks to read already; when it
// is gone, nobody wants one.
func tick() { _, _ = syscall.Write(tickFD, []byte{'.'}) }

// await returns when the command has ended by itself or must be ended.
func (t *tree) await(limit time.Duration, abandoned <-chan struct{}, terminated <-chan os.Signal) status {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	s := status{State: command.Killed}
	select {
	case exit := <-t.exited:
		return status{State: command.Exited, Code: exitCode(exit)}
	case <-timeout.C:
		s.Cause = command.CauseTimeout
	case <-abandoned:
		s.Cause = command.CauseAbandoned
	case <-terminated:
		s.Cause = command.CauseAbandoned
	}
	select {
	case exit := <-t.exited: // both at once: it did end by itself
		return status{State: command.Exited, Code: exitCode(exit)}
	default:
		return s
	}
}

// takeSignals makes the guard deaf to all that a terminal or an owner sends, except SIGTERM, which ends the command in
// the orderly way. They are caught, not ignored: the command starts with the default actions.
func takeSignals() (terminated <-chan os.Signal) {
	term, deaf := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	signal.Notify(deaf, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGTSTP,
		syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGUSR1, syscall.SIGUSR2)
	return term
}

// seal closes what the guard inherited by accident and keeps the lock from the command. Whatever this program opens
// itself is closed on exec, so an open file without that flag came from elsewhere.
func seal() {
	open, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= lockFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	unix.CloseOnExec(lockFD)
}

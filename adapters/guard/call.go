package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"condensate.dev/cnd/core/command"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/internal/durable"
)

// Files of a call's folder.
const (
	lockFile    = "lock"
	startedFile = "started"
	outputFile  = "output"
	statusFile  = "status.json"
)

var callForm = regexp.MustCompile(`^[0-9a-z][0-9a-z._-]{0,63}$`)

// call is the folder of one call.
type call struct {
	dir  string
	mark string   // value of [Mark] in the environment of its processes
	lock *os.File // held by this process; nil otherwise
}

func (g *Guard) call(thread record.ThreadID, id string) (*call, error) {
	if !record.ValidID(record.PrefixThread, string(thread)) || !callForm.MatchString(id) {
		return nil, fmt.Errorf("call %.80q of thread %.80q: %w", id, thread, command.ErrInvalid)
	}
	return &call{dir: filepath.Join(g.dir, string(thread), id), mark: mark(thread, id)}, nil
}

func (c *call) path(name string) string { return filepath.Join(c.dir, name) }

// claim makes the folder of a call that never started, takes its lock and notes that it runs here.
func (g *Guard) claim(ctx context.Context, thread record.ThreadID, id string) (*call, error) {
	c, err := g.call(thread, id)
	if err != nil {
		return nil, err
	}
	over, err := g.turn(ctx, c)
	if err != nil {
		return nil, err
	}
	defer over()
	if err := g.makeFolders(c); err != nil {
		return nil, err
	}
	locked, err := c.tryLock()
	switch {
	case err != nil:
		return nil, err
	case !locked:
		return nil, fmt.Errorf("its guard is alive: %w", command.ErrStarted)
	}
	if exists(c.path(startedFile)) || exists(c.path(statusFile)) {
		c.unlock()
		return nil, command.ErrStarted
	}
	g.begun(c)
	return c, nil
}

// tryLock takes the lock, or says false when a guard holds it.
func (c *call) tryLock() (bool, error) {
	f, err := os.OpenFile(c.path(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		c.lock = f
		return true, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return false, fmt.Errorf("lock %s: %w", f.Name(), err)
}

// unlock closes this process's hold of the lock; a guard that inherited it keeps it.
func (c *call) unlock() {
	if c.lock != nil {
		_ = c.lock.Close()
		c.lock = nil
	}
}

// awaitLock takes the lock within limit; it returns false when somebody still holds it then.
func (c *call) awaitLock(ctx context.Context, limit time.Duration) (bool, error) {
	const interval = 5 * time.Millisecond
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	poll := time.NewTicker(interval) // flock has no wait that can be given up
	defer poll.Stop()
	for {
		if locked, err := c.tryLock(); locked || err != nil {
			return locked, err
		}
		select {
		case <-poll.C:
		case <-deadline.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// guardID returns the process id of the guard that holds the lock, or 0.
func (c *call) guardID() int {
	text, err := os.ReadFile(c.path(lockFile))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 2 {
		return 0
	}
	return pid
}

// status is the content of status.json.
type status struct {
	Version   int           `json:"v"`
	State     command.State `json:"state"`
	Code      int           `json:"exit_code"`
	Cause     string        `json:"cause,omitempty"`
	Problem   string        `json:"problem,omitempty"`
	Kept      int64         `json:"kept_bytes"`
	Dropped   int64         `json:"dropped_bytes"`
	Left      int           `json:"left"`
	ElapsedMS int64         `json:"elapsed_ms"`
}

// settle returns what is known of a call whose guard is gone, and makes it known for ever: when the guard was killed,
// it ends what is left of the call and writes the status in its place.
func (c *call) settle() (command.Status, error) {
	text, err := os.ReadFile(c.path(statusFile))
	if err == nil {
		return c.parse(text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return command.Status{}, err
	}
	if !exists(c.path(startedFile)) {
		return command.Status{State: command.NeverStarted}, nil
	}
	s := status{State: command.Killed, Cause: command.CauseLost, Left: endMarked(c.mark)}
	if info, err := os.Stat(c.path(outputFile)); err == nil {
		s.Kept = info.Size()
	}
	if err := c.write(s); err != nil {
		return command.Status{}, err
	}
	return c.export(s), nil
}

func (c *call) parse(text []byte) (command.Status, error) {
	var s status
	if err := json.Unmarshal(text, &s); err != nil {
		return command.Status{}, fmt.Errorf("%s: %w", c.path(statusFile), err)
	}
	if s.Version != 0 {
		return command.Status{}, fmt.Errorf("%s: version %d is not known", c.path(statusFile), s.Version)
	}
	return c.export(s), nil
}

func (c *call) export(s status) command.Status {
	out := command.Status{
		State: s.State, Code: s.Code, Cause: s.Cause, Problem: s.Problem, Kept: s.Kept, Dropped: s.Dropped,
		Left: s.Left, Elapsed: time.Duration(s.ElapsedMS) * time.Millisecond,
	}
	if s.State != command.NeverStarted {
		out.Output = c.path(outputFile)
	}
	return out
}

// write makes s durable as the status of the call, whole or not at all.
func (c *call) write(s status) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(c.dir, statusFile+".tmp-*") // its own name: guard and runtime may write at once
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), c.path(statusFile)); err != nil {
		return err
	}
	return durable.SyncFolder(c.dir)
}

// begin makes the durable sign that the command is about to start. It fails when there is one.
func (c *call) begin() error {
	f, err := os.OpenFile(c.path(startedFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), durable.SyncFolder(c.dir))
}

// makeFolders makes the folder of a call, private to this user. Each is synced into its parent also when it is there
// already: who made it may have died before that.
func (g *Guard) makeFolders(c *call) error {
	if err := os.MkdirAll(filepath.Dir(g.dir), 0o700); err != nil {
		return err
	}
	for _, dir := range []string{g.dir, filepath.Dir(c.dir), c.dir} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := durable.SyncFolder(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

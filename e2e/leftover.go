package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// leftoverPoll is how often the process table is read while waiting for leftovers to go.
const leftoverPoll = 20 * time.Millisecond

// Leftovers waits until no process works in the thread's folder any more, and returns the ones that still do when ctx
// ends. It reads /proc and finds nothing where there is none.
func (w *World) Leftovers(ctx context.Context) []string {
	tick := time.NewTicker(leftoverPoll)
	defer tick.Stop()
	for {
		left := w.workers()
		if len(left) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return left
		}
	}
}

// workers lists the processes whose current folder is the thread's, guards excepted: they stand elsewhere.
func (w *World) workers() []string {
	work, err := filepath.EvalSymlinks(w.Work)
	if err != nil {
		return nil
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var found []string
	for _, dir := range dirs {
		cwd, err := os.Readlink(filepath.Join(dir, "cwd"))
		if err != nil || !strings.HasPrefix(cwd+"/", work+"/") {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found = append(found, fmt.Sprintf("%d: %s", pid, strings.ReplaceAll(string(command), "\x00", " ")))
	}
	return found
}

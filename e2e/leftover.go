package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// leftoverPoll is how often the process table is read while waiting for leftovers to go.
const leftoverPoll = 20 * time.Millisecond

// callMark is the variable that every command of an agent has in its environment, with its thread and call.
const callMark = "CONDENSATE_CALL="

// Leftovers waits until no process of the world's threads is alive any more, and returns the ones that still are when
// ctx ends: whatever works in the thread's folder, has a thread's mark in its environment, or guards a call. It reads
// /proc and finds nothing where there is none.
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

// workers lists the processes of threads, guards included.
func (w *World) workers() []string {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var found []string
	for _, dir := range dirs {
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if !w.works(dir, string(command)) {
			continue
		}
		found = append(found, fmt.Sprintf("%s: %s", filepath.Base(dir), strings.ReplaceAll(string(command), "\x00", " ")))
	}
	return found
}

func (w *World) works(proc, command string) bool {
	if strings.Contains(command, filepath.Join(w.Data, "calls")) {
		return true
	}
	if cwd, err := os.Readlink(filepath.Join(proc, "cwd")); err == nil && strings.HasPrefix(cwd+"/", w.Work+"/") {
		return true
	}
	environment, _ := os.ReadFile(filepath.Join(proc, "environ"))
	for _, id := range w.threads {
		if strings.Contains(string(environment), callMark+string(id)) {
			return true
		}
	}
	return false
}

package e2e

import (
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// LeftoverLimit is how long a process of a thread may outlive the runtime.
const LeftoverLimit = 2 * time.Second

//go:embed repair.json
var repairScenario []byte

// RepairMessage is the message that the repair scenario answers. It is long enough for the provider to cache the
// request that carries it.
const RepairMessage = "Please repair the program in this folder: its test fails. " +
	"Read before you change anything, run the test before and after, write down what you did, and commit. " +
	"Nothing outside this folder may be changed by hand, and nothing in it beyond what the test asks for. "

// RepairWorld writes the scenario and a git repository with a broken program into the world, and starts the simulated
// provider and the runtime.
func (w *World) RepairWorld(ctx context.Context) error {
	scenario := filepath.Join(w.Dir, "repair.json")
	files := map[string]string{
		scenario:                         string(repairScenario),
		filepath.Join(w.Work, "sum.sh"):  "#!/bin/sh\n# usage: sum.sh A B: prints the sum\na=$1 b=$2\necho $((a - b))\n",
		filepath.Join(w.Work, "test.sh"): "#!/bin/sh\ngot=$(sh sum.sh 2 3)\n[ \"$got\" = 5 ] || { echo \"2 + 3 gave $got\"; exit 1; }\necho passed\n",
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"}, {"add", "-A"},
		{"-c", "user.name=Owner", "-c", "user.email=owner@localhost", "commit", "-q", "-m", "A program with a mistake"},
	} {
		git := exec.CommandContext(ctx, "git", args...)
		git.Dir = w.Work
		git.Env = w.Env()
		if out, err := git.CombinedOutput(); err != nil {
			return fmt.Errorf("git %v: %w: %s", args, err, out)
		}
	}
	if err := w.StartSim("--scenario", scenario); err != nil {
		return err
	}
	return w.StartRuntime()
}

// Kill says when the runtime is killed: inside a stream, at the Skip-th delta from now; or inside a command, After a
// bash call has started. With Again it is killed once more, so long after it was started again: while it recovers.
type Kill struct {
	InTool bool
	Skip   int
	After  time.Duration
	Again  time.Duration
}

// String describes the kill for people.
func (k Kill) String() string {
	where := fmt.Sprintf("inside a stream, at its delta %d", k.Skip)
	if k.InTool {
		where = fmt.Sprintf("inside a command, %d ms after it started", k.After.Milliseconds())
	}
	if k.Again > 0 {
		where += fmt.Sprintf(", and again %d ms into its recovery", k.Again.Milliseconds())
	}
	return where
}

// RandomKill draws a kill.
func RandomKill(r *rand.Rand, inTool bool) Kill {
	k := Kill{InTool: inTool, Skip: 1 + r.IntN(25), After: time.Duration(r.IntN(500)) * time.Millisecond}
	if r.IntN(3) == 0 {
		k.Again = time.Duration(1+r.IntN(80)) * time.Millisecond
	}
	return k
}

// Report hears what happens during [World.Drive].
type Report struct {
	Entry  func(record.Entry)
	Killed func(k Kill, leftFor time.Duration)
	Back   func(took time.Duration)
}

// Drive follows the thread until the turn that is running has finished, kills the runtime as planned and starts it
// again each time. Kills that find no occasion before the turn ends are left; their number is returned.
func (w *World) Drive(ctx context.Context, id record.ThreadID, from record.Seq, plan []Kill, report Report) (left int, err error) {
	w.threads = append(w.threads, id)
	deltas := 0
	for {
		again := false
		for event, err := range w.Client().Follow(ctx, id, client.FollowOptions{From: from, Deltas: true}) {
			if err != nil {
				return len(plan), err
			}
			switch event.Type {
			case client.EventEntry:
				from = event.Seq + 1
				report.Entry(event.Entry)
				if event.Entry.Kind == record.TurnFinished {
					return len(plan), nil
				}
			case client.EventDelta, client.EventSnapshot:
				deltas++
			}
			if len(plan) == 0 || !due(plan[0], event, deltas) {
				continue
			}
			if plan[0].InTool {
				pause(ctx, plan[0].After)
			}
			if err := w.killAndStart(ctx, plan[0], report); err != nil {
				return len(plan), err
			}
			plan, deltas, again = plan[1:], 0, true
			break
		}
		if !again {
			return len(plan), fmt.Errorf("follow %s ended before its turn: %w", id, context.Cause(ctx))
		}
	}
}

func due(k Kill, event client.Event, deltas int) bool {
	if !k.InTool {
		live := event.Type == client.EventDelta || event.Type == client.EventSnapshot
		return live && deltas >= k.Skip
	}
	if event.Type != client.EventEntry || event.Entry.Kind != record.ToolStarted {
		return false
	}
	return body[thread.ToolStarted](event.Entry).Name == "bash"
}

// killAndStart kills the runtime, waits for everything of the thread to die, and starts the runtime again.
func (w *World) killAndStart(ctx context.Context, k Kill, report Report) error {
	w.KillRuntime()
	if k.Again > 0 {
		if err := w.KillStartingRuntime(ctx, k.Again); err != nil {
			return err
		}
	}
	died := time.Now()
	limit, cancel := context.WithTimeout(ctx, LeftoverLimit)
	defer cancel()
	if left := w.Leftovers(limit); left != nil {
		return fmt.Errorf("alive %s after the runtime's death: %v", LeftoverLimit, left)
	}
	report.Killed(k, time.Since(died))
	start := time.Now()
	if err := w.StartRuntime(); err != nil {
		return err
	}
	report.Back(time.Since(start))
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

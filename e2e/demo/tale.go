package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/e2e"
)

// tale is one round.
type tale struct {
	*e2e.World
	dice   *rand.Rand
	bin    string
	id     record.ThreadID
	export string // file
}

func newTale(bin, dir string, dice *rand.Rand) *tale {
	return &tale{World: nil, dice: dice, bin: bin, export: filepath.Join(dir, "thread.jsonl")}
}

// tell runs the chapters in order; the first that fails ends the tale.
func (t *tale) tell(ctx context.Context) (err error) {
	if t.World, err = e2e.NewWorld(t.bin, filepath.Dir(t.export)); err != nil {
		return err
	}
	defer t.Close()
	for _, chapter := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"start", t.RepairWorld},
		{"repair", t.repair},
		{"effects", t.effects},
		{"record", t.record},
		{"work", t.work},
		{"proof", t.proof},
		{"tamper", t.tamper},
		{"cache", t.cache},
	} {
		if err := chapter.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", chapter.name, err)
		}
	}
	fmt.Println("Every promise was kept.")
	return nil
}

// repair lets the agent work and kills the runtime: once inside a stream, once inside a command, once more anywhere.
func (t *tale) repair(ctx context.Context) error {
	api := t.Client()
	id, err := api.NewThread(ctx, client.NewThread{Cwd: t.Work, Title: "demo", Allow: []string{"bash"}})
	if err != nil {
		return err
	}
	t.id = id
	receipt, err := api.Send(ctx, id, client.Message{Content: client.Text(strings.Repeat(e2e.RepairMessage, 20))})
	if err != nil {
		return err
	}
	fmt.Printf("The owner asks the agent to repair a program in a git repository (%s, entry %d).\n", id, receipt.Seq)
	plan := []e2e.Kill{
		e2e.RandomKill(t.dice, false), e2e.RandomKill(t.dice, true), e2e.RandomKill(t.dice, t.dice.IntN(2) == 0),
	}
	left, err := t.Drive(ctx, id, 0, plan, e2e.Report{
		Entry: say,
		Killed: func(k e2e.Kill, leftFor time.Duration) {
			fmt.Printf("  ** SIGKILL of the runtime %s; nothing of the thread was alive %d ms later\n", k, leftFor.Milliseconds())
		},
		Back: func(took time.Duration) {
			fmt.Printf("  ** the runtime is back after %d ms and goes on by itself\n", took.Milliseconds())
		},
	})
	if err == nil && left > 0 {
		err = fmt.Errorf("%d of %d kills found no occasion", left, len(plan))
	}
	return err
}

// say prints an entry in one line, if it moves the story.
func say(e record.Entry) {
	line := ""
	switch e.Kind {
	case record.RequestPrepared:
		if r, err := thread.Decode[thread.RequestPrepared](e); err == nil {
			line = fmt.Sprintf("request, attempt %d, fingerprint %.12s…", r.Attempt, r.Fingerprint)
		}
	case record.AnswerFinished:
		line = "answer"
	case record.AnswerAborted:
		if a, err := thread.Decode[thread.AnswerAborted](e); err == nil {
			line = "no answer: " + a.Cause
		}
	case record.ToolStarted:
		if s, err := thread.Decode[thread.ToolStarted](e); err == nil {
			line = fmt.Sprintf("call %s starts: %s (%s)", s.Call, s.Name, s.Replay)
		}
	case record.ToolUnknown:
		if u, err := thread.Decode[thread.ToolUnknown](e); err == nil {
			line = fmt.Sprintf("call %s: effect unknown, the agent is told", u.Call)
		}
	case record.ToolFinished:
		if f, err := thread.Decode[thread.ToolFinished](e); err == nil && f.Recovered {
			line = fmt.Sprintf("call %s: had come to its end, result found", f.Call)
		}
	case record.TurnFinished:
		line = "turn finished"
	}
	if line != "" {
		fmt.Printf("  %3d %s\n", e.Seq, line)
	}
}

// effects compares what the commands did, as the folder shows, with what the record says of it.
func (t *tale) effects(context.Context) error {
	started, ended, err := t.Effects()
	if err != nil {
		return err
	}
	for name, n := range started {
		if n > 1 {
			return fmt.Errorf("the command %q started %d times", name, n)
		}
	}
	fmt.Printf("Of %d commands none started twice; %d came to their end.\n", len(started), len(ended))
	return nil
}

// record checks the promises on the entries themselves.
func (t *tale) record(ctx context.Context) error {
	var entries []record.Entry
	unknown := map[string]bool{}
	for e, err := range t.Client().Entries(ctx, t.id, 0) {
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	story, broken := e2e.Tell(entries)
	if len(broken) > 0 {
		return fmt.Errorf("broken: %s", strings.Join(broken, "; "))
	}
	for _, call := range story.Unknown {
		unknown[call] = true
	}
	started, ended, err := t.Effects()
	if err != nil {
		return err
	}
	if cut := len(started) - len(ended); cut > len(unknown) {
		return fmt.Errorf("%d commands were cut off and only %d calls are reported as unknown", cut, len(unknown))
	}
	last := entries[len(entries)-1]
	end, err := thread.Decode[thread.TurnFinished](last)
	if err != nil || end.State != thread.TurnCompleted {
		return fmt.Errorf("the last entry is %s with state %q", last.Kind, end.State)
	}
	fmt.Printf("%d entries, %d generations, %d requests (%d sent again with the same bytes), %d calls: %d unknown, %d found after a crash, %d safe ones run again.\n",
		story.Entries, story.Generations, story.Requests, len(story.Resent), story.Calls, len(story.Unknown), len(story.Recovered), len(story.Rerun))
	return nil
}

// work looks at the repository: unless a crash cut the commit off, the repair is committed.
func (t *tale) work(ctx context.Context) error {
	test := exec.CommandContext(ctx, "sh", "test.sh")
	test.Dir = t.Work
	if out, err := test.CombinedOutput(); err != nil {
		return fmt.Errorf("the program is not repaired: %w: %s", err, out)
	}
	fmt.Println("The repaired program passes its test.")
	return nil
}

// proof verifies the thread in every way there is: through the running runtime, on the export, through a pipe, by the
// independent script, and on the stopped store.
func (t *tale) proof(ctx context.Context) error {
	file, err := os.Create(t.export)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := t.Client().Export(ctx, t.id, file); err != nil {
		return err
	}
	if _, _, err := t.Run(ctx, nil, "cnd-replay", "verify", string(t.id)); err != nil {
		return err
	}
	report, _, err := t.Run(ctx, nil, "cnd-replay", "verify", t.export)
	if err != nil {
		return err
	}
	pipe, err := os.Open(t.export)
	if err != nil {
		return err
	}
	defer pipe.Close()
	if _, _, err := t.Run(ctx, pipe, "cnd-replay", "verify", "-"); err != nil {
		return err
	}
	if err := t.script(ctx, t.export); err != nil {
		return err
	}
	if err := t.StopRuntime(); err != nil {
		return err
	}
	if _, _, err := t.Run(ctx, nil, "cnd-replay", "verify", string(t.id)); err != nil {
		return err
	}
	fmt.Printf("cnd-replay verify (runtime up, file, pipe, runtime down) and verify-record.sh agree:\n%s", indent(report))
	return nil
}

func (t *tale) script(ctx context.Context, path string) error {
	script, err := filepath.Abs("scripts/verify-record.sh")
	if err != nil {
		return err
	}
	_, _, err = t.Run(ctx, nil, "/bin/sh", script, path)
	return err
}

func indent(text string) string {
	lines := slices.Collect(strings.Lines(text))
	return "  " + strings.Join(lines, "  ")
}

// tamper changes one bit of the exported entries; both verifiers must refuse it. The line with the signed head is left
// out: the script, which has no cryptography beyond a hash, cannot check the signature in it.
func (t *tale) tamper(ctx context.Context) error {
	export, err := os.ReadFile(t.export)
	if err != nil {
		return err
	}
	entries := bytes.LastIndexByte(bytes.TrimSuffix(export, []byte("\n")), '\n')
	at := t.dice.IntN(entries)
	export[at] ^= 1 << t.dice.IntN(8)
	forged := t.export + ".forged"
	if err := os.WriteFile(forged, export, 0o600); err != nil {
		return err
	}
	_, code, refusal := t.Run(ctx, nil, "cnd-replay", "verify", forged)
	if refusal == nil {
		return fmt.Errorf("cnd-replay did not notice a changed bit in byte %d", at)
	}
	if t.script(ctx, forged) == nil {
		return fmt.Errorf("verify-record.sh did not notice a changed bit in byte %d", at)
	}
	fmt.Printf("One changed bit in byte %d: both refuse it (exit %d).\n", at, code)
	return nil
}

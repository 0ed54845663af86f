package record_test

import (
	"bytes"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

var update = flag.Bool("update", false, "write the golden records anew")

// goldenDir holds complete exports that verify.
const goldenDir = "../../testdata/records"

// pixel is a PNG of one pixel.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// goldens are the stories of the golden records, by file name.
var goldens = map[string]func(t *testing.T) *story{
	"small":     smallStory,
	"turn":      turnStory,
	"tools":     toolsStory,
	"image":     imageStory,
	"fork":      forkStory,
	"erased":    erasedStory,
	"interrupt": interruptStory,
}

// TestGolden shows that the same events give the same bytes, for ever, and that they verify.
func TestGolden(t *testing.T) {
	for name, tell := range goldens {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(goldenDir, name+".jsonl")
			export := tell(t).export()
			if *update {
				require.NoError(t, os.WriteFile(path, export, 0o644))
			}
			golden, err := os.ReadFile(path)
			require.NoError(t, err)
			want, got := lines(golden), lines(export)
			require.Len(t, got, len(want))
			for i := range want {
				require.Equal(t, string(want[i]), string(got[i]), lineName(i+1))
			}

			var state loop.State
			r, err := record.VerifyExport(bytes.NewReader(golden), record.VerifyOptions{Opener: signer}, state.Apply)
			require.NoError(t, err, "it verifies, and the loop could go on from it")
			require.Equal(t, signer.VerifierKey(), r.Key)
			require.Zero(t, r.Unanchored)
		})
	}
}

// smallStory has a line of every sort and little else, for tests that try many changes.
func smallStory(t *testing.T) *story {
	s := newStory(t, "Small")
	note := record.NewBlob([]byte("to be kept apart"))
	_, slip := s.accept(thread.ModeQueue, nil, text("a slip"))
	_, _ = s.accept(thread.ModeQueue, []record.Blob{note}, thread.Block{Type: "text", Blob: note.Ref()})
	s.erase(slip, "a slip")
	s.fork()
	s.engine(thread.EngineReopened)
	return s
}

func turnStory(t *testing.T) *story {
	s := newStory(t, "Rounding")
	s.ask(text("What is 2^53 + 1 as a double? Answer with the number.\u2028Thanks \U0001f642"))
	s.answer("9007199254740992", "", "")
	s.finish()
	return s
}

func toolsStory(t *testing.T) *story {
	s := newStory(t, "Make the test pass")
	s.ask(text("The test fails. Make it pass."))
	call := s.answer("I run it first.", "bash", `{"command":"go test ./..."}`)
	s.allow(call, "bash", nil)
	s.result(call, "--- FAIL: TestAdd\n\tadd_test.go:9: got 3, want 4\n", 1)
	s.prepare(1, 0)
	call = s.answer("", "edit", `{"path":"add.go","old":"a + 1","new":"a + b"}`)
	s.add(record.PolicyDecided, thread.PolicyDecided{Call: call, Verdict: thread.VerdictAsk, Rule: "edits", Reason: "edits ask"})
	s.add(record.ApprovalAsked, thread.ApprovalAsked{Call: call, Turn: s.turn, Reason: "edits ask"})
	s.add(record.TurnWaiting, thread.TurnWaiting{Turn: s.turn, Reason: thread.WaitApproval, Call: call})
	s.add(record.ApprovalAnswered, thread.ApprovalAnswered{Call: call, Verdict: thread.VerdictAllow, By: "owner"})
	s.add(record.ToolStarted, thread.ToolStarted{Call: call, Name: "edit", Replay: thread.ReplayUnsafe, Effect: &thread.FileEffect{
		Path: "/home/ada/engine/add.go", Before: record.NewBlob([]byte("before")).Digest.String(), After: record.NewBlob([]byte("after")).Digest.String(),
	}})
	s.result(call, "1 replacement", 0)
	s.prepare(1, 0)
	s.answer("It adds both numbers now.", "", "")
	s.finish()
	return s
}

func imageStory(t *testing.T) *story {
	data, err := base64.StdEncoding.DecodeString(pixel)
	require.NoError(t, err)
	image := record.NewBlob(data)
	block := thread.Block{Type: "image", MediaType: "image/png", Blob: image.Ref()}
	s := newStory(t, "A pixel")
	s.askWith([]record.Blob{image}, text("What is this?"), block)
	s.answer("One pixel.", "", "")
	s.finish()
	s.askWith([]record.Blob{image}, block, text("And this?"))
	s.answer("The same one.", "", "")
	s.finish()
	return s
}

func forkStory(t *testing.T) *story {
	s := newStory(t, "Two ways")
	s.ask(text("Name a prime."))
	s.answer("7", "", "")
	s.finish()
	s.fork()
	s.engine(thread.EngineReopened)
	s.ask(text("Another one."))
	s.answer("11", "", "")
	s.finish()
	s.fork()
	s.engine(thread.EngineReopened)
	s.ask(text("A larger one."))
	s.answer("101", "", "")
	s.finish()
	return s
}

func erasedStory(t *testing.T) *story {
	s := newStory(t, "A slip")
	secret := s.ask(text("My password is correct horse. Is that a good one?"))
	s.answer("It is known to everybody.", "", "")
	s.finish()
	s.erase(secret, "a password")
	s.epoch("erase")
	s.ask(text("Forget that. What makes a good one?"))
	s.answer("Length, and that nobody knows it.", "", "")
	s.finish()
	return s
}

func interruptStory(t *testing.T) *story {
	s := newStory(t, "Too long")
	s.ask(text("Count to a million."))
	first := s.request.Seq
	s.engine(thread.EngineRecovered)
	s.add(record.AnswerAborted, thread.AnswerAborted{Request: first, Attempt: 1, Cause: thread.CauseCrash})
	s.prepare(2, first)
	id, accepted := s.accept(thread.ModeSteer, nil, text("In words, please."))
	s.add(record.MessagePlaced, thread.MessagePlaced{ID: id, Accepted: accepted.Seq, Turn: s.turn})
	s.add(record.TurnInterrupted, thread.TurnInterrupted{Turn: s.turn, By: "owner", ID: s.newID(record.PrefixMessage)})
	said := "One, two, three,"
	s.add(record.AnswerAborted, thread.AnswerAborted{
		Request: s.request.Seq, Attempt: 2, Cause: thread.CauseInterrupt, ShownText: said, TextBytes: int64(len(said)),
	})
	s.add(record.TurnFinished, thread.TurnFinished{Turn: s.turn, State: thread.TurnStopped})
	s.ask(text("To ten, then."))
	s.answer("One to ten: done.", "", "")
	s.finish()
	return s
}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	export, err := os.ReadFile(filepath.Join(goldenDir, name+".jsonl"))
	require.NoError(t, err)
	return export
}

// verify verifies an export with the key that it names.
func verify(export []byte) error {
	_, err := record.VerifyExport(bytes.NewReader(export), record.VerifyOptions{Opener: signer}, nil)
	return err
}

// damagedLine returns the line that err names, or 0.
func damagedLine(err error) int64 {
	if d, ok := err.(*record.Damage); ok {
		return d.Line
	}
	return 0
}

func lineName(n int) string { return fmt.Sprintf("line %d", n) }

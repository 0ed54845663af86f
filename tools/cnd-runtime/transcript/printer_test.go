package transcript

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// page is a printer with what it printed.
type page struct {
	*Printer
	out  bytes.Buffer
	head record.Head
	t    *testing.T
}

func newPage(t *testing.T) *page {
	p := &page{t: t}
	p.Printer = New(&p.out)
	return p
}

func (p *page) entry(kind record.Kind, body any) {
	p.t.Helper()
	e, err := record.Seal("thr_00000000000000000000000001", p.head, record.Salt{}, record.Draft{Kind: kind, Body: thread.Encode(body)})
	require.NoError(p.t, err)
	p.head = e.Head()
	p.Entry(e)
}

func (p *page) delta(request record.Seq, attempt int, kind, call, text string) {
	p.Delta(loop.Delta{Request: request, Attempt: attempt, Kind: kind, Call: call, Text: text})
}

func (p *page) requirePrinted(want string) {
	p.t.Helper()
	p.End()
	require.Equal(p.t, strings.TrimPrefix(want, "\n"), p.out.String())
}

func say(text string) []thread.Block { return []thread.Block{{Type: "text", Text: text}} }

func calls(id, name, input string) []thread.Block {
	return []thread.Block{{Type: "tool_call", Call: id, Name: name, Input: json.RawMessage(input)}}
}

// Everything that a person should know has its line.
func TestEntries(t *testing.T) {
	p := newPage(t)
	one := 1
	p.entry(record.ThreadCreated, thread.Created{Cwd: "/w"})
	p.entry(record.MessageAccepted, thread.MessageAccepted{ID: "m", Content: say("fix it\nplease")})
	p.entry(record.MessagePlaced, thread.MessagePlaced{ID: "m"})
	p.entry(record.AnswerFinished, thread.AnswerFinished{Request: 3, Attempt: 1, View: append(say("I look."), calls("3.0", "bash", `{"command":"ls\nid"}`)...)})
	p.entry(record.ApprovalAsked, thread.ApprovalAsked{Call: "3.0", Reason: "asks"})
	p.entry(record.TurnWaiting, thread.TurnWaiting{Reason: thread.WaitApproval, Call: "3.0"})
	p.entry(record.ApprovalAnswered, thread.ApprovalAnswered{Call: "3.0", Verdict: thread.VerdictAllow, By: "owner"})
	p.entry(record.ToolStarted, thread.ToolStarted{Call: "3.0", Name: "bash"})
	p.entry(record.ToolFinished, thread.ToolFinished{Call: "3.0", Content: say("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"), ExitCode: &one, CutBytes: 7, Spool: "/s/1"})
	p.entry(record.ToolUnknown, thread.ToolUnknown{Call: "4.0", Cause: "crash"})
	p.entry(record.PolicyDecided, thread.PolicyDecided{Call: "5.0", Verdict: thread.VerdictDeny, Rule: "r", Reason: "never"})
	p.entry(record.AnswerAborted, thread.AnswerAborted{Cause: thread.CauseOverloaded, Detail: "busy"})
	p.entry(record.TurnWaiting, thread.TurnWaiting{Reason: thread.WaitRateLimited, Until: "2026-11-30T20:48:23Z"})
	p.entry(record.HistoryRepaired, thread.HistoryRepaired{Target: 9, Repair: thread.RepairDropBlock, Why: "empty text"})
	p.entry(record.EpochStarted, thread.EpochStarted{Reason: "repair", CacheTokensLost: 1200})
	p.entry(record.IncidentSeen, thread.IncidentSeen{What: "secret"})
	p.entry(record.TurnLost, thread.TurnLost{Cause: "crash"})
	p.entry(record.TurnInterrupted, thread.TurnInterrupted{By: "owner"})
	p.entry(record.TurnFinished, thread.TurnFinished{State: thread.TurnFailed, Error: &thread.Error{Code: "x", Message: "broken", Hint: "mend it"}})
	p.requirePrinted(`
> fix it
> please
I look.
! 3.0 waits for approval: bash ls
!   id
- 3.0 approved by owner
* bash ls⏎id
  | 1
  | 2
  | 3
  | 4
  | … 2 more lines …
  | 7
  | 8
  | 9
  | 10
  exit code 1
  7 bytes are not shown to the agent; all of it: /s/1
- whether 4.0 took effect is not known (crash)
- denied by rule r: 5.0: never
- the answer broke off: overloaded: busy
- the turn waits: rate-limited, until 2026-11-30T20:48:23Z
- entry 9 repaired (drop-block): empty text
- new epoch (repair): 1200 tokens of the cached prefix are read again
- incident: secret
- the runtime died in this turn (crash); it waits for resume
- interrupted by owner
- the turn failed: x: broken
- hint: mend it
`)
}

// What streamed is not printed again when it is recorded; what did not is.
func TestStreams(t *testing.T) {
	p := newPage(t)
	p.delta(3, 1, "thinking", "", "hm")
	p.delta(3, 1, "thinking", "", "hm")
	p.delta(3, 1, "text", "", "I lo")
	p.delta(3, 1, "text", "", "ok.")
	p.entry(record.AnswerFinished, thread.AnswerFinished{Request: 3, Attempt: 1, View: append(say("I look."), calls("3.0", "bash", `{"command":"ls"}`)...)})
	p.Event(client.Event{Type: client.EventReset})
	p.entry(record.ToolStarted, thread.ToolStarted{Call: "3.0", Name: "bash"})
	p.delta(3, 1, "output", "3.0", "a\nb")
	p.delta(3, 1, "output", "3.0", "c\n")
	p.entry(record.ToolFinished, thread.ToolFinished{Call: "3.0", Content: say("a\nbc\n")})
	p.entry(record.AnswerFinished, thread.AnswerFinished{Request: 7, Attempt: 1, View: say("Done.")})
	p.requirePrinted(`
- thinking
I look.
* bash ls
  | a
  | bc
Done.
`)
}

// A snapshot fills up what is on the screen; another attempt begins on a line of its own.
func TestSnapshots(t *testing.T) {
	p := newPage(t)
	p.delta(3, 1, "text", "", "Once upon")
	p.Snapshot(client.Snapshot{Request: 3, Attempt: 1, Parts: []client.Part{{Kind: "text", Text: "Once upon a time"}}})
	p.delta(3, 1, "text", "", " there")
	p.Event(client.Event{Type: client.EventReset})
	p.Snapshot(client.Snapshot{Request: 3, Attempt: 2, Parts: []client.Part{{Kind: "text", Text: "Once"}, {Kind: "output", Call: "2.0", Text: "x\n"}}})
	p.delta(3, 2, "text", "", "upon")
	p.Snapshot(client.Snapshot{Request: 4, Attempt: 1, CutBytes: 10, Parts: []client.Part{{Kind: "text", Text: "the end"}}})
	p.requirePrinted(`
Once upon a time there
Once
  | x
upon
the end
`)
}

// Foreign text cannot command the terminal.
func TestClean(t *testing.T) {
	p := newPage(t)
	p.delta(3, 1, "text", "", "a\x1b[2Jb\x9bc\u202ed\re\x00\x7f\ttab\nline")
	p.entry(record.MessageAccepted, thread.MessageAccepted{ID: "m", Content: say("\x1b]0;title\a")})
	p.entry(record.MessagePlaced, thread.MessagePlaced{ID: "m"})
	p.entry(record.TurnFinished, thread.TurnFinished{State: "\x1b[31m"})
	p.Note("%s", "fine")
	p.End()
	for _, r := range p.out.String() {
		require.False(t, r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0x202e, "%q", p.out.String())
	}
	require.Contains(t, p.out.String(), "\ttab\nline\n")
}

// A prompt stands alone on its line, once, and what is typed there is not shown again.
func TestPrompt(t *testing.T) {
	p := newPage(t)
	p.Prompt("> ")
	p.Prompt("> ")
	p.Typed("m")
	p.Entered()
	p.entry(record.MessageAccepted, thread.MessageAccepted{ID: "m", Content: say("hello")})
	p.entry(record.MessagePlaced, thread.MessagePlaced{ID: "m"})
	p.Prompt("> ")
	p.Note("news")
	p.Prompt("> ")
	require.Equal(t, "> > \n- news\n> ", p.out.String())
}

// An erased entry, and one that does not fit its kind, are told and stop nothing.
func TestOddEntries(t *testing.T) {
	p := newPage(t)
	e, err := record.Seal("thr_00000000000000000000000001", record.Head{}, record.Salt{}, record.Draft{Kind: record.TurnFinished, Body: []byte(`{"state":7}`)})
	require.NoError(t, err)
	p.Entry(e)
	p.Entry(e.Erase(9))
	p.entry("future.kind", struct{}{})
	p.End()
	require.Contains(t, p.out.String(), "- entry 0 of thr_00000000000000000000000001 (turn.finished): json:")
	require.Contains(t, p.out.String(), "- entry 0 (turn.finished) was erased by entry 9\n")
}

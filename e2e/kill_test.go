package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/record"
)

var (
	kills = flag.Int("kills", 50, "how often TestKill kills the runtime")
	seed  = flag.Uint64("seed", 1, "seed of TestKill")
)

// TestKill kills the real runtime with SIGKILL at random moments inside streams and commands, at least -kills times,
// and starts it again. No command starts twice, no call is without its one result, no message is lost or placed
// twice, resent requests have the same fingerprint, every cut effect is reported, nothing of the thread outlives the
// runtime by 2 s, and every record verifies.
func TestKill(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	w, err := NewWorld(bin, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(w.Close)
	require.NoError(t, w.RepairWorld(ctx))

	dice := rand.New(rand.NewPCG(*seed, 0))
	killed := 0
	report := Report{
		Entry:  func(record.Entry) {},
		Killed: func(Kill, time.Duration) { killed++ },
		Back:   func(time.Duration) {},
	}
	for turn := 0; killed < *kills; turn++ {
		require.Less(t, turn, *kills, "too many turns without a kill")
		require.NoError(t, w.ClearEffects())
		id, err := w.Client().NewThread(ctx, client.NewThread{Cwd: w.Work, Allow: []string{"bash"}})
		require.NoError(t, err)
		_, err = w.Client().Send(ctx, id, client.Message{Content: client.Text(RepairMessage)})
		require.NoError(t, err)

		var plan []Kill
		for range 8 {
			plan = append(plan, RandomKill(dice, dice.IntN(2) == 0))
		}
		_, err = w.Drive(ctx, id, 0, plan, report)
		require.NoError(t, err, "seed %d, turn %d, plan %v", *seed, turn, plan)
		requirePromises(t, ctx, w, id)
	}
	t.Logf("%d kills", killed)
}

func requirePromises(t *testing.T, ctx context.Context, w *World, id record.ThreadID) {
	t.Helper()
	var entries []record.Entry
	for e, err := range w.Client().Entries(ctx, id, 0) {
		require.NoError(t, err)
		entries = append(entries, e)
	}
	story, broken := Tell(entries)
	require.Empty(t, broken, "thread %s", id)

	started, ended, err := w.Effects()
	require.NoError(t, err)
	for name, n := range started {
		require.Equal(t, 1, n, "command %q started %d times", name, n)
	}
	require.LessOrEqual(t, len(started)-len(ended), len(story.Unknown), "a cut command is not reported as unknown")

	var export strings.Builder
	require.NoError(t, w.Client().Export(ctx, id, &export))
	_, _, err = w.Run(ctx, strings.NewReader(export.String()), "cnd-replay", "verify", "-")
	require.NoError(t, err)
}

// TestTellNotices shows that the checker of the test above can fail: each broken story is told apart.
func TestTellNotices(t *testing.T) {
	entry := func(seq int, kind record.Kind, body string) record.Entry {
		return record.Entry{Seq: record.Seq(seq), Kind: kind, Body: []byte(body)}
	}
	for name, tc := range map[string]struct {
		entries []record.Entry
		broken  string
	}{
		"unsafe twice": {[]record.Entry{
			entry(0, record.ToolStarted, `{"call":"1.0","name":"bash","replay":"unsafe"}`),
			entry(1, record.ToolStarted, `{"call":"1.0","name":"bash","replay":"unsafe"}`),
			entry(2, record.ToolFinished, `{"call":"1.0"}`),
		}, "call 1.0 is unsafe and started 2 times"},
		"no result": {[]record.Entry{
			entry(0, record.ToolStarted, `{"call":"1.0","name":"read","replay":"safe"}`),
		}, "call 1.0 has 0 results"},
		"placed twice": {[]record.Entry{
			entry(0, record.MessageAccepted, `{"id":"msg_a"}`),
			entry(1, record.MessagePlaced, `{"id":"msg_a"}`),
			entry(2, record.MessagePlaced, `{"id":"msg_a"}`),
		}, "message msg_a was placed 2 times"},
		"other bytes": {[]record.Entry{
			entry(0, record.RequestPrepared, `{"attempt":1,"fingerprint":"a"}`),
			entry(1, record.AnswerAborted, `{"request":0}`),
			entry(2, record.RequestPrepared, `{"attempt":2,"first":0,"fingerprint":"b"}`),
			entry(3, record.AnswerFinished, `{"request":2}`),
		}, "another fingerprint"},
		"no answer": {[]record.Entry{entry(4, record.RequestPrepared, `{"attempt":1}`)}, "request 4 has 0 answers"},
		"no end":    {[]record.Entry{entry(0, record.TurnStarted, `{"turn":"trn_a"}`)}, "turn trn_a"},
	} {
		t.Run(name, func(t *testing.T) {
			_, broken := Tell(tc.entries)
			require.Contains(t, fmt.Sprint(broken), tc.broken)
		})
	}
	_, broken := Tell([]record.Entry{
		entry(0, record.MessageAccepted, `{"id":"msg_a"}`),
		entry(1, record.TurnStarted, `{"turn":"trn_a"}`),
		entry(2, record.MessagePlaced, `{"id":"msg_a"}`),
		entry(3, record.RequestPrepared, `{"attempt":1}`),
		entry(4, record.AnswerFinished, `{"request":3,"view":[{"type":"tool_call","call":"3.0"}]}`),
		entry(5, record.ToolStarted, `{"call":"3.0","replay":"unsafe"}`),
		entry(6, record.ToolUnknown, `{"call":"3.0"}`),
		entry(7, record.TurnFinished, `{"turn":"trn_a"}`),
	})
	require.Empty(t, broken)
}

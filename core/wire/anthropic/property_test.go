package anthropic_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/builder"
	"condensate.dev/cnd/core/wire/wiretest"
)

var texts = []string{
	"hello", "", " \n\t ", "say \"hi\" \\ /", "\x00\x01\x1f\x7f", "\u2028\u2029\u00e9\U0001f600", "\xff broken \xc3",
	"\u00a0\u3000", "line\nline\r\n", "</script><&>",
}

var natives = []string{
	`{"type":"text","text":"ok \u2028\ud83d\ude00"}`, `{"type":"text","text":""}`, `{"type":"text","text":"\u00a0 \n"}`,
	`{"type":"thinking","thinking":"hm","signature":"c2ln"}`, `{"type":"thinking","thinking":"hm","signature":""}`,
	`{"type":"redacted_thinking","data":"ZGF0YQ=="}`, `{"type":"text","text":"n","n":1.00,"e":1e400}`,
}

// walk makes a random thread that does everything that a loop may do, and more.
type walk struct {
	*wiretest.Thread
	r        *rand.Rand
	settings thread.EpochStarted
	waiting  []record.Entry // accepted, not placed
	calls    int            // of the newest answer
	ids      int
}

func (w *walk) pick(of []string) string { return of[w.r.IntN(len(of))] }

func (w *walk) content() (blocks []thread.Block) {
	for range w.r.IntN(4) {
		blocks = append(blocks, wiretest.Text(w.pick(texts)))
		if w.r.IntN(8) == 0 {
			blocks = append(blocks, thread.Block{Type: "image", MediaType: "image/png", Blob: w.Keep([]byte(w.pick(texts)))})
		}
		if w.r.IntN(8) == 0 {
			blocks = append(blocks, thread.Block{Type: "text", Blob: w.Keep([]byte(w.pick(texts)))})
		}
	}
	return blocks
}

func (w *walk) natives() (blocks []string) {
	w.calls = 0
	for range w.r.IntN(5) {
		blocks = append(blocks, w.pick(natives))
	}
	if w.r.IntN(2) == 0 {
		for range 1 + w.r.IntN(14) {
			w.ids++
			w.calls++
			blocks = append(blocks, fmt.Sprintf(`{"type":"tool_use","id":"toolu_%d","name":"bash","input":{}}`, w.ids))
		}
	}
	return blocks
}

// results gives results to most calls, in any order, and to some that do not exist.
func (w *walk) results() {
	for _, i := range w.r.Perm(w.calls) {
		switch w.r.IntN(12) {
		case 0:
			w.Add(record.ToolUnknown, thread.ToolUnknown{Call: w.Call(i), Cause: "crash", Partial: w.pick(texts)})
		case 1: // none
		case 2:
			w.Result(i, wiretest.Text("twice"))
			w.Result(i, wiretest.Text("twice"))
		default:
			w.Result(i, w.content()...)
		}
	}
	if w.r.IntN(10) == 0 {
		w.Result(99, wiretest.Text("orphan"))
	}
}

func (w *walk) step() {
	switch w.r.IntN(10) {
	case 0:
		w.waiting = append(w.waiting, w.Accept(w.content()...))
	case 1:
		w.Add(record.NoteInjected, thread.NoteInjected{Text: w.pick(texts)})
	case 2:
		if len(w.waiting) > 0 {
			w.Place(w.waiting[0])
			w.waiting = w.waiting[1:]
		}
	case 3, 4:
		w.Message(w.content()...)
	case 5:
		w.epoch()
	default:
		w.turn()
	}
}

// turn asks for an answer until it comes or is given up.
func (w *walk) turn() {
	w.Message(wiretest.Text("go on"))
	for {
		if w.repair() {
			w.Begin(w.settings)
			continue
		}
		w.Request()
		switch w.r.IntN(6) {
		case 0:
			w.Aborted(thread.AnswerAborted{Cause: thread.CauseCrash})
			continue
		case 1:
			raw := make([]thread.Raw, 0)
			for _, n := range w.natives() {
				raw = append(raw, thread.Raw{JSON: []byte(n)})
			}
			w.Aborted(thread.AnswerAborted{Cause: thread.CauseInterrupt, Native: raw, ShownText: w.pick(texts)})
			w.calls = 0
		case 2:
			w.Aborted(thread.AnswerAborted{Cause: thread.CauseInvalid})
			w.calls = 0
		default:
			w.Answer(w.natives()...)
			w.results()
		}
		return
	}
}

// repair records what the builder asks for and says whether a new epoch must follow.
func (w *walk) repair() (sent bool) {
	for range 100 {
		problems := w.Problems()
		if len(problems) == 0 {
			return sent
		}
		for _, p := range problems {
			w.Repair(p)
			sent = sent || p.Sent
		}
	}
	w.T.Fatal("repairs do not end")
	return false
}

// epoch starts a new one, after taking something back.
func (w *walk) epoch() {
	if n := record.Seq(len(w.Lines)); w.r.IntN(2) == 0 && n > 10 {
		from := 3 + record.Seq(w.r.IntN(int(n)-3))
		w.Add(record.StepUndone, thread.StepUndone{From: from, To: min(n-1, from+record.Seq(w.r.IntN(10)))})
	}
	w.Begin(w.settings)
	w.calls = 0
}

func newWalk(t *testing.T, seed uint64) *walk {
	w := &walk{Thread: wiretest.New(t), r: rand.New(rand.NewPCG(seed, 1)), settings: wiretest.Epoch()}
	w.settings.Cache.Diagnostics = seed%2 == 0
	if seed%3 == 0 {
		w.settings.Cache.TTL = ""
	}
	w.Begin(w.settings)
	return w
}

// Every request of a random thread is one that the provider takes, begins with the request before it in its epoch, and
// is rebuilt byte for byte from the entries; a resend has the same bytes.
func TestRandomThreads(t *testing.T) {
	for seed := range uint64(100) {
		w := newWalk(t, seed)
		for range 30 {
			w.step()
		}
		requireRequests(t, w.Thread, seed)
	}
}

func requireRequests(t *testing.T, th *wiretest.Thread, seed uint64) {
	t.Helper()
	var out bytes.Buffer
	var b wire.Builder
	var before []byte // the bytes of the epoch's last request up to the end of its last message
	for _, e := range th.Lines {
		switch {
		case e.Kind == record.EpochStarted:
			out.Reset()
			before = nil
			var err error
			b, err = builder.Open(t.Context(), th, e, &out)
			require.NoError(t, err)
			continue
		case b == nil:
			continue
		case e.Kind == record.RequestPrepared:
			tail, err := b.Close()
			require.NoError(t, err)
			require.Equal(t, th.Tails[e.Seq].Messages, tail.Messages)
			require.Equal(t, th.Tails[e.Seq].Blocks, tail.Blocks)
			body := append(bytes.Clone(out.Bytes()), tail.Bytes...)
			require.Equal(t, string(th.Bodies[e.Seq]), string(body), "seed %d request %d", seed, e.Seq)
			require.True(t, bytes.HasPrefix(body, before), "seed %d request %d", seed, e.Seq)
			require.Empty(t, refusal(body), "seed %d request %d: %s", seed, e.Seq, body)
			before = bytes.Clone(out.Bytes())
			prepared, err := thread.Decode[thread.RequestPrepared](e)
			require.NoError(t, err)
			if prepared.First != 0 {
				require.Equal(t, string(th.Bodies[prepared.First]), string(body), "seed %d: resend at %d", seed, e.Seq)
			}
		}
		require.NoError(t, b.Add(t.Context(), e))
	}
}

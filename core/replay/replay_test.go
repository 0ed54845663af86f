package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/replay"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire"
	"condensate.dev/cnd/core/wire/wiretest"
)

const toolUse = `{"type":"tool_use","id":"toolu_1","name":"bash","input":{"command":"ls"}}`

// turns adds turns of two requests each.
func turns(th *wiretest.Thread, n int) {
	for range n {
		th.Message(wiretest.Text("list the files, please"))
		th.Request()
		th.Answer(`{"type":"text","text":"I look."}`, toolUse)
		th.Result(0, wiretest.Text("a\nb\n"))
		th.Request()
		th.Answer(`{"type":"text","text":"There are a and b."}`)
	}
}

func verify(t *testing.T, th *wiretest.Thread) replay.Report {
	t.Helper()
	v := replay.NewVerifier(th)
	for _, e := range th.Lines {
		require.NoError(t, v.Add(t.Context(), e))
	}
	return v.Report()
}

// Every request of a thread with several epochs, resends and an interrupt is rebuilt, in one pass.
func TestVerify(t *testing.T) {
	th := wiretest.New(t)
	th.Begin(wiretest.Epoch())
	turns(th, 3)
	th.Message(wiretest.Text("again"))
	first := th.Request()
	th.Aborted(thread.AnswerAborted{Cause: thread.CauseCrash})
	second := th.Request()
	th.Aborted(thread.AnswerAborted{Cause: thread.CauseInterrupt, ShownText: "I was"})
	th.Begin(wiretest.Epoch())
	turns(th, 2)

	require.Equal(t, th.Bodies[first.Seq], th.Bodies[second.Seq])
	r := verify(t, th)
	require.Nil(t, r.First)
	require.EqualValues(t, 12, r.Requests)
	require.EqualValues(t, 12, r.Verified)
	require.EqualValues(t, 2, r.Epochs)
}

// The bytes that are hashed grow with the thread, not with its square.
func TestVerifyIsLinear(t *testing.T) {
	hashed := func(n int) int64 {
		th := wiretest.New(t)
		th.Begin(wiretest.Epoch())
		turns(th, n)
		r := verify(t, th)
		require.Zero(t, r.Different)
		return r.Bytes
	}
	one := hashed(101) - hashed(100)
	require.EqualValues(t, one, hashed(201)-hashed(200))
	require.Less(t, one, int64(2000))
}

// forged returns a thread in which the request after n turns was recorded in another way.
func forged(t *testing.T, n int, change func(*thread.RequestPrepared)) (*wiretest.Thread, record.Seq) {
	th := wiretest.New(t)
	th.Begin(wiretest.Epoch())
	turns(th, n)
	th.Message(wiretest.Text("changed"))
	th.Forge = change
	bad := th.Request()
	th.Forge = nil
	th.Answer(`{"type":"text","text":"ok"}`)
	turns(th, 1)
	return th, bad.Seq
}

// Whatever of a request is recorded in another way is found, at its place.
func TestVerifyFindsTheFirstDifference(t *testing.T) {
	zero := record.Digest{}.String()
	for name, tc := range map[string]struct {
		change func(*thread.RequestPrepared)
		why    string
	}{
		"fingerprint": {func(p *thread.RequestPrepared) { p.Fingerprint = zero }, ""},
		"body hash":   {func(p *thread.RequestPrepared) { p.BodySHA256 = zero }, ""},
		"length":      {func(p *thread.RequestPrepared) { p.BodyBytes++ }, ""},
		"epoch":       {func(p *thread.RequestPrepared) { p.Epoch++ }, "names epoch 2 and stands in epoch 1"},
		"resend":      {func(p *thread.RequestPrepared) { p.Attempt, p.First = 2, p.Epoch }, "no resend"},
	} {
		t.Run(name, func(t *testing.T) {
			th, seq := forged(t, 2, tc.change)
			r := verify(t, th)
			require.EqualValues(t, 7, r.Requests)
			require.EqualValues(t, 6, r.Verified)
			require.EqualValues(t, 1, r.Different)
			require.Equal(t, seq, r.First.Seq)
			require.ErrorIs(t, r.First, replay.ErrDifferent)
			require.Contains(t, r.First.Why, tc.why)
			require.Contains(t, r.First.Error(), r.First.Recorded.Fingerprint)
			require.Contains(t, r.First.Error(), r.First.Rebuilt.Fingerprint)
			require.Positive(t, r.First.Same)
		})
	}
}

// Of a body whose recorded bytes are gone, the first difference is bounded and what stands there now is shown.
func TestExplain(t *testing.T) {
	th, seq := forged(t, 1, func(p *thread.RequestPrepared) { p.Fingerprint = "other" })
	d, err := replay.Explain(t.Context(), th, seq)
	require.NoError(t, err)
	require.Equal(t, seq, d.Seq)
	require.Contains(t, d.Around, `{"role":"assistant","content":[{"type":"text","text":"There are a and b."}]}`)
	body := th.Bodies[seq]
	require.Equal(t, string(body[d.Same-40:d.Same+80]), d.Around)

	d, err = replay.Explain(t.Context(), th, seq-4)
	require.NoError(t, err)
	require.Nil(t, d, "all requests up to there verify")
}

// An entry that was erased takes the proof of the requests that used it, and of no others.
func TestErasedRequestsAreUnprovable(t *testing.T) {
	th := wiretest.New(t)
	th.Begin(wiretest.Epoch())
	turns(th, 1)
	secret := th.Message(wiretest.Text("my password is x"))
	before := th.Request()
	th.Answer(`{"type":"text","text":"oh"}`)
	th.Erase(secret.Seq)
	th.Begin(wiretest.Epoch())
	turns(th, 1)
	r := verify(t, th)
	require.Nil(t, r.First)
	require.EqualValues(t, 5, r.Requests)
	require.EqualValues(t, 4, r.Verified)
	require.EqualValues(t, 1, r.Unprovable)
	require.NotContains(t, string(th.Bodies[before.Seq+6]), "password")

	require.ErrorIs(t, replay.Body(t.Context(), th, before.Seq, &bytes.Buffer{}), wire.ErrUnprovable)
}

// Body writes the exact bytes of any request, and nothing when they are not the recorded ones.
func TestBody(t *testing.T) {
	th, bad := forged(t, 3, func(p *thread.RequestPrepared) { p.Fingerprint = "other" })
	for seq, want := range th.Bodies {
		var out bytes.Buffer
		err := replay.Body(t.Context(), th, seq, &out)
		if seq == bad {
			var d *replay.Difference
			require.ErrorAs(t, err, &d)
			require.Empty(t, out.String())
			continue
		}
		require.NoError(t, err)
		require.Equal(t, string(want), out.String())
	}
	require.ErrorIs(t, replay.Body(t.Context(), th, 0, &bytes.Buffer{}), replay.ErrNoRequest)
	require.ErrorIs(t, replay.Body(t.Context(), th, record.Seq(len(th.Lines)), &bytes.Buffer{}), replay.ErrNoRequest)
}

// A record in the right form whose bodies make no sense is a difference at its place, not a failure of the tool.
func TestVerifyOfNonsense(t *testing.T) {
	for name, add := range map[string]func(*wiretest.Thread){
		"answer without blocks": func(th *wiretest.Thread) {
			th.Lines = append(th.Lines, seal(th, record.AnswerFinished, `{"native":7}`))
		},
		"unknown message": func(th *wiretest.Thread) {
			th.Lines = append(th.Lines, seal(th, record.MessagePlaced, `{"accepted":99}`))
		},
		"no string": func(th *wiretest.Thread) { th.Lines = append(th.Lines, seal(th, record.NoteInjected, `{"text":[]}`)) },
	} {
		t.Run(name, func(t *testing.T) {
			th := wiretest.New(t)
			th.Begin(wiretest.Epoch())
			turns(th, 1)
			add(th)
			th.Lines = append(th.Lines, seal(th, record.RequestPrepared, `{"epoch":1,"attempt":1}`))
			r := verify(t, th)
			require.EqualValues(t, 1, r.Different)
			require.Contains(t, r.First.Error(), "cannot be rebuilt")
		})
	}
}

func seal(th *wiretest.Thread, kind record.Kind, body string) record.Entry {
	e, err := record.Seal(wiretest.ID, th.Head(), record.Salt{}, record.Draft{Time: th.Now, Kind: kind, Body: []byte(body)})
	require.NoError(th.T, err)
	return e
}

func TestVerifyRefusesUnknownBuilder(t *testing.T) {
	th := wiretest.New(t)
	settings := wiretest.Epoch()
	settings.Builder = "anthropic/9"
	v := replay.NewVerifier(th)
	require.NoError(t, v.Add(t.Context(), th.Lines[0]))
	require.ErrorIs(t, v.Add(t.Context(), th.Add(record.EpochStarted, settings)), wire.ErrUnknownBuilder)
}

// failingBlobs is a source whose blobs cannot be read.
type failingBlobs struct{ *wiretest.Thread }

var errDisk = errors.New("disk on fire")

func (failingBlobs) Blob(context.Context, record.Digest) ([]byte, error) { return nil, errDisk }

// A source that fails is an error, never a difference.
func TestVerifyReportsSourceErrors(t *testing.T) {
	th := wiretest.New(t)
	th.Begin(wiretest.Epoch())
	th.Message(thread.Block{Type: "text", Blob: th.Keep([]byte("long"))})
	v := replay.NewVerifier(failingBlobs{th})
	var err error
	for _, e := range th.Lines {
		if err = v.Add(t.Context(), e); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, errDisk)
}

func usage(read, write int64) thread.Usage {
	in, out := int64(10), int64(20)
	return thread.Usage{Input: &in, Output: &out, CacheRead: &read, CacheWrite: &write}
}

func cacheLines(t *testing.T, th *wiretest.Thread) (lines []replay.CacheLine) {
	t.Helper()
	for line, err := range replay.Cache(t.Context(), th) {
		require.NoError(t, err)
		lines = append(lines, line)
	}
	return lines
}

// ask adds a message, its request and an answer with that usage.
func ask(th *wiretest.Thread, u thread.Usage) {
	th.Message(wiretest.Text("more"))
	e := th.Request()
	th.Add(record.AnswerFinished, thread.AnswerFinished{
		Request: e.Seq, Attempt: 1, Native: []thread.Raw{{JSON: []byte(`{"type":"text","text":"ok"}`)}}, Usage: u,
	})
}

func TestCache(t *testing.T) {
	th := wiretest.New(t)
	th.Begin(wiretest.Epoch())
	ask(th, usage(0, 1000))
	ask(th, usage(1000, 50))
	ask(th, usage(400, 700)) // less than expected
	th.Message(wiretest.Text("crash"))
	th.Request()
	th.Aborted(thread.AnswerAborted{Cause: thread.CauseCrash})
	e := th.Request()
	th.Add(record.AnswerFinished, thread.AnswerFinished{Request: e.Seq, Attempt: 2, Usage: usage(1150, 0)})
	th.Now = th.Now.Add(6 * time.Minute)
	ask(th, usage(0, 1200))
	th.Begin(wiretest.Epoch())
	ask(th, thread.Usage{})
	ask(th, usage(5, 5))

	var got []string
	for _, l := range cacheLines(t, th) {
		got = append(got, strings.TrimSpace(strings.Join([]string{l.Outcome, l.Expect, strings.SplitN(l.Broke, ":", 2)[0]}, " ")))
	}
	require.Equal(t, []string{
		"finished unknown first of epoch 1 (created)",
		"finished exact",
		"finished exact",
		"crash exact",
		"finished at_least",
		"finished unknown expired",
		"finished unknown first of epoch 24 (created)",
		"finished unknown no answer of epoch 24 (created) reported its usage",
	}, got)
	lines := cacheLines(t, th)
	require.EqualValues(t, 1000, lines[1].ExpectedRead)
	require.EqualValues(t, 1050, lines[2].ExpectedRead)
	require.EqualValues(t, 1100, lines[4].ExpectedRead)
	for i, l := range lines {
		require.Equal(t, i == 2, l.Missed, "line %d", i)
	}
}

// A thread whose answers hold more blocks than the provider looks back over keeps its cache with explicit breakpoints,
// three times; then the miss is expected.
func TestCacheLookBack(t *testing.T) {
	th := wiretest.New(t)
	th.Begin(wiretest.Epoch())
	ask(th, usage(0, 1000))
	for range 4 {
		th.Message(many(25)...)
		e := th.Request()
		th.Add(record.AnswerFinished, thread.AnswerFinished{Request: e.Seq, Attempt: 1, Usage: usage(1000, 0)})
	}
	lines := cacheLines(t, th)
	require.Len(t, lines, 5)
	for _, l := range lines[1:4] {
		require.Equal(t, replay.ExpectExact, l.Expect)
	}
	require.Equal(t, replay.ExpectUnknown, lines[4].Expect)
	require.Contains(t, lines[4].Broke, "look-back")
}

func many(n int) (blocks []thread.Block) {
	for range n {
		blocks = append(blocks, wiretest.Text("x"))
	}
	return blocks
}

// What the provider says of a miss is part of the line.
func TestCacheDiagnostics(t *testing.T) {
	th := wiretest.New(t)
	settings := wiretest.Epoch()
	settings.Cache.Diagnostics = true
	th.Begin(settings)
	ask(th, usage(0, 1000))
	th.Message(wiretest.Text("more"))
	e := th.Request()
	th.Add(record.AnswerFinished, thread.AnswerFinished{
		Request: e.Seq, Attempt: 1, Usage: usage(0, 1000), Diagnostics: []byte(`{"cache_miss_reason":{"type":"tools_changed"}}`),
	})
	line := cacheLines(t, th)[1]
	require.True(t, line.Missed)
	require.Equal(t, "provider: tools_changed", line.Broke)
}

// Diff names the first entry and the first request byte that differ.
func TestDiff(t *testing.T) {
	build := func(word string, more int) *wiretest.Thread {
		th := wiretest.New(t)
		th.Begin(wiretest.Epoch())
		turns(th, 2)
		th.Message(wiretest.Text(strings.Repeat("long ", 20000) + word))
		th.Request()
		turns(th, more)
		return th
	}
	a, b := build("left", 0), build("right", 0)
	d, err := replay.Diff(t.Context(), a, b)
	require.NoError(t, err)
	require.EqualValues(t, 16, d.Entry.Seq)
	require.Contains(t, d.Entry.A, "left")
	require.Contains(t, d.Entry.B, "right")
	require.EqualValues(t, 4, d.Request.N)
	bodyA, bodyB := a.Bodies[d.Request.SeqA], b.Bodies[d.Request.SeqB]
	n := int(d.Request.Offset)
	require.Equal(t, bodyA[:n], bodyB[:n])
	require.NotEqual(t, bodyA[n], bodyB[n])
	require.Equal(t, string(bodyA[n-40:min(len(bodyA), n+80)]), d.Request.A)
	require.Equal(t, string(bodyB[n-40:min(len(bodyB), n+80)]), d.Request.B)

	d, err = replay.Diff(t.Context(), a, build("left", 0))
	require.NoError(t, err)
	require.Equal(t, replay.Divergence{}, d)

	d, err = replay.Diff(t.Context(), a, build("left", 1))
	require.NoError(t, err)
	require.Empty(t, d.Entry.KindA)
	require.Equal(t, "b", d.Request.OnlyIn)
}

// When a resend is refused the person learns where: exactly if the record still gives the recorded bytes, else not
// before which byte.
func TestDrift(t *testing.T) {
	th := wiretest.New(t)
	th.Begin(wiretest.Epoch())
	turns(th, 1)
	th.Message(wiretest.Text("one two"))
	e := th.Request()
	now := bytes.Replace(th.Bodies[e.Seq], []byte("one two"), []byte("one 2wo"), 1)
	at := bytes.Index(now, []byte("2wo"))
	got := replay.Drift(t.Context(), th, e.Seq, now)
	require.Contains(t, got, fmt.Sprintf("the first byte that differs is %d: recorded ", at))
	require.Contains(t, got, "one two")
	require.Contains(t, got, "one 2wo")

	th, seq := forged(t, 1, func(p *thread.RequestPrepared) { p.Fingerprint = "other" })
	got = replay.Drift(t.Context(), th, seq, th.Bodies[seq])
	require.Regexp(t, `^the first byte that differs is not before \d+, where the rebuilt body has "`, got)

	require.Equal(t, "where they differ is not known: entry 0 is thread.created: no such request", replay.Drift(t.Context(), th, 0, now))
}

package replay_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/replay"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/core/wire/wiretest"
)

// A verifier in its own goroutine finds the same, also when the caller uses its buffers again.
func TestBeside(t *testing.T) {
	th := wiretest.New(t)
	th.Begin(wiretest.Epoch())
	for range 20 {
		th.Message(wiretest.Text(strings.Repeat("long ", 10_000)))
		th.Request()
		th.Answer(`{"type":"text","text":"ok"}`)
	}
	want := verify(t, th)
	b := replay.StartBeside(t.Context(), th)
	var buf []byte
	for _, e := range th.Lines {
		buf = append(buf[:0], e.Body...)
		e.Body = buf
		require.NoError(t, b.Add(e))
		clear(buf)
	}
	got, err := b.Wait()
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.EqualValues(t, 20, got.Verified)
}

// Its error reaches the caller, who is never stuck with more to add.
func TestBesideFails(t *testing.T) {
	th := wiretest.New(t)
	th.Begin(wiretest.Epoch())
	th.Message(thread.Block{Type: "text", Blob: th.Keep([]byte("x"))})
	for range 100 {
		th.Message(wiretest.Text(strings.Repeat("x", 100_000)))
	}
	b := replay.StartBeside(t.Context(), failingBlobs{th})
	var err error
	for _, e := range th.Lines {
		if err = b.Add(e); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, errDisk)
	_, err = b.Wait()
	require.ErrorIs(t, err, errDisk)
}

// A record that ends before anything went wrong is waited for.
func TestBesideFailsAtTheEnd(t *testing.T) {
	th := wiretest.New(t)
	th.Begin(wiretest.Epoch())
	th.Message(thread.Block{Type: "text", Blob: th.Keep([]byte("x"))})
	b := replay.StartBeside(t.Context(), failingBlobs{th})
	for _, e := range th.Lines {
		require.NoError(t, b.Add(e))
	}
	_, err := b.Wait()
	require.ErrorIs(t, err, errDisk)
}

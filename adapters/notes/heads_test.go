package notes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

func testKey(t *testing.T, seed byte) *Key {
	t.Helper()
	key, err := LoadOrCreateKey(filepath.Join(t.TempDir(), "record.key"), rand.NewChaCha8([32]byte{seed}))
	require.NoError(t, err)
	return key
}

func openHeads(t *testing.T, path string, key record.HeadSigner) *Heads {
	t.Helper()
	h, err := OpenHeads(path, key, hashAt, func(err error) { t.Errorf("background writer: %v", err) })
	require.NoError(t, err)
	return h
}

// hashAt knows every place of every thread.
func hashAt(_ record.ThreadID, seq record.Seq) (record.Digest, error) { return at(int(seq)).Hash, nil }

// at returns a place of a thread.
func at(seq int) record.Head {
	return record.Head{Seq: record.Seq(seq), Hash: record.NewBlob([]byte{byte(seq), byte(seq >> 8)}).Digest}
}

// TestHeads signs, closes, opens again and goes on: one chain of notes.
func TestHeads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "heads.jsonl")
	key := testKey(t, 1)
	a, b := recordtest.ThreadID(1), recordtest.ThreadID(2)
	newest, err := Newest(path, a)
	require.NoError(t, err)
	require.Nil(t, newest)

	h := openHeads(t, path, key)
	first, err := h.Sign(a, at(3))
	require.NoError(t, err)
	require.True(t, first.Prev.IsZero())
	require.NoError(t, first.Open(Opener{}, key.VerifierKey()))
	again, err := h.Sign(a, at(3))
	require.NoError(t, err)
	require.Equal(t, first, again, "the same place gets the same note")
	h.Add(b, at(1))
	h.Add(b, at(2))
	h.Add(a, at(7))
	require.NoError(t, h.Close())
	require.NoError(t, h.Close())
	_, err = h.Sign(a, at(9))
	require.ErrorIs(t, err, ErrClosed)
	h.Add(a, at(9))

	h = openHeads(t, path, key)
	newest, err = h.Newest(a)
	require.NoError(t, err)
	require.Equal(t, at(7), newest.Place())
	last, err := h.Sign(b, at(4))
	require.NoError(t, err)
	require.Equal(t, newest.NoteHash(), last.Prev)
	older, err := h.Sign(a, at(5))
	require.NoError(t, err)
	require.Equal(t, *newest, older, "an older place is not signed after a newer one")
	_, err = h.Sign(a, record.Head{Seq: 7, Hash: at(8).Hash})
	require.ErrorIs(t, err, ErrOtherHead)
	require.NoError(t, h.Close())

	for thread, seq := range map[record.ThreadID]int{a: 7, b: 4} {
		newest, err = Newest(path, thread)
		require.NoError(t, err)
		require.Equal(t, at(seq), newest.Place())
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 4, bytes.Count(text, []byte("\n")), "3, 2 and 7, 4: what came together of one thread is one note")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// TestHeadsTorn cuts the file at every length: whole notes stay, the rest is trimmed, and the chain goes on.
func TestHeadsTorn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "heads.jsonl")
	key := testKey(t, 1)
	h := openHeads(t, path, key)
	thread := recordtest.ThreadID(1)
	for seq := range 2 {
		_, err := h.Sign(thread, at(seq))
		require.NoError(t, err)
	}
	require.NoError(t, h.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for length := range len(text) + 1 {
		require.NoError(t, os.WriteFile(path, text[:length], 0o600))
		whole := bytes.Count(text[:length], []byte("\n"))
		newest, err := Newest(path, thread)
		require.NoError(t, err)
		require.Equal(t, whole == 0, newest == nil)
		h := openHeads(t, path, key)
		if whole > 0 {
			require.Equal(t, at(whole-1), newest.Place())
		}
		if length%50 == 0 {
			_, err = h.Sign(thread, at(100))
			require.NoError(t, err)
		}
		require.NoError(t, h.Close())
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(after, bytes.Join(bytes.SplitAfter(text, []byte("\n"))[:whole], nil)))
		if length%50 == 0 {
			require.Equal(t, whole+1, bytes.Count(after, []byte("\n")))
			newest, err = Newest(path, thread)
			require.NoError(t, err)
			require.Equal(t, at(100), newest.Place())
		}
	}
}

// TestHeadsDamaged shows that anything but a torn end is refused.
func TestHeadsDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "heads.jsonl")
	key := testKey(t, 1)
	h := openHeads(t, path, key)
	for seq := range 3 {
		_, err := h.Sign(recordtest.ThreadID(seq), at(seq))
		require.NoError(t, err)
	}
	require.NoError(t, h.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := bytes.SplitAfter(text, []byte("\n"))
	refuse := func(name string, want error, bad ...[]byte) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, bytes.Join(bad, nil), 0o600))
		_, err := OpenHeads(path, key, hashAt, func(error) {})
		require.ErrorIs(t, err, want, name)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(bytes.Join(bad, nil), after), name)
	}
	refuse("the first is gone", ErrHeadsDamaged, lines[1], lines[2])
	refuse("one is gone", ErrHeadsDamaged, lines[0], lines[2])
	refuse("twice", ErrHeadsDamaged, lines[0], lines[0])
	refuse("swapped", ErrHeadsDamaged, lines[1], lines[0])
	refuse("blank", ErrHeadsDamaged, lines[0], []byte("\n"))
	refuse("other text", ErrHeadsDamaged, []byte("hello\n"))
	refuse("too long", ErrHeadsDamaged, bytes.Repeat([]byte("x"), record.MaxLine+1))
	signature := bytes.LastIndexByte(lines[2], ' ') + 20
	for bit := range 6 {
		forged := bytes.Clone(lines[2])
		forged[signature] ^= 1 << bit
		require.NoError(t, os.WriteFile(path, bytes.Join([][]byte{lines[0], lines[1], forged}, nil), 0o600))
		_, err := OpenHeads(path, key, hashAt, func(error) {})
		require.Error(t, err)
	}
	require.NoError(t, os.WriteFile(path, text, 0o600))
	_, err = OpenHeads(path, testKey(t, 2), hashAt, func(error) {})
	require.ErrorIs(t, err, ErrOtherKey)
	require.Equal(t, fault.Config, fault.ClassOf(err))
	require.NotEmpty(t, fault.HintOf(err))
}

// memoryFile is a file whose operations are counted and can fail.
type memoryFile struct {
	mu    sync.Mutex
	text  []byte
	syncs int
	fail  error         // of every sync, when set by failWith
	hang  chan struct{} // when set, every sync first takes from it, and then again
}

func (m *memoryFile) ReadAt(b []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(b, m.text[off:]), nil
}

func (m *memoryFile) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text = append(m.text, b...)
	return len(b), nil
}

func (m *memoryFile) Truncate(size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text = m.text[:size]
	return nil
}

func (m *memoryFile) Sync() error {
	if m.hang != nil {
		<-m.hang
		<-m.hang
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail == nil {
		m.syncs++
	}
	return m.fail
}

// failWith lets every sync from now on fail with err, or succeed.
func (m *memoryFile) failWith(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

func (m *memoryFile) Close() error { return nil }

func (m *memoryFile) counts() (lines, syncs int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Count(m.text, []byte("\n")), m.syncs
}

func memoryHeads(f *memoryFile, onError func(error)) *Heads {
	h := &Heads{
		key: recordtest.NewSigner("test", 1), hashAt: hashAt, onError: onError, file: f, newest: make(map[record.ThreadID]place),
		wake: make(chan struct{}, 1), done: make(chan struct{}), ended: make(chan struct{}),
	}
	go h.write()
	return h
}

// TestHeadsBatch shows that heads that come together are written in one piece with one sync, within the delay.
func TestHeadsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &memoryFile{}
		h := memoryHeads(f, func(err error) { t.Error(err) })
		for round := range 3 {
			for i := range 100 {
				h.Add(recordtest.ThreadID(i%20), at(100*round+i))
			}
			time.Sleep(MaxDelay - time.Millisecond)
			lines, syncs := f.counts()
			require.Equal(t, [2]int{20 * round, round}, [2]int{lines, syncs})
			time.Sleep(2 * time.Millisecond)
			lines, syncs = f.counts()
			require.Equal(t, [2]int{20 * (round + 1), round + 1}, [2]int{lines, syncs})
		}
		h.Add(recordtest.ThreadID(1), at(999))
		require.NoError(t, h.Close())
		lines, syncs := f.counts()
		require.Equal(t, [2]int{61, 4}, [2]int{lines, syncs}, "Close writes what waits")
	})
}

// TestHeadsDoNotWait adds a head while another one is being synced: who adds is in the middle of a turn.
func TestHeadsDoNotWait(t *testing.T) {
	f := &memoryFile{hang: make(chan struct{})}
	h := memoryHeads(f, func(err error) { t.Error(err) })
	signed, added := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := h.Sign(recordtest.ThreadID(1), at(1))
		signed <- err
	}()
	f.hang <- struct{}{} // the sync has begun
	go func() {
		h.Add(recordtest.ThreadID(1), at(2))
		h.Add(recordtest.ThreadID(2), at(1))
		close(added)
	}()
	select {
	case <-added:
	case <-time.After(10 * time.Second):
		t.Error("Add waits for the disk")
	}
	close(f.hang)
	require.NoError(t, <-signed)
	require.NoError(t, h.Close())
	lines, syncs := f.counts()
	require.Equal(t, [2]int{3, 2}, [2]int{lines, syncs})
}

// TestHeadsFail shows that a failed sync costs no head: what the write left is cut off and written again.
func TestHeadsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("disk on fire")
		f := &memoryFile{}
		f.failWith(broken)
		var heard []error
		h := memoryHeads(f, func(err error) { heard = append(heard, err) })
		h.Add(recordtest.ThreadID(1), at(1))
		h.Add(recordtest.ThreadID(2), at(1))
		time.Sleep(2 * MaxDelay)
		synctest.Wait()
		require.Len(t, heard, 1)
		require.ErrorIs(t, heard[0], broken)
		require.ErrorIs(t, h.Err(), broken)
		_, err := h.Sign(recordtest.ThreadID(3), at(1))
		require.ErrorIs(t, err, broken)
		require.ErrorIs(t, h.Flush(), broken)
		h.Add(recordtest.ThreadID(1), at(2))
		time.Sleep(RetryDelay)
		synctest.Wait()
		require.Len(t, heard, 2, "it is tried again")

		f.failWith(nil)
		time.Sleep(RetryDelay)
		synctest.Wait()
		require.Len(t, heard, 2)
		require.NoError(t, h.Err())
		_, err = h.Sign(recordtest.ThreadID(3), at(1))
		require.NoError(t, err)
		var signed []record.Head
		_, size, err := scan(bytes.NewReader(f.text), func(head record.SignedHead, _ place) {
			signed = append(signed, head.Place())
		})
		require.NoError(t, err, "one chain")
		require.EqualValues(t, len(f.text), size)
		require.ElementsMatch(t, []record.Head{at(2), at(1), at(1)}, signed)
		newest, err := h.Newest(recordtest.ThreadID(1))
		require.NoError(t, err)
		require.Equal(t, at(2), newest.Place())
		require.NoError(t, h.Close())
	})
}

// TestHeadsPoison shows that a head that cannot be signed stops no other thread.
func TestHeadsPoison(t *testing.T) {
	var heard []error
	f := &memoryFile{}
	h := memoryHeads(f, func(err error) { heard = append(heard, err) })
	_, err := h.Sign(recordtest.ThreadID(1), at(1))
	require.NoError(t, err)
	h.Add(recordtest.ThreadID(1), record.Head{Seq: 1, Hash: at(2).Hash})
	h.Add(recordtest.ThreadID(2), at(1))
	require.NoError(t, h.Flush())
	newest, err := h.Newest(recordtest.ThreadID(2))
	require.NoError(t, err)
	require.Equal(t, at(1), newest.Place())
	require.Len(t, heard, 1)
	require.ErrorIs(t, heard[0], ErrOtherHead)
	_, err = h.Sign(recordtest.ThreadID(1), record.Head{Seq: 1, Hash: at(2).Hash})
	require.ErrorIs(t, err, ErrOtherHead)
	require.NoError(t, h.Close())
}

// TestHeadsOtherHistory gives heads of a thread that was changed while nobody looked: what is signed of it stands.
func TestHeadsOtherHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "heads.jsonl")
	key := testKey(t, 1)
	thread := recordtest.ThreadID(1)
	h := openHeads(t, path, key)
	_, err := h.Sign(thread, at(5))
	require.NoError(t, err)
	require.NoError(t, h.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)

	unreadable := errors.New("unreadable")
	for name, c := range map[string]struct {
		at     int
		holds  record.Digest // at the signed place
		fails  error
		reason error
	}{
		"another entry": {at: 9, holds: at(6).Hash, reason: ErrOtherHead},
		"shorter":       {at: 4, reason: ErrOtherHead},
		"unreadable":    {at: 9, fails: unreadable, reason: unreadable},
	} {
		var heard []error
		h, err := OpenHeads(path, key, func(id record.ThreadID, seq record.Seq) (record.Digest, error) {
			require.Equal(t, thread, id)
			require.EqualValues(t, 5, seq)
			return c.holds, c.fails
		}, func(err error) { heard = append(heard, err) })
		require.NoError(t, err)
		_, err = h.Sign(thread, at(c.at))
		require.ErrorIs(t, err, c.reason, name)
		h.Add(thread, at(c.at))
		require.NoError(t, h.Flush())
		require.Len(t, heard, 1)
		require.ErrorIs(t, heard[0], c.reason, name)
		require.NoError(t, h.Close())
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(text), string(after), name)
	}
}

// TestHeadsTogether signs from many goroutines: one chain.
func TestHeadsTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "heads.jsonl")
	key := testKey(t, 1)
	h := openHeads(t, path, key)
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for seq := range 10 {
				h.Add(recordtest.ThreadID(i), at(seq))
				if _, err := h.Sign(recordtest.ThreadID(i), at(seq)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	require.NoError(t, h.Close())
	h = openHeads(t, path, key)
	defer h.Close()
	for i := range 8 {
		newest, err := h.Newest(recordtest.ThreadID(i))
		require.NoError(t, err)
		require.Equal(t, at(9), newest.Place())
	}
}

// TestOpener holds the notes of golang.org/x/mod against those of the standard library, both ways.
func TestOpener(t *testing.T) {
	key, other := testKey(t, 1), recordtest.NewSigner("condensate.dev/record", 7)
	for _, s := range []record.HeadSigner{key, other} {
		h, err := record.SignHead(s, recordtest.ThreadID(1), at(3), at(2).Hash)
		require.NoError(t, err)
		for _, o := range []record.HeadOpener{Opener{}, other} {
			require.NoError(t, h.Open(o, s.VerifierKey()))
			require.ErrorIs(t, h.Open(o, testKey(t, 3).VerifierKey()), record.ErrHead)
			require.ErrorIs(t, h.Open(o, "nonsense"), record.ErrHead)
		}
		require.NotEmpty(t, record.KeyID(s.VerifierKey()))
	}
	paths, err := filepath.Glob("../../testdata/records/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, p := range paths {
		export, err := os.ReadFile(p)
		require.NoError(t, err)
		_, err = record.VerifyExport(bytes.NewReader(export), record.VerifyOptions{Opener: Opener{}}, nil)
		require.NoError(t, err, p)
	}
}

// TestKeyFile shows how the key is kept: made once, by one of many, readable by nobody else, never printed.
func TestKeyFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "config")
	path := filepath.Join(dir, "record.key")
	var wait sync.WaitGroup
	keys := make([]string, 8)
	for i := range keys {
		wait.Go(func() {
			key, err := LoadOrCreateKey(path, rand.NewChaCha8([32]byte{byte(i)}))
			if err != nil {
				t.Error(err)
				return
			}
			keys[i] = key.VerifierKey()
		})
	}
	wait.Wait()
	for _, k := range keys {
		require.Equal(t, keys[0], k)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing temporary is left")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	key, err := LoadKey(path)
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	secret := strings.TrimSpace(string(text[bytes.LastIndexByte(text, '+')+1:]))
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("key", "key", key)
	asJSON, err := json.Marshal(key)
	require.NoError(t, err)
	for _, printed := range []string{fmt.Sprint(key), fmt.Sprintf("%+v %#v %d %x %s", key, key, key, key, *key), log.String(), string(asJSON)} {
		require.NotContains(t, printed, secret)
		require.Contains(t, printed, "[redacted]")
	}
}

// TestKeyIsNeverReplaced shows that a key that another process made in the meantime wins.
func TestKeyIsNeverReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.key")
	first, err := LoadOrCreateKey(path, rand.NewChaCha8([32]byte{1}))
	require.NoError(t, err)
	require.ErrorIs(t, createKey(path, rand.NewChaCha8([32]byte{2})), os.ErrExist)
	again, err := LoadOrCreateKey(path, rand.NewChaCha8([32]byte{2}))
	require.NoError(t, err)
	require.Equal(t, first.VerifierKey(), again.VerifierKey())
}

func TestKeyFileRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.key")
	_, err := LoadKey(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	testText := func(text string, mode os.FileMode) error {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chmod(path, mode))
		_, err := LoadOrCreateKey(path, rand.NewChaCha8([32]byte{}))
		return err
	}
	const secret = "AYEHUdDpQ8MYpZTXVwuD8T24uRVsQZFGQMwzqTR1bQn1"
	for _, text := range []string{"", "nonsense", "PRIVATE+KEY+x+00000000+" + secret, "PRIVATE+KEY+x", secret} {
		err := testText(text, 0o600)
		require.ErrorIs(t, err, ErrKey, text)
		require.NotContains(t, err.Error(), secret)
	}
	for _, mode := range []os.FileMode{0o644, 0o660, 0o601} {
		err := testText("x", mode)
		require.ErrorIs(t, err, ErrKey)
		require.Equal(t, "chmod 600 "+path, fault.HintOf(err))
	}
	_, err = LoadOrCreateKey(filepath.Join(t.TempDir(), "record.key"), strings.NewReader("too little"))
	require.Error(t, err)
}

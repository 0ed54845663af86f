package pebblestore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// TestEveryBit flips bits of the files: the store does not open, or reading says that it is damaged, or the bit did not
// matter and everything is as it was. Only in a log can a flip look like the torn end of what was written; then what is
// left is a record that ends earlier, which a signed head shows. CND_FAULT_SEEDS tries more of the bits.
func TestEveryBit(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	m := newModel()
	jobs := script(t, 18, 200)
	for _, part := range [][]job{jobs[:9], jobs[9:]} {
		s, err := pebblestore.Open("store", pebblestore.Options{FS: disk, Project: countEntries})
		require.NoError(t, err)
		require.NoError(t, m.run(s, part))
		require.NoError(t, s.Close())
	}
	disk = crash(disk, 0, 0)
	files := contents(t, disk)
	names := make([]string, 0, len(files))
	for name, content := range files {
		if content != "" && !strings.HasPrefix(name, "OPTIONS") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	rng := rand.New(rand.NewPCG(4, 4))
	outcomes := make(map[string]int)
	for i := range seeds(200) {
		name := names[int(i)%len(names)]
		content := []byte(files[name])
		bit := rng.IntN(8 * len(content))
		content[bit/8] ^= 1 << (bit % 8)
		copied := crash(disk, 0, 0)
		writeAll(t, copied, "store/"+name, content)
		outcome := flipped(copied, m, strings.HasSuffix(name, ".log"))
		require.NotContains(t, outcome, "silent", "bit %d of %s: %s", bit, name, outcome)
		outcomes[outcome]++
	}
	t.Log(outcomes)
	require.Positive(t, outcomes["refused"])
	require.Positive(t, outcomes["unharmed"])
}

// flipped says what a store with a flipped bit is like.
func flipped(disk vfs.FS, m *model, log bool) string {
	s, err := pebblestore.Open("store", pebblestore.Options{FS: disk, Project: countEntries})
	if err != nil {
		if fault.ClassOf(err) == fault.Internal {
			return fmt.Sprintf("silent about its class: %v", err)
		}
		return "refused"
	}
	defer s.Close()
	switch err := survived(s, m, m); {
	case err == nil:
		return "unharmed"
	case errors.Is(err, record.ErrDamaged):
		return "damage found"
	case log && survived(s, newModel(), m) == nil:
		return "ends earlier"
	default:
		return fmt.Sprintf("silent: %v", err)
	}
}

// TestTamper edits the store with Pebble's own means, so that all checksums are right: reading finds it.
func TestTamper(t *testing.T) {
	w := recordtest.NewWriter(1)
	all := w.Start(t, 8)
	other := recordtest.NewWriter(2)
	theirs := other.Start(t, 8)
	edited := *recordtest.NewWriter(1)
	fake := []record.Entry{edited.Seal(t, record.ThreadCreated, `{"cwd":"/elsewhere"}`)}
	fake = append(fake, edited.More(t, 7)...)
	blob := record.NewBlob([]byte("blob"))
	withBlob := w.Seal(t, record.ToolFinished, recordtest.Listing(blob), blob)

	key := func(e record.Entry) []byte {
		return append(fmt.Appendf(nil, "t/%s/\x00\x00\x00\x00\x00\x00\x00", e.Thread), byte(e.Seq))
	}
	for name, edit := range map[string]func(b *pebble.Batch){
		"an entry is gone":            func(b *pebble.Batch) { b.Delete(key(all[3]), nil) },
		"the first entry is gone":     func(b *pebble.Batch) { b.Delete(key(all[0]), nil) },
		"the newest entry is gone":    func(b *pebble.Batch) { b.Delete(key(withBlob), nil) },
		"two are swapped":             func(b *pebble.Batch) { b.Set(key(all[3]), all[4].Line, nil); b.Set(key(all[4]), all[3].Line, nil) },
		"one stands twice":            func(b *pebble.Batch) { b.Set(key(all[4]), all[3].Line, nil) },
		"one is another thread's":     func(b *pebble.Batch) { b.Set(key(all[3]), theirs[3].Line, nil) },
		"one is of another history":   func(b *pebble.Batch) { b.Set(key(all[3]), fake[3].Line, nil) },
		"the rest is another history": func(b *pebble.Batch) { setAll(b, key, fake[3:]) },
		"all is another history":      func(b *pebble.Batch) { setAll(b, key, fake) },
		"one byte of a body":          func(b *pebble.Batch) { b.Set(key(all[3]), flip(all[3].Line, len(all[3].Line)-3), nil) },
		"one byte of a header":        func(b *pebble.Batch) { b.Set(key(all[3]), flip(all[3].Line, 20), nil) },
		"no line at all":              func(b *pebble.Batch) { b.Set(key(all[3]), nil, nil) },
		"the head is cut":             func(b *pebble.Batch) { b.Set([]byte("h/"+w.ID), make([]byte, 39), nil) },
		"the head is another":         func(b *pebble.Batch) { b.Set([]byte("h/"+w.ID), make([]byte, 40), nil) },
		"a blob is another":           func(b *pebble.Batch) { b.Set(append([]byte("b/"), blob.Digest[:]...), []byte("bulb"), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			s, err := pebblestore.Open("store", pebblestore.Options{FS: disk})
			require.NoError(t, err)
			_, err = s.Append(t.Context(), w.ID, record.Head{}, append(all[:8:8], withBlob)...)
			require.NoError(t, err)
			require.NoError(t, s.Close())
			db := openPebble(t, disk)
			b := db.NewBatch()
			edit(b)
			require.NoError(t, b.Commit(pebble.Sync))
			require.NoError(t, db.Close())

			s = openStore(t, "store", pebblestore.Options{FS: disk})
			_, err = record.VerifyThread(t.Context(), s, w.ID, record.VerifyOptions{Unsigned: true}, nil)
			if name == "the head is another" {
				require.ErrorIs(t, err, record.ErrNotFound, "a zero hash is no head")
				return
			}
			require.ErrorIs(t, err, record.ErrDamaged)
			require.Equal(t, fault.Corrupt, fault.ClassOf(err))
			if name != "a blob is another" {
				_, err = stored(s, w.ID)
				require.ErrorIs(t, err, record.ErrDamaged, "reading alone finds it")
			}
		})
	}
}

func setAll(b *pebble.Batch, key func(record.Entry) []byte, entries []record.Entry) {
	for _, e := range entries {
		b.Set(key(e), e.Line, nil)
	}
}

func flip(line []byte, at int) []byte {
	line = slices.Clone(line)
	line[at] ^= 1
	return line
}

// TestRollback puts an older state of all files back. The store cannot know: it takes a signed head from outside.
func TestRollback(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s := openStore(t, "store", pebblestore.Options{FS: disk})
	w := recordtest.NewWriter(1)
	signer := recordtest.NewSigner("test", 1)
	_, err := s.Append(t.Context(), w.ID, record.Head{}, w.Start(t, 3)...)
	require.NoError(t, err)
	older := crash(disk, 0, 0)
	before := w.Head
	_, err = s.Append(t.Context(), w.ID, before, w.More(t, 2)...)
	require.NoError(t, err)
	head, err := record.SignHead(signer, w.ID, w.Head, record.Digest{})
	require.NoError(t, err)
	options := record.VerifyOptions{Opener: signer, Key: signer.VerifierKey(), Head: &head}
	_, err = record.VerifyThread(t.Context(), s, w.ID, options, nil)
	require.NoError(t, err)

	s = openStore(t, "store", pebblestore.Options{FS: older})
	_, err = record.VerifyThread(t.Context(), s, w.ID, record.VerifyOptions{Unsigned: true}, nil)
	require.NoError(t, err, "by itself it is a good record")
	_, err = record.VerifyThread(t.Context(), s, w.ID, options, nil)
	require.Equal(t, fault.Corrupt, fault.ClassOf(err), "%v", err)
}

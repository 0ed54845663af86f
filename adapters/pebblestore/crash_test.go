package pebblestore_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/adapters/pebblestore/syncwatch"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// TestPowerFailure cuts the power after every append and keeps none, some or all of what was not synced.
func TestPowerFailure(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	s := openStore(t, "store", pebblestore.Options{FS: disk, Project: countEntries})
	m := newModel()
	for i, j := range script(t, 20, 300) {
		require.NoError(t, m.run(s, []job{j}))
		for _, percent := range []int{0, 20, 50, 100} {
			for seed := range seeds(2) {
				requireReopens(t, crash(disk, percent, seed), m, m, fmt.Sprintf("append %d, %d %%, seed %d", i, percent, seed))
			}
		}
	}
}

// TestPowerFailureUnderLoad cuts the power while many threads append, so that batches are on their way.
func TestPowerFailureUnderLoad(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	s := openStore(t, "store", pebblestore.Options{FS: disk, Project: countEntries})
	m := newModel()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	turns := make(chan struct{})
	for i := range 16 {
		wg.Go(func() {
			w := recordtest.NewWriter(i + 1)
			next := w.Start(t, 1)
			expect := record.Head{}
			for range turns {
				if m.append(ctx, s, expect, next...) != nil {
					return
				}
				expect = w.Head
				next = w.More(t, 1+i%3)
			}
		})
	}
	for round := range seeds(25) {
		for range 16 + round%16 {
			turns <- struct{}{}
		}
		before := m.snapshot()
		clone := crash(disk, int(round%5)*25, round)
		requireReopens(t, clone, before, m.snapshot(), fmt.Sprintf("round %d", round))
	}
	cancel()
	close(turns)
	wg.Wait()
	require.Positive(t, m.acked())
}

// TestPowerFailureAtOpen cuts the power right after a store was made or opened.
func TestPowerFailureAtOpen(t *testing.T) {
	disk := vfs.NewCrashableMem()
	m := newModel()
	jobs := script(t, 6, 100)
	for round := range 6 {
		s, err := pebblestore.Open("new/data/store", pebblestore.Options{FS: disk, Project: countEntries})
		require.NoError(t, err)
		_, err = crash(disk, 0, 0).Stat("new/data/store")
		require.NoError(t, err, "the folders have to be synced")
		for seed := range seeds(4) {
			requireReopensAt(t, "new/data/store", crash(disk, int(seed)*25, seed), m, m, fmt.Sprintf("open %d, seed %d", round, seed))
		}
		require.NoError(t, m.run(s, jobs[round:round+1]))
		require.NoError(t, s.Close())
	}
}

func requireReopens(t *testing.T, disk *vfs.MemFS, before, after *model, what string) {
	t.Helper()
	requireReopensAt(t, "store", disk, before, after, what)
}

func requireReopensAt(t *testing.T, dir string, disk *vfs.MemFS, before, after *model, what string) {
	t.Helper()
	s, err := pebblestore.Open(dir, pebblestore.Options{FS: disk, Project: countEntries})
	require.NoError(t, err, what)
	require.NoError(t, survived(s, before, after), what)
	require.NoError(t, s.Close(), what)
}

// wal is a store whose log is cut and damaged by a test. Every append is one batch of the log.
type wal struct {
	disk *vfs.MemFS
	log  string
	old  []byte // content of an earlier log, as a recycled file holds it behind its end
	data []byte
	jobs []job
	ends []int // ends[i] is where the log ends after i appends
	m    *model
}

func newWAL(t *testing.T, appends, size int) *wal {
	w := &wal{disk: vfs.NewCrashableMem(), jobs: script(t, appends, size), m: newModel()}
	s, err := pebblestore.Open("store", pebblestore.Options{FS: w.disk})
	require.NoError(t, err)
	other := recordtest.NewWriter(9)
	_, err = s.Append(t.Context(), other.ID, record.Head{}, other.Start(t, 16*appends)...)
	require.NoError(t, err)
	w.old = readAll(t, w.disk, theLog(t, w.disk))
	require.NoError(t, s.Close())

	watched := syncwatch.New(w.disk, true)
	s = openStore(t, "store", pebblestore.Options{FS: watched, Project: countEntries})
	length := func() int { logs := watched.Synced(); return len(logs[len(logs)-1].Content) }
	w.ends = []int{length()}
	for i := range w.jobs {
		require.NoError(t, w.m.run(s, w.jobs[i:i+1]))
		w.ends = append(w.ends, length())
	}
	w.disk = crash(w.disk, 0, 0) // everything is synced
	w.log = theLog(t, w.disk)
	w.data = readAll(t, w.disk, w.log)
	require.Len(t, w.data, w.ends[appends])
	return w
}

// with opens a copy of the store whose log has that content, and calls check with it.
func (w *wal) with(t *testing.T, content []byte, check func(s *pebblestore.Store, err error)) {
	t.Helper()
	disk := crash(w.disk, 0, 0)
	writeAll(t, disk, w.log, content)
	s, err := pebblestore.Open("store", pebblestore.Options{FS: disk, Project: countEntries})
	check(s, err)
	if err == nil {
		require.NoError(t, s.Close())
	}
}

// requireExactly checks that the store holds the first n appends and nothing else, and that it can go on from there.
func (w *wal) requireExactly(t *testing.T, s *pebblestore.Store, n int, what string) {
	t.Helper()
	m := newModel()
	for i, j := range w.jobs {
		m.attempt(j.entries)
		if i < n {
			m.ack(j.entries)
		}
	}
	for id, th := range m.threads {
		got, _ := stored(s, id)
		require.Len(t, got, th.acked, "%s: %s", what, id)
	}
	requireSurvived(t, s, m, m)
	if n < len(w.jobs) {
		require.NoError(t, m.run(s, w.jobs[n:n+1]), what)
		requireSurvived(t, s, m, m)
	}
}

// below returns how many appends lie wholly below length.
func (w *wal) below(length int) int {
	n := 0
	for n+1 < len(w.ends) && w.ends[n+1] <= length {
		n++
	}
	return n
}

// lengths are the places where the log is cut: around the end of every append, and others spread over the log.
func (w *wal) lengths() []int {
	var all []int
	for _, end := range w.ends {
		for _, near := range []int{-8, -1, 0, 1, 11, 18, 19} { // a chunk's header has 19 bytes
			if l := end + near; l >= 0 && l <= len(w.data) {
				all = append(all, l)
			}
		}
	}
	for l := 0; l < len(w.data); l += len(w.data)/int(seeds(50)) + 1 {
		all = append(all, l)
	}
	return all
}

// TestTornLog cuts the log, as a write that did not reach the disk does: exactly the appends below the cut are there.
func TestTornLog(t *testing.T) {
	t.Parallel()
	w := newWAL(t, 12, 400)
	for _, length := range w.lengths() {
		w.with(t, w.data[:length], func(s *pebblestore.Store, err error) {
			require.NoError(t, err, "length %d", length)
			w.requireExactly(t, s, w.below(length), fmt.Sprintf("length %d", length))
		})
	}
}

// TestTornLogWithTail fills the place behind the cut with zeros, with random bytes, and with what a recycled file
// holds there. Never is there an entry more than was written, or one less than lies below the cut.
func TestTornLogWithTail(t *testing.T) {
	t.Parallel()
	w := newWAL(t, 12, 400)
	require.Greater(t, len(w.old), len(w.data))
	tails := map[string]func(tail []byte, at int){
		"zeros":    func(tail []byte, _ int) { clear(tail) },
		"recycled": func(tail []byte, at int) { copy(tail, w.old[at:]) },
	}
	for seed := range seeds(2) {
		tails[fmt.Sprintf("garbage %d", seed)] = func(tail []byte, at int) {
			rng := rand.New(rand.NewPCG(seed, uint64(at)))
			for i := range tail {
				tail[i] = byte(rng.Uint32())
			}
		}
	}
	for name, fill := range tails {
		for i, length := range w.lengths() {
			if i%5 != 0 {
				continue
			}
			content := append([]byte(nil), w.data...)
			fill(content[length:], length)
			what := fmt.Sprintf("%s from %d on", name, length)
			w.with(t, content, func(s *pebblestore.Store, err error) {
				require.NoError(t, err, what)
				w.requireExactly(t, s, w.below(length), what)
			})
		}
	}
}

// TestSectorHoles loses sectors. In the last append that is a torn write and it is trimmed. In an earlier one, which a
// sync has covered, it is damage. The store does not open when a later block of the log tells Pebble of that sync; else
// Pebble takes it for a torn write, what is left is exactly the record up to there, and only a signed head shows that
// there was more.
func TestSectorHoles(t *testing.T) {
	t.Parallel()
	w := newWAL(t, 12, 2400)
	rng := rand.New(rand.NewPCG(3, 3))
	last := len(w.jobs) - 1
	refused, trimmed := 0, 0
	for _, sector := range []int{512, 4096} {
		for i := range seeds(30) {
			n := last
			if i%4 != 0 {
				n = rng.IntN(last)
			}
			from, to := w.ends[n], w.ends[n+1]
			content := append([]byte(nil), w.data...)
			for range 1 + rng.IntN(3) {
				at := max(from, (from+rng.IntN(to-from))/sector*sector)
				clear(content[at:min(at/sector*sector+sector, to)])
			}
			what := fmt.Sprintf("sectors of %d lost in append %d", sector, n)
			w.with(t, content, func(s *pebblestore.Store, err error) {
				if err != nil {
					require.Less(t, n, last, what)
					require.Equal(t, fault.Corrupt, fault.ClassOf(err), "%s: %v", what, err)
					refused++
					return
				}
				w.requireExactly(t, s, n, what)
				trimmed++
			})
		}
	}
	require.Positive(t, refused)
	require.Positive(t, trimmed)
}

// theLog returns the name of the newest log.
func theLog(t *testing.T, disk vfs.FS) string {
	names, err := disk.List("store")
	require.NoError(t, err)
	newest := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".log") && name > newest {
			newest = name
		}
	}
	require.NotEmpty(t, newest)
	return "store/" + newest
}

func readAll(t *testing.T, disk vfs.FS, name string) []byte {
	f, err := disk.Open(name)
	require.NoError(t, err)
	defer f.Close()
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	return b
}

func writeAll(t *testing.T, disk vfs.FS, name string, content []byte) {
	f, err := disk.Create(name, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = f.Write(append([]byte(nil), content...))
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

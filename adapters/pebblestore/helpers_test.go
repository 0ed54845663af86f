package pebblestore_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// patience is how long something that must happen may take on a busy machine.
const patience = 20 * time.Second

// moment is how often something is looked at, and how long a test waits for what must not happen.
const moment = 20 * time.Millisecond

// openStore opens a store that is closed with the test.
func openStore(t testing.TB, dir string, o pebblestore.Options) *pebblestore.Store {
	t.Helper()
	s, err := pebblestore.Open(dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// countEntries is a projection: how many own entries a thread has, and the kind of the newest.
func countEntries(prev []byte, e record.Entry) ([]byte, error) {
	count, _, _ := strings.Cut(string(prev), " ")
	n, _ := strconv.Atoi(count)
	return []byte(strconv.Itoa(n+1) + " " + string(e.Kind)), nil
}

// model is what a test knows of the threads that it writes. It is safe for concurrent use.
type model struct {
	mu      sync.Mutex
	threads map[record.ThreadID]*modelThread
}

type modelThread struct {
	attempted []record.Entry
	acked     int // entries that the store acknowledged, a prefix of attempted
}

func newModel() *model { return &model{threads: make(map[record.ThreadID]*modelThread)} }

// append appends and notes what became of it.
func (m *model) append(ctx context.Context, s record.Store, expect record.Head, entries ...record.Entry) error {
	m.attempt(entries)
	_, err := s.Append(ctx, entries[0].Thread, expect, entries...)
	if err == nil {
		m.ack(entries)
	}
	return err
}

// attempt notes entries that are about to be appended; the same ones again change nothing.
func (m *model) attempt(entries []record.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	th := m.threads[entries[0].Thread]
	if th == nil {
		th = new(modelThread)
		m.threads[entries[0].Thread] = th
	}
	if n := len(th.attempted); n == 0 || th.attempted[n-1].Seq < entries[0].Seq {
		th.attempted = append(th.attempted, entries...)
	}
}

func (m *model) ack(entries []record.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.threads[entries[0].Thread].acked += len(entries)
}

// snapshot copies the model, so that appends may go on.
func (m *model) snapshot() *model {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := newModel()
	for id, th := range m.threads {
		c.threads[id] = &modelThread{attempted: th.attempted, acked: th.acked}
	}
	return c
}

func (m *model) acked() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, th := range m.threads {
		n += th.acked
	}
	return n
}

// stored reads all entries of a thread, without its ancestors; none when the store does not know it.
func stored(s record.Store, id record.ThreadID) ([]record.Entry, error) {
	var all []record.Entry
	for e, err := range s.Entries(context.Background(), id, 0) {
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// requireSurvived checks a reopened store against what is known: every thread holds a prefix of what was attempted,
// with all that was acknowledged before, as it was; records verify and projections agree.
func requireSurvived(t testing.TB, s *pebblestore.Store, before, after *model) {
	t.Helper()
	require.NoError(t, survived(s, before, after))
}

func survived(s *pebblestore.Store, before, after *model) error {
	for id, th := range after.threads {
		acked := 0
		if b := before.threads[id]; b != nil {
			acked = b.acked
		}
		got, err := stored(s, id)
		if acked == 0 && len(got) == 0 {
			continue
		}
		if err != nil {
			return err
		}
		if len(got) < acked || len(got) > len(th.attempted) {
			return fmt.Errorf("%s holds %d entries, %d were acknowledged, %d attempted", id, len(got), acked, len(th.attempted))
		}
		var want []byte
		for i, e := range got {
			if !bytes.Equal(e.Line, th.attempted[i].Line) {
				return fmt.Errorf("entry %d of %s is\n%s\nwant\n%s", e.Seq, id, e.Line, th.attempted[i].Line)
			}
			want, _ = countEntries(want, e)
		}
		if _, err := record.VerifyThread(context.Background(), s, id, record.VerifyOptions{Unsigned: true}, nil); err != nil {
			return err
		}
		p, err := s.Projection(context.Background(), id)
		if err != nil {
			return err
		}
		if string(p.Data) != string(want) {
			return fmt.Errorf("projection of %s is %q, want %q", id, p.Data, want)
		}
	}
	return nil
}

// job is one append of a script.
type job struct {
	expect  record.Head
	entries []record.Entry
}

// script makes n appends of 1 to 6 entries to three threads in turn, with bodies of up to size bytes that do not
// compress.
func script(t testing.TB, n, size int) []job {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	writers := []*recordtest.Writer{recordtest.NewWriter(1), recordtest.NewWriter(2), recordtest.NewWriter(3)}
	var jobs []job
	for i := range n {
		w := writers[i%len(writers)]
		j := job{expect: w.Head}
		for range 1 + rng.IntN(6) {
			kind := record.MessageAccepted
			if w.Head == (record.Head{}) {
				kind = record.ThreadCreated
			}
			j.entries = append(j.entries, w.Seal(t, kind, noise(rng, 1+rng.IntN(size))))
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// noise is a body with n random letters.
func noise(rng *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(rng.Uint32()%26)
	}
	return `{"noise":"` + string(b) + `"}`
}

// run appends the jobs until one fails. None may take longer than patience.
func (m *model) run(s record.Store, jobs []job) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, j := range jobs {
		if err := m.append(ctx, s, j.expect, j.entries...); err != nil {
			return err
		}
	}
	return nil
}

// crash returns what a power failure leaves of disk now, with so many percent of what was not synced.
func crash(disk *vfs.MemFS, percent int, seed uint64) *vfs.MemFS {
	return disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, uint64(percent)))})
}

// isLogSync says whether op syncs the write-ahead log.
func isLogSync(op errorfs.Op) bool {
	return (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) && strings.HasSuffix(op.Path, ".log")
}

// pathError is err as the operating system reports it for op.
func pathError(op errorfs.Op, err syscall.Errno) error {
	return fmt.Errorf("injected into operation %d on %s: %w", op.Kind, op.Path, err)
}

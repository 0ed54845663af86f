package loop

import (
	"flag"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	simRuns = flag.Uint64("simulate.runs", 0, "simulated runs; 0 is 100,000, and 2,000 with the race detector")
	simSeed = flag.Int64("simulate.seed", -1, "run only this seed")
)

// TestSimulation lets a thread live in a world that kills its process at every kind of boundary, and holds what must
// be true of every record that is left:
//
//   - a request and a tool start only after they are durable; no unsafe tool starts or takes effect twice for one call;
//   - no accepted message is lost, accepted or placed twice; the first answer to an approval counts;
//   - every attempt of a request has the same bytes, and all of them are rebuilt from the record;
//   - the fold of the record is the live state, the record verifies, and every call has exactly one result;
//   - nothing starts in a turn after its interrupt, and the thread comes to rest.
func TestSimulation(t *testing.T) {
	if *simSeed >= 0 {
		s := newSim(uint64(*simSeed), mutation{})
		s.run()
		for e := range s.w.store.Entries(t.Context(), s.id, 0) {
			t.Logf("%d gen %d %s %s", e.Seq, e.Gen, e.Kind, e.Body)
		}
		require.Empty(t, s.w.broken)
		return
	}
	runs := *simRuns
	switch {
	case runs > 0:
	case raceEnabled:
		runs = 2_000
	default:
		runs = 100_000
	}
	broken, killed, sends := simulate(runs, mutation{})
	for _, b := range broken {
		t.Errorf("seed %d: %s\nagain: go test ./core/loop -run '^TestSimulation$' -v -simulate.seed=%d", b.seed, strings.Join(b.what, "\n"), b.seed)
	}
	for _, name := range slices.Sorted(maps.Keys(killed)) {
		t.Logf("%8d kills %s", killed[name], name)
	}
	t.Logf("%8d requests sent in %d runs", sends, runs)
	require.Len(t, killed, 15, "kinds of boundaries at which the process was killed")
}

type brokenRun struct {
	seed uint64
	what []string
}

// maxBroken is how many broken runs are enough to stop.
const maxBroken = 3

// simulate runs the seeds from 0 on, on every processor.
func simulate(runs uint64, m mutation) (broken []brokenRun, killed map[string]int, sends int) {
	var next atomic.Uint64
	var mu sync.Mutex // guards the results
	var group sync.WaitGroup
	killed = make(map[string]int)
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // small worlds, many of them
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			mine, sent := make(map[string]int), 0
			for seed := next.Add(1) - 1; seed < runs; seed = next.Add(1) - 1 {
				s := newSim(seed, m)
				s.run()
				sent += s.w.sends
				for name, n := range s.w.killed {
					mine[name] += n
				}
				if len(s.w.broken) > 0 {
					mu.Lock()
					broken = append(broken, brokenRun{seed, s.w.broken})
					if len(broken) >= maxBroken {
						next.Store(runs)
					}
					mu.Unlock()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sends += sent
			for name, n := range mine {
				killed[name] += n
			}
		})
	}
	group.Wait()
	return broken, killed, sends
}

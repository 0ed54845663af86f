package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/adapters/pebblestore/syncwatch"
	"condensate.dev/cnd/core/record"
)

const (
	appendLine   = 512                    // bytes of an entry line
	appendRounds = 5                      // measured bursts per contender and number of threads
	appendBurst  = 300 * time.Millisecond // about how long one burst takes
	appendGoal   = 0.9                    // least rate of the store, as a part of bare Pebble's
	appendGoal99 = 3 * time.Millisecond   // most that the 99th percentile may be at 64 threads
)

// contender appends entries durably. Each goroutine has a thread of its own and one append under way at a time.
type contender struct {
	name   string
	append func(e record.Entry) error
	syncs  func() uint64 // number of the newest completed sync
	begun  func() uint64 // number of the newest sync that began
	close  func() error

	perSecond float64 // of the burst before, to choose the size of the next one
}

// burst is what one burst measured.
type burst struct {
	perSecond float64
	p50, p99  time.Duration
	perSync   float64
}

// benchAppend compares appends to the store, with 1, 8 and 64 threads at once, to what stands below it: a bare Set with
// Sync of the same key and value in Pebble, and group-committed fdatasync of the same bytes in one file.
func benchAppend(w io.Writer) error {
	dir, err := os.MkdirTemp("", "cnd-bench-append-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, err := openContenders(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "durable appends of %d bytes per second, median of %d interleaved bursts of %s\n\n", appendLine, appendRounds, appendBurst)
	fmt.Fprintf(w, "%7s  %-10s %10s %8s %10s %10s %10s\n", "threads", "", "per second", "store /", "per sync", "p50 ms", "p99 ms")
	burstNumber := 0
	for _, threads := range []int{1, 8, 64} {
		results := make([][]burst, len(all))
		for round := range appendRounds + 1 {
			for i, c := range all {
				burstNumber++
				b, err := c.burst(burstNumber, threads)
				if err != nil {
					return fmt.Errorf("%s, %d threads: %w", c.name, threads, err)
				}
				if round > 0 { // the first one warms up and finds the size of a burst
					results[i] = append(results[i], b)
				}
			}
		}
		printAppends(w, threads, all, results)
	}
	for _, c := range all {
		if err := c.close(); err != nil {
			return fmt.Errorf("close %s: %w", c.name, err)
		}
	}
	return nil
}

func printAppends(w io.Writer, threads int, all []*contender, results [][]burst) {
	for i, c := range all {
		b := median(results[i])
		fmt.Fprintf(w, "%7d  %-10s %10.0f %8.2f %10.1f %10.2f %10.2f\n", threads, c.name, b.perSecond, ratio(results[0], results[i]),
			b.perSync, ms(b.p50), ms(b.p99))
	}
	fmt.Fprintf(w, "%7s  goal: store / pebble at least %.1f: %s", "", appendGoal, verdict(ratio(results[0], results[1]) >= appendGoal))
	if threads == 64 {
		fmt.Fprintf(w, "; p99 at most %s: %s", appendGoal99, verdict(median(results[0]).p99 <= appendGoal99))
	}
	fmt.Fprint(w, "\n\n")
}

// ratio returns the median of the ratios within each round, so that a slow moment counts for both.
func ratio(ours, theirs []burst) float64 {
	r := make([]float64, len(ours))
	for round := range r {
		r[round] = ours[round].perSecond / theirs[round].perSecond
	}
	slices.Sort(r)
	return r[len(r)/2]
}

func verdict(ok bool) string {
	if ok {
		return "reached"
	}
	return "MISSED"
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// median returns the medians of the single values.
func median(bursts []burst) burst {
	mid := func(key func(burst) float64) float64 {
		v := make([]float64, len(bursts))
		for i, b := range bursts {
			v[i] = key(b)
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	return burst{
		perSecond: mid(func(b burst) float64 { return b.perSecond }),
		perSync:   mid(func(b burst) float64 { return b.perSync }),
		p50:       time.Duration(mid(func(b burst) float64 { return float64(b.p50) })),
		p99:       time.Duration(mid(func(b burst) float64 { return float64(b.p99) })),
	}
}

// burst appends for about appendBurst with so many threads, and fails when an append was acknowledged although no sync
// that began after it had been completed.
func (c *contender) burst(number, threads int) (burst, error) {
	each := max(20, int(c.perSecond*appendBurst.Seconds())/threads)
	work := make([][]record.Entry, threads)
	for i := range work {
		var err error
		if work[i], err = sealed(number, i, each); err != nil {
			return burst{}, err
		}
	}
	took := make([][]time.Duration, threads)
	errs := make([]error, threads)
	syncs := c.syncs()
	var wg sync.WaitGroup
	start := time.Now()
	for i := range work {
		wg.Go(func() { took[i], errs[i] = c.appendAll(work[i]) })
	}
	wg.Wait()
	elapsed := time.Since(start)
	syncs = c.syncs() - syncs
	for _, err := range errs {
		if err != nil {
			return burst{}, err
		}
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	c.perSecond = float64(len(all)) / elapsed.Seconds()
	return burst{
		perSecond: c.perSecond, perSync: float64(len(all)) / float64(max(syncs, 1)),
		p50: all[len(all)/2], p99: all[len(all)*99/100],
	}, nil
}

func (c *contender) appendAll(entries []record.Entry) ([]time.Duration, error) {
	took := make([]time.Duration, 0, len(entries))
	for _, e := range entries {
		begun := c.begun()
		start := time.Now()
		if err := c.append(e); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
		if c.syncs() <= begun {
			return nil, fmt.Errorf("entry %d of %s was acknowledged before a sync that began after it", e.Seq, e.Thread)
		}
	}
	return took, nil
}

// sealed makes a thread of n entries whose lines have appendLine bytes.
func sealed(number, thread, n int) ([]record.Entry, error) {
	id := record.ThreadID(fmt.Sprintf("thr_%026d", number*1000+thread))
	entries := make([]record.Entry, 0, n)
	var at record.Head
	pad := 0
	for i := range n {
		draft := record.Draft{Time: time.Unix(int64(i), 0), Kind: record.MessageAccepted}
		salt := record.Salt{byte(number), byte(number >> 8), byte(thread), byte(i), byte(i >> 8), byte(i >> 16)}
		for {
			draft.Body = []byte(`{"text":"` + strings.Repeat("x", pad) + `"}`)
			e, err := record.Seal(id, at, salt, draft)
			if err != nil {
				return nil, err
			}
			if len(e.Line) == appendLine {
				entries = append(entries, e)
				at = e.Head()
				break
			}
			pad += appendLine - len(e.Line)
		}
	}
	return entries, nil
}

// openContenders opens the store first, then its references.
func openContenders(dir string) ([]*contender, error) {
	watched := syncwatch.New(vfs.Default, false)
	store, err := pebblestore.Open(filepath.Join(dir, "store"), pebblestore.Options{FS: watched})
	if err != nil {
		return nil, err
	}
	bareWatched := syncwatch.New(vfs.Default, false)
	bare, err := pebble.Open(filepath.Join(dir, "pebble"), &pebble.Options{
		FS: bareWatched, FormatMajorVersion: pebble.FormatTableFormatV6, Logger: quiet{},
		MemTableSize: 16 << 20, MemTableStopWritesThreshold: 4, CacheSize: 16 << 20, // as the store
	})
	if err != nil {
		return nil, err
	}
	file, err := openGroupFile(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	return []*contender{
		{
			name: "store", syncs: watched.Completed, begun: watched.Started, close: store.Close,
			append: func(e record.Entry) error {
				expect := record.Head{Seq: e.Seq - 1, Hash: e.Prev}
				if e.Seq == 0 {
					expect = record.Head{}
				}
				_, err := store.Append(context.Background(), e.Thread, expect, e)
				return err
			},
		},
		{
			name: "pebble", syncs: bareWatched.Completed, begun: bareWatched.Started, close: bare.Close,
			append: func(e record.Entry) error {
				return bare.Set(fmt.Appendf(nil, "t/%s/%08d", e.Thread, e.Seq), e.Line, pebble.Sync)
			},
		},
		{
			name: "fdatasync", syncs: file.completed, begun: file.begun, close: file.Close,
			append: func(e record.Entry) error { return file.append(e.Line) },
		},
	}, nil
}

type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"condensate.dev/cnd/adapters/jsonl"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/replay"
)

// What benchReplay is held against.
const (
	replayGoal   = 0.5 // of the speed of SHA-256 on one core
	replaySlack  = 1.3 // per byte, between the cheapest and the dearest length
	replayRounds = 5
	replayTime   = 500 * time.Millisecond // of one length in a round, at least one run; the cheapest run counts
)

// benchReplay prints how fast a record is verified, chain and requests in one pass, beside bare SHA-256 on one core over
// as many bytes, and what a byte costs in short and long threads. The cost of a byte is in processor time of all
// threads, so that other load on the machine counts little; the lengths take turns, so that it counts for all.
func benchReplay(w io.Writer) error {
	threads := []*measured{{turns: 100}, {turns: 1_000}, {turns: 10_000}}
	dir, err := os.MkdirTemp("", "cnd-bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, m := range threads {
		if err := m.write(dir); err != nil {
			return err
		}
	}
	for range replayRounds {
		for _, m := range threads {
			if err := m.round(); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(w, "%7s  %9s  %12s  %12s  %8s  %8s  %s\n", "turns", "MiB", "verify MB/s", "SHA-256 MB/s", "ns/byte", "ratio", "goal")
	var least, most float64
	for _, m := range threads {
		if least == 0 || m.perByte() < least {
			least = m.perByte()
		}
		most = max(most, m.perByte())
		speed := func(d time.Duration) float64 { return float64(m.hashed) / d.Seconds() / 1e6 }
		ratio := m.bare.Seconds() / m.verify.took.Seconds()
		fmt.Fprintf(w, "%7d  %9.1f  %12.0f  %12.0f  %8.2f  %8.2f  %s\n", m.turns, float64(m.hashed)/(1<<20), speed(m.verify.took),
			speed(m.bare), m.perByte(), ratio, met(ratio >= replayGoal, ">= %.1f", replayGoal))
	}
	fmt.Fprintf(w, "a byte costs at most %.2f times as much in one thread as in another  %s\n", most/least, met(most/least <= replaySlack, "<= %.1f", replaySlack))
	return nil
}

// met says whether a goal is reached.
func met(ok bool, format string, args ...any) string {
	goal := fmt.Sprintf(format, args...)
	if ok {
		return goal + " met"
	}
	return goal + " MISSED"
}

// measured is a thread of some length and what it costs.
type measured struct {
	turns  int
	path   string
	hashed int64         // bytes
	verify cost          // the lowest of all runs
	bare   time.Duration // of SHA-256 over as many bytes on one core, the lowest of all runs
}

func (m *measured) perByte() float64 { return float64(m.verify.processor) / float64(m.hashed) }

// write writes the thread into a file.
func (m *measured) write(dir string) error {
	m.path = filepath.Join(dir, fmt.Sprintf("%d.jsonl", m.turns))
	f, err := os.Create(m.path)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 1<<20)
	err = writeThread(out, m.turns)
	return errors.Join(err, out.Flush(), f.Close())
}

// round verifies the thread and hashes as many bytes, in turn, for replayTime.
func (m *measured) round() error {
	block := make([]byte, 1<<20)
	for start := time.Now(); time.Since(start) < replayTime; {
		took, hashed, err := verifyFile(m.path, nil)
		if err != nil {
			return err
		}
		m.verify, m.hashed = m.verify.least(took), hashed
		bare := processorTime()
		h := sha256.New()
		for left := hashed; left > 0; left -= int64(len(block)) {
			h.Write(block[:min(int64(len(block)), left)])
		}
		if took := processorTime() - bare; m.bare == 0 || took < m.bare {
			m.bare = took
		}
	}
	return nil
}

// verifyFile does what cnd-replay verify does and returns how long it took and how many bytes it hashed; each, when not
// nil, is called after each entry.
func verifyFile(path string, each func()) (cost, int64, error) {
	start := begin()
	f, err := jsonl.Open(path)
	if err != nil {
		return cost{}, 0, err
	}
	defer f.Close()
	requests := replay.StartBeside(context.Background(), f)
	checked, err := record.VerifyExport(f.Reader(), record.VerifyOptions{Unsigned: true}, func(e record.Entry) error {
		if each != nil {
			each()
		}
		return requests.Add(e)
	})
	r, failed := requests.Wait()
	if err = errors.Join(err, failed); err != nil {
		return cost{}, 0, err
	}
	if r.Requests == 0 || r.Verified != r.Requests {
		return cost{}, 0, fmt.Errorf("%d of %d requests verified: %w", r.Verified, r.Requests, r.First)
	}
	return start.until(), checked.Hashed + r.Bytes, nil
}

// cost is what something takes, or a moment.
type cost struct {
	wall      time.Time
	took      time.Duration // by the clock
	processor time.Duration // of all threads
}

// begin returns this moment.
func begin() cost { return cost{wall: time.Now(), processor: processorTime()} }

// until returns what it took from that moment to this one.
func (c cost) until() cost {
	return cost{took: time.Since(c.wall), processor: processorTime() - c.processor}
}

// least returns the lower of both costs, measure by measure; the zero cost is none.
func (c cost) least(other cost) cost {
	if c == (cost{}) {
		return other
	}
	return cost{took: min(c.took, other.took), processor: min(c.processor, other.processor)}
}

// processorTime returns what this process has used of all processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no way to fail
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

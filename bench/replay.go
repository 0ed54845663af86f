package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"condensate.dev/cnd/adapters/jsonl"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/replay"
)

// What benchReplay is held against.
const (
	replayGoal  = 0.5 // of the speed of SHA-256 on one core
	replaySlack = 1.3 // per byte, between the cheapest and the dearest length
	replayRuns  = 7   // of which the cheapest counts
)

// benchReplay prints how fast a record is verified, chain and requests in one pass, beside bare SHA-256 on one core over
// as many bytes, and what a byte costs in short and long threads. The cost of a byte is in processor time of all
// threads, so that other load on the machine counts little.
func benchReplay(w io.Writer) error {
	fmt.Fprintf(w, "%7s  %9s  %12s  %12s  %8s  %8s  %s\n", "turns", "MiB", "verify MB/s", "SHA-256 MB/s", "ns/byte", "ratio", "goal")
	var least, most float64
	for _, turns := range []int{100, 1_000, 10_000} {
		verify, bare, hashed, err := measureReplay(turns)
		if err != nil {
			return err
		}
		perByte := float64(verify.processor) / float64(hashed)
		if least == 0 || perByte < least {
			least = perByte
		}
		most = max(most, perByte)
		speed := func(c cost) float64 { return float64(hashed) / c.took.Seconds() / 1e6 }
		ratio := bare.took.Seconds() / verify.took.Seconds()
		fmt.Fprintf(w, "%7d  %9.1f  %12.0f  %12.0f  %8.2f  %8.2f  %s\n", turns, float64(hashed)/(1<<20), speed(verify), speed(bare),
			perByte, ratio, met(ratio >= replayGoal, ">= %.1f", replayGoal))
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

// measureReplay verifies a thread of that many turns and hashes as many bytes, in turn, and returns the lowest costs.
func measureReplay(turns int) (verify, bare cost, hashed int64, err error) {
	f, err := os.CreateTemp("", "cnd-bench-*")
	if err != nil {
		return cost{}, cost{}, 0, err
	}
	defer os.Remove(f.Name())
	out := bufio.NewWriterSize(f, 1<<20)
	err = writeThread(out, turns)
	if err = errors.Join(err, out.Flush(), f.Close()); err != nil {
		return cost{}, cost{}, 0, err
	}
	block := make([]byte, 1<<20)
	for range replayRuns {
		took, n, err := verifyFile(f.Name(), nil)
		if err != nil {
			return cost{}, cost{}, 0, err
		}
		verify, hashed = verify.least(took), n
		start := begin()
		h := sha256.New()
		for left := n; left > 0; left -= int64(len(block)) {
			h.Write(block[:min(int64(len(block)), left)])
		}
		bare = bare.least(start.until())
	}
	return verify, bare, hashed, nil
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

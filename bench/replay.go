package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"condensate.dev/cnd/adapters/jsonl"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/replay"
)

// What benchReplay is held against.
const (
	replayGoal  = 0.5 // of the speed of SHA-256 on one core
	replaySlack = 1.3 // per byte, between the cheapest and the dearest length
	replayRuns  = 5   // of which the fastest counts
)

// benchReplay prints how fast a record is verified, chain and requests in one pass, beside bare SHA-256 over as many
// bytes, and what a byte costs in short and long threads.
func benchReplay(w io.Writer) error {
	fmt.Fprintf(w, "%7s  %9s  %12s  %12s  %8s  %s\n", "turns", "MiB", "verify MB/s", "SHA-256 MB/s", "ratio", "goal")
	var least, most float64
	for _, turns := range []int{100, 1_000, 10_000} {
		verify, bare, hashed, err := measureReplay(turns)
		if err != nil {
			return err
		}
		perByte := verify.Seconds() / float64(hashed)
		if least == 0 || perByte < least {
			least = perByte
		}
		most = max(most, perByte)
		speed := func(d time.Duration) float64 { return float64(hashed) / d.Seconds() / 1e6 }
		fmt.Fprintf(w, "%7d  %9.1f  %12.0f  %12.0f  %8.2f  %s\n", turns, float64(hashed)/(1<<20), speed(verify), speed(bare),
			bare.Seconds()/verify.Seconds(), met(bare.Seconds()/verify.Seconds() >= replayGoal, ">= %.1f", replayGoal))
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

// measureReplay verifies a thread of that many turns and hashes as many bytes, in turn, and returns the fastest times.
func measureReplay(turns int) (verify, bare time.Duration, hashed int64, err error) {
	f, err := os.CreateTemp("", "cnd-bench-*")
	if err != nil {
		return 0, 0, 0, err
	}
	defer os.Remove(f.Name())
	out := bufio.NewWriterSize(f, 1<<20)
	err = writeThread(out, turns)
	if err = errors.Join(err, out.Flush(), f.Close()); err != nil {
		return 0, 0, 0, err
	}
	block := make([]byte, 1<<20)
	for range replayRuns {
		took, n, err := verifyFile(f.Name(), nil)
		if err != nil {
			return 0, 0, 0, err
		}
		hashed = n
		start := time.Now()
		h := sha256.New()
		for left := n; left > 0; left -= int64(len(block)) {
			h.Write(block[:min(int64(len(block)), left)])
		}
		if plain := time.Since(start); bare == 0 || plain < bare {
			bare = plain
		}
		if verify == 0 || took < verify {
			verify = took
		}
	}
	return verify, bare, hashed, nil
}

// verifyFile does what cnd-replay verify does and returns how long it took and how many bytes it hashed; each, when not
// nil, is called after each entry.
func verifyFile(path string, each func()) (time.Duration, int64, error) {
	start := time.Now()
	f, err := jsonl.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	requests := replay.NewVerifier(f)
	checked, err := record.VerifyExport(f.Reader(), record.VerifyOptions{Unsigned: true}, func(e record.Entry) error {
		if each != nil {
			each()
		}
		return requests.Add(context.Background(), e)
	})
	if err != nil {
		return 0, 0, err
	}
	r := requests.Report()
	if r.Requests == 0 || r.Verified != r.Requests {
		return 0, 0, fmt.Errorf("%d of %d requests verified: %w", r.Verified, r.Requests, r.First)
	}
	return time.Since(start), checked.Hashed + r.Bytes, nil
}

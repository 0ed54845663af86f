package pebblestore_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

// seedsEnv multiplies how many random cases the fault tests try: CND_FAULT_SEEDS=10 tries ten times as many.
const seedsEnv = "CND_FAULT_SEEDS"

// seeds returns how many seeds a test tries.
func seeds(usual uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(seedsEnv), 10, 16); err == nil && n > 0 {
		return usual * n
	}
	return usual
}

// A test binary that is started with childEnv is another process with a store: "<what it does> <number> <folder>".
const childEnv = "CND_STORE_CHILD"

func TestMain(m *testing.M) {
	if task := os.Getenv(childEnv); task != "" {
		os.Exit(child(task))
	}
	os.Exit(m.Run())
}

// children are what such a process does after it said "open". What it prints are lines of words.
var children = map[string]func(s *pebblestore.Store, number int) error{
	"append": childAppend,
	"hold":   childHold,
	"few":    childFew,
	"fill":   childFill,
}

func child(task string) int {
	words := strings.SplitN(task, " ", 3)
	number, err := strconv.Atoi(words[1])
	if err != nil {
		return fault70(err)
	}
	s, err := pebblestore.Open(words[2], pebblestore.Options{OnFatal: func(err error) {
		fmt.Println("fatal", fault.ClassOf(err))
		os.Exit(exitFatal)
	}})
	if err != nil {
		return fault70(err)
	}
	fmt.Println("open")
	if err := children[words[0]](s, number); err != nil {
		return fault70(err)
	}
	if err := s.Close(); err != nil {
		return fault70(err)
	}
	return 0
}

// exitFatal is how a child ends after OnFatal.
const exitFatal = 75

func fault70(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 70
}

// childAppend appends in 16 threads from number on until it is killed, and tells of every acknowledgement.
func childAppend(s *pebblestore.Store, number int) error {
	failed := make(chan error)
	for i := range 16 {
		go func() { failed <- appendFor(s, recordtest.NewWriter(number+i), -1, 20+60*i) }()
	}
	return <-failed
}

// childFew makes number appends in one thread.
func childFew(s *pebblestore.Store, number int) error {
	return appendFor(s, recordtest.NewWriter(1), number, 100)
}

// childFill appends until the store refuses.
func childFill(s *pebblestore.Store, number int) error {
	err := appendFor(s, recordtest.NewWriter(number), -1, 64<<10)
	fmt.Println("refused", fault.ClassOf(err))
	_, err = io.Copy(io.Discard, os.Stdin) // until the parent has looked
	return err
}

// appendFor makes n appends of a body of so many bytes, or appends until one fails, and tells of each that succeeded.
func appendFor(s *pebblestore.Store, w *recordtest.Writer, n, size int) error {
	body := `{"text":"` + strings.Repeat("x", size) + `"}`
	kind := record.ThreadCreated
	for i := 0; i != n; i++ {
		expect := w.Head
		e, err := w.Try(kind, body)
		if err != nil {
			return err
		}
		if _, err := s.Append(context.Background(), w.ID, expect, e); err != nil {
			return err
		}
		fmt.Println("ack", e.Thread, e.Seq, e.Hash) // one write, as short as a pipe takes whole
		kind = record.MessageAccepted
	}
	return nil
}

func childHold(*pebblestore.Store, int) error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

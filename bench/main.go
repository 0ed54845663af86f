// Command bench prints how fast the hot paths are, as ratios to a reference that is measured in the same interleaved
// bursts: absolute numbers of a shared machine mean nothing. It ends with an error when a promise does not hold, for
// example when an append was acknowledged before its sync; a missed goal is printed and is no error.
//
//	go run ./bench            all sections
//	go run ./bench append     one of them
package main

import (
	"fmt"
	"io"
	"log"
	"os"
)

// sections in the order in which they are printed.
var sections = []struct {
	name string
	run  func(w io.Writer) error
}{
	{"append", benchAppend},
	{"replay", benchReplay},
	{"loop", benchLoop},
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: error: ")
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer, names []string) error {
	ran := 0
	for _, s := range sections {
		if len(names) > 0 && names[0] != s.name {
			continue
		}
		ran++
		fmt.Fprintf(w, "\n== %s\n", s.name)
		if err := s.run(w); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if ran == 0 {
		return fmt.Errorf("no section %q", names[0])
	}
	return nil
}

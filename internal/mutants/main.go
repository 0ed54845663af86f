// Command mutants breaks the product on purpose, one place at a time, in a copy of it, and requires that the tests
// which should notice do fail. A test that cannot fail proves nothing.
//
//	go run ./internal/mutants
//
// It works offline with what the module cache holds, and changes nothing outside its temporary folder.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// testTimeout bounds the tests of one mutant: one that hangs has failed them.
const testTimeout = 30 * time.Second

func main() {
	log.SetFlags(0)
	log.SetPrefix("mutants: error: ")
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// workers try mutants at the same time, each in a copy of its own: some mutants make a test wait.
const workers = 2

func run(ctx context.Context) error {
	todo := make(chan mutant)
	done := make(chan outcome)
	for range workers {
		dir, err := os.MkdirTemp("", "cnd-mutants-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := copySources(dir); err != nil {
			return fmt.Errorf("copy sources: %w", err)
		}
		go func() {
			for m := range todo {
				done <- m.try(ctx, dir)
			}
		}()
	}
	go func() {
		defer close(todo)
		for _, m := range mutants {
			todo <- m
		}
	}()
	var failed []string
	for range mutants {
		o := <-done
		fmt.Printf("%-60s %s (%.1f s)\n", o.mutant.name, o.verdict(), o.took.Seconds())
		if o.err != nil {
			return fmt.Errorf("mutant %q: %w", o.mutant.name, o.err)
		}
		if len(o.survived) > 0 {
			failed = append(failed, o.mutant.name)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("tests passed although the product was broken: %s", strings.Join(failed, "; "))
	}
	return nil
}

// outcome is what became of one mutant.
type outcome struct {
	mutant   mutant
	survived []string // tests that passed
	err      error    // it could not be tried
	took     time.Duration
}

func (o outcome) verdict() string {
	switch {
	case o.err != nil:
		return "not tried"
	case len(o.survived) > 0:
		return "SURVIVED " + strings.Join(o.survived, ", ")
	default:
		return "killed"
	}
}

// skipped are folders that hold no sources.
var skipped = []string{".git", "bin", "node_modules", ".condensate", ".cache"}

// copySources copies the module from the working folder, which must be its root.
func copySources(to string) error {
	return filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(skipped, d.Name()):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, path), 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), content, 0o600)
	})
}

// mutant is one way to break the product.
type mutant struct {
	name  string
	file  string
	old   string   // stands exactly once in file
	new   string   // takes its place
	tests []string // tests of the file's package that must fail, each one by itself
}

// try breaks the copy in dir, runs the tests and mends it again.
func (m mutant) try(ctx context.Context, dir string) outcome {
	start := time.Now()
	survived, err := m.tried(ctx, dir)
	return outcome{mutant: m, survived: survived, err: err, took: time.Since(start)}
}

func (m mutant) tried(ctx context.Context, dir string) (survived []string, err error) {
	file := filepath.Join(dir, m.file)
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(content), m.old); n != 1 {
		return nil, fmt.Errorf("%q stands %d times in %s, want once", m.old, n, m.file)
	}
	broken := strings.Replace(string(content), m.old, m.new, 1)
	if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.WriteFile(file, content, 0o600)) }()

	binary := filepath.Join(dir, "mutant.test")
	pkg := filepath.Dir(file)
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary, ".")
	build.Dir = pkg
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	for _, test := range m.tests {
		if passes(ctx, binary, pkg, test) {
			survived = append(survived, test)
		}
	}
	return survived, nil
}

// passes says whether a test runs and passes.
func passes(ctx context.Context, binary, dir, test string) bool {
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, binary, "-test.run", "^"+test+"$", "-test.failfast", "-test.timeout", testTimeout.String())
	c.Dir = dir
	return c.Run() == nil
}

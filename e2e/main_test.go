package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// bin is where the tools under test were built.
var bin string

// TestMain builds the tools as they are shipped: without the race detector and without cgo.
func TestMain(m *testing.M) {
	os.Exit(build(m))
}

func build(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "cnd-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	make := exec.Command("go", "build", "-o", bin+"/", "../tools/...")
	make.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := make.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the tools: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

package e2e

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
)

// Effects counts what the commands of the repair scenario really did: how often each started, and how often each came
// to its end. The log is the world's, not the record's.
func (w *World) Effects() (started, ended map[string]int, err error) {
	f, err := os.Open(filepath.Join(w.Dir, "effects.log"))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	started, ended = map[string]int{}, map[string]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		what, name, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "start":
			started[name]++
		case "end":
			ended[name]++
		}
	}
	return started, ended, lines.Err()
}

// ClearEffects forgets them.
func (w *World) ClearEffects() error {
	return os.WriteFile(filepath.Join(w.Dir, "effects.log"), nil, 0o600)
}

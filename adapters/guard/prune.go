package guard

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// MaxOutputs is how many bytes of output are kept on disk in all. Beyond it the oldest files go; the status of their
// calls stays, because it is what keeps them from starting again.
const MaxOutputs = 1 << 30

const pruneEvery = 64 // runs

// prune removes the oldest outputs of ended calls below dir until at most limit bytes are left.
func prune(dir string, limit int64) error {
	type output struct {
		name    string
		size    int64
		changed time.Time
	}
	var outputs []output
	var total int64
	err := eachCall(dir, func(call, _, _ string) {
		name := filepath.Join(call, outputFile)
		info, err := os.Stat(name)
		if err != nil || !exists(filepath.Join(call, statusFile)) {
			return
		}
		outputs = append(outputs, output{name, info.Size(), info.ModTime()})
		total += info.Size()
	})
	slices.SortFunc(outputs, func(a, b output) int {
		return cmp.Or(a.changed.Compare(b.changed), cmp.Compare(a.name, b.name))
	})
	for _, o := range outputs {
		if total <= limit {
			break
		}
		if e := os.Remove(o.name); e != nil {
			err = errors.Join(err, e)
			continue
		}
		total -= o.size
	}
	return err
}

package shelltools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"condensate.dev/cnd/core/loop"
)

type globInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

// split returns the folder to look in and the pattern below it: an absolute pattern names its folder itself.
func (i globInput) split() (dir, below string) {
	if !filepath.IsAbs(i.Pattern) {
		return i.Path, i.Pattern
	}
	return doublestar.SplitPattern(i.Pattern)
}

func (i globInput) name() string {
	dir, _ := i.split()
	return dir
}

func (i globInput) check() error {
	if i.Path != "" && filepath.IsAbs(i.Pattern) {
		return errors.New("give either path or an absolute pattern")
	}
	_, below := i.split()
	_, err := newPattern(below)
	return err
}

func glob(ctx context.Context, f folder, path string, input globInput) (loop.Result, error) {
	_, below := input.split()
	p, err := newPattern(below)
	if err != nil {
		return loop.Result{}, err
	}
	root, err := f.openDir(path)
	if err != nil {
		return loop.Result{}, f.about(path, err)
	}
	defer root.Close()
	folders := !strings.Contains(below, "**")
	found := 0
	var out strings.Builder
	seen, err := f.walk(ctx, path, root, p, func(name string, d fs.DirEntry) bool {
		if d.IsDir() && !folders || !p.matches(name) {
			return true
		}
		line := valid(f.show(filepath.Join(path, name)))
		if d.IsDir() {
			line += "/"
		}
		if found++; found > MaxFound || out.Len()+len(line) > MaxOutput-notesRoom {
			fmt.Fprintf(&out, "[there are more; narrow the pattern]\n")
			return false
		}
		out.WriteString(line + "\n")
		return true
	})
	if err != nil {
		return loop.Result{}, f.about(path, err)
	}
	if found == 0 {
		out.WriteString("(no file matches)\n")
	}
	return textResult(out.String() + seen.note()), nil
}

// notesRoom is what glob and grep keep free for their closing lines, in bytes.
const notesRoom = 500

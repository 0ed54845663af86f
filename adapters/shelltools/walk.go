package shelltools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// hidden are the folders that glob and grep leave out unless the pattern names them: what they hold is not the work
// of the thread.
var hidden = []string{".git", ".hg", ".svn", ".jj", "node_modules"}

// pattern is a checked path pattern.
type pattern string

func newPattern(text string) (pattern, error) {
	text = strings.TrimPrefix(text, "./")
	switch {
	case text == "":
		return "", errors.New("the pattern is empty")
	case len(text) > MaxName:
		return "", fmt.Errorf("the pattern is longer than %d bytes", MaxName)
	case strings.Count(text, "{") > MaxBraces:
		return "", fmt.Errorf("the pattern has more than %d alternatives in braces", MaxBraces)
	case slices.Contains(strings.Split(text, "/"), ".."):
		return "", errors.New(`the pattern has ".." in it; use path to look in another folder`)
	case !doublestar.ValidatePattern(text):
		return "", errors.New("the pattern is malformed")
	}
	return pattern(text), nil
}

func (p pattern) matches(path string) bool { return doublestar.MatchUnvalidated(string(p), path) }

// names says whether a part of the pattern is exactly that name.
func (p pattern) names(name string) bool { return slices.Contains(strings.Split(string(p), "/"), name) }

// reaches says whether something below the folder may match.
func (p pattern) reaches(dir string) bool {
	if strings.ContainsAny(string(p), `{\`) { // a slash may be anywhere
		return true
	}
	parts := strings.Split(string(p), "/")
	for i, name := range strings.Split(dir, "/") {
		switch {
		case parts[i] == "**":
			return true
		case i == len(parts)-1 || !pattern(parts[i]).matches(name):
			return false
		}
	}
	return true
}

// look is what a walk saw besides what it was sent for.
type look struct {
	unreadable int  // folders
	late       bool // the time was over before everything was seen
}

// note returns a line about it, or "".
func (l look) note() string {
	var notes []string
	if l.unreadable > 0 {
		notes = append(notes, fmt.Sprintf("[%d folders could not be read]\n", l.unreadable))
	}
	if l.late {
		notes = append(notes, fmt.Sprintf("[stopped after %v; there may be more]\n", WalkTimeout))
	}
	return strings.Join(notes, "")
}

// walk calls visit for everything below root, the open folder at, that the pattern may be about, sorted by name in each
// folder, until visit returns false or ctx is done. Links are seen and not followed.
func (f folder) walk(ctx context.Context, at string, root *os.Root, p pattern, visit func(path string, d fs.DirEntry) bool) (look, error) {
	var seen look
	limited, cancel := context.WithTimeout(ctx, WalkTimeout)
	defer cancel()
	err := fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case limited.Err() != nil:
			seen.late = true
			return fs.SkipAll
		case err != nil:
			seen.unreadable++
			return nil // WalkDir goes on with what it has of this folder
		case path == ".":
			return nil
		case d.IsDir() && slices.Contains(hidden, d.Name()) && !p.names(d.Name()):
			return fs.SkipDir
		case d.IsDir() && f.shuts(filepath.Join(at, path)):
			return fs.SkipDir
		case !visit(path, d):
			return fs.SkipAll
		case d.IsDir() && !p.reaches(path):
			return fs.SkipDir
		}
		return nil
	})
	return seen, err
}

// shuts says whether the folder is a closed one, in whatever case: some file systems ignore it.
func (f folder) shuts(path string) bool {
	return slices.ContainsFunc(f.closed, func(c string) bool { return strings.EqualFold(c, path) })
}

package shelltools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"condensate.dev/cnd/core/loop"
)

// Modes of grep.
const (
	modeContent = "content"
	modeFiles   = "files"
	modeCount   = "count"
)

type grepInput struct {
	Pattern    string `json:"pattern"`
	Path       string `json:"path"`
	Glob       string `json:"glob"`
	Mode       string `json:"mode"`
	IgnoreCase bool   `json:"ignore_case"`
	Context    int    `json:"context"`
}

func (i grepInput) name() string { return i.Path }

func (i grepInput) check() error {
	_, err := i.search(folder{})
	return err
}

// search is one run of grep.
type search struct {
	folder  folder
	line    *regexp.Regexp
	literal []byte  // every match begins with it; nil when that says nothing
	files   pattern // paths to look into
	mode    string
	around  int

	out      strings.Builder
	matches  int
	found    int  // files
	full     bool // there is more than fits
	tooLarge int  // files not looked into
}

func (i grepInput) search(f folder) (*search, error) {
	s := &search{folder: f, mode: i.Mode, around: i.Context, files: "**"}
	switch i.Mode {
	case "":
		s.mode = modeContent
	case modeContent, modeFiles, modeCount:
	default:
		return nil, fmt.Errorf("mode must be %s, %s or %s", modeContent, modeFiles, modeCount)
	}
	switch {
	case i.Pattern == "":
		return nil, errors.New("the pattern is empty")
	case len(i.Pattern) > MaxName:
		return nil, fmt.Errorf("the pattern is longer than %d bytes", MaxName)
	case i.Context < 0 || i.Context > MaxContext:
		return nil, fmt.Errorf("context must be between 0 and %d", MaxContext)
	}
	expression := i.Pattern
	if i.IgnoreCase {
		expression = "(?i)" + expression
	}
	var err error
	if s.line, err = regexp.Compile(expression); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if prefix, _ := s.line.LiteralPrefix(); prefix != "" {
		s.literal = []byte(prefix)
	}
	if i.Glob != "" {
		glob := i.Glob
		if !strings.Contains(glob, "/") { // about names, in any folder
			glob = "**/" + glob
		}
		s.files, err = newPattern(glob)
	}
	return s, err
}

func grep(ctx context.Context, f folder, at string, input grepInput) (loop.Result, error) {
	s, err := input.search(f)
	if err != nil {
		return loop.Result{}, err
	}
	seen, err := s.search(ctx, at)
	if err != nil {
		return loop.Result{}, f.about(at, err)
	}
	if s.found == 0 {
		s.out.WriteString("(no line matches)\n")
	}
	if s.full {
		s.out.WriteString("[there are more; narrow the pattern, the path or the glob]\n")
	}
	if s.tooLarge > 0 {
		fmt.Fprintf(&s.out, "[%d files over %d bytes were left out]\n", s.tooLarge, MaxSearched)
	}
	return textResult(s.out.String() + seen.note()), nil
}

// search looks into the file, or all files of the folder, that the path names.
func (s *search) search(ctx context.Context, at string) (look, error) {
	if at != s.folder.path {
		p, err := s.folder.open(at, false)
		if err != nil {
			return look{}, err
		}
		defer p.close()
		if info, err := p.dir.Lstat(p.base); err != nil {
			return look{}, err
		} else if !info.IsDir() {
			return look{}, s.file(p, s.folder.show(at))
		}
	}
	root, err := s.folder.openDir(at)
	if err != nil {
		return look{}, err
	}
	defer root.Close()
	return s.folder.walk(ctx, at, root, s.files, func(name string, d fs.DirEntry) bool {
		if d.Type().IsRegular() && s.files.matches(name) {
			// A file that cannot be read, or is gone by now, has no line to show.
			_ = s.file(place{root, name}, s.folder.show(filepath.Join(at, name)))
		}
		return !s.full
	})
}

// file looks into one file and writes what it finds.
func (s *search) file(p place, shown string) error {
	file, info, err := p.file()
	if err != nil {
		return err
	}
	defer file.Close()
	if info.Size() > MaxSearched {
		s.tooLarge++
		return nil
	}
	content, err := readSearched(file, info.Size())
	if err != nil || isBinary(content) || !bytes.Contains(content, s.literal) {
		return err
	}
	lines := bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n"))
	var hits []int
	for i, line := range lines {
		lines[i] = bytes.TrimSuffix(line, []byte("\r"))
		if s.line.Match(lines[i]) {
			hits = append(hits, i)
		}
	}
	if len(content) > 0 && len(hits) > 0 {
		s.report(valid(shown), lines, hits)
	}
	return nil
}

func readSearched(file *os.File, size int64) ([]byte, error) {
	content := make([]byte, size)
	n, err := io.ReadFull(file, content)
	if err == io.ErrUnexpectedEOF || err == io.EOF { // it shrank
		err = nil
	}
	return content[:n], err
}

// report writes the hits of one file, as far as they fit.
func (s *search) report(shown string, lines [][]byte, hits []int) {
	s.found++
	switch s.mode {
	case modeFiles:
		s.write(shown, s.found > MaxFound)
		return
	case modeCount:
		s.write(fmt.Sprintf("%s:%d", shown, len(hits)), s.found > MaxFound)
		return
	}
	next := 0 // first line that is not written yet
	for i, hit := range hits {
		from, to := max(hit-s.around, next), min(hit+s.around, len(lines)-1)
		if i+1 < len(hits) {
			to = min(to, hits[i+1]-1)
		}
		if s.around > 0 && s.matches > 0 && (i == 0 || from > next) {
			s.write("--", false)
		}
		s.matches++
		for n := from; n <= to; n++ {
			mark := "-"
			if n == hit {
				mark = ":"
			}
			s.write(fmt.Sprintf("%s%s%d%s%s", shown, mark, n+1, mark, shownLine(lines[n])), s.matches > MaxMatches)
		}
		next = to + 1
	}
}

func (s *search) write(line string, over bool) {
	if over || s.full || s.out.Len()+len(line) > MaxOutput-notesRoom {
		s.full = true
		return
	}
	s.out.WriteString(line + "\n")
}

func shownLine(line []byte) string {
	text := valid(string(line[:min(len(line), MaxMatchLine)]))
	if len(line) > MaxMatchLine {
		text += fmt.Sprintf(" [… %d bytes left out]", len(line)-MaxMatchLine)
	}
	return text
}

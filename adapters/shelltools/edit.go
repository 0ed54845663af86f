package shelltools

import (
	"errors"
	"fmt"
	"strings"
)

type editInput struct {
	Path string `json:"path"`
	Old  string `json:"old_string"`
	New  string `json:"new_string"`
	All  bool   `json:"replace_all"`
}

func (i editInput) name() string { return i.Path }
func (i editInput) whole() bool  { return false }

func (i editInput) check() error {
	switch {
	case i.Path == "":
		return errors.New("path is missing")
	case i.Old == "":
		return errors.New("old_string is empty; to make a file use write")
	case i.Old == i.New:
		return errors.New("old_string and new_string are the same")
	}
	return nil
}

func (i editInput) content(now []byte, exists bool) ([]byte, string, error) {
	if !exists {
		return nil, "", errors.New("no such file; to make one use write")
	}
	next, times, err := replaceText(string(now), i.Old, i.New, i.All)
	switch {
	case err != nil:
		return nil, "", err
	case len(next) > MaxFile:
		return nil, "", fmt.Errorf("would grow: %w", tooLarge(int64(len(next)), MaxFile))
	case times == 1:
		return []byte(next), fmt.Sprintf("changed at line %d", 1+strings.Count(next[:commonPrefix(string(now), next)], "\n")), nil
	}
	return []byte(next), fmt.Sprintf("changed at %d places", times), nil
}

// replaceText replaces old in text: its one occurrence, or all of them. Where all lines of the text end as on Windows,
// which read does not show, those of old and new are taken to do so too.
func replaceText(text, old, new string, all bool) (next string, times int, err error) {
	if ends := strings.Count(text, "\n"); ends > 0 && ends == strings.Count(text, "\r\n") {
		windows := strings.NewReplacer("\r\n", "\r\n", "\n", "\r\n")
		old, new = windows.Replace(old), windows.Replace(new)
	}
	first := strings.Index(text, old)
	switch {
	case first < 0:
		return "", 0, errors.New("old_string is not in the file; nothing was changed")
	case !all && first != strings.LastIndex(text, old):
		return "", 0, errors.New("old_string is in the file more than once; give more of the text around it, or set replace_all; nothing was changed")
	}
	return strings.ReplaceAll(text, old, new), strings.Count(text, old), nil
}

// commonPrefix returns how many bytes a and b have in common at their beginning.
func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

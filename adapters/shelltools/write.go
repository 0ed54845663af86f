package shelltools

import (
	"errors"
	"fmt"
)

type writeInput struct {
	Path    string  `json:"path"`
	Content *string `json:"content"`
}

func (i writeInput) name() string { return i.Path }
func (i writeInput) whole() bool  { return true }

func (i writeInput) check() error {
	switch {
	case i.Path == "":
		return errors.New("path is missing")
	case i.Content == nil:
		return errors.New("content is missing")
	case len(*i.Content) > MaxFile:
		return fmt.Errorf("content %w", tooLarge(int64(len(*i.Content)), MaxFile))
	}
	return nil
}

func (i writeInput) content(_ []byte, exists bool) ([]byte, string, error) {
	did := "made, with"
	if exists {
		did = "replaced, now with"
	}
	return []byte(*i.Content), fmt.Sprintf("%s %d bytes", did, len(*i.Content)), nil
}

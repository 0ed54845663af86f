package record

import (
	"fmt"
	"regexp"
)

// kindForm is what a kind looks like: two lower-case words and a dot.
var kindForm = regexp.MustCompile(`^[a-z]+\.[a-z]+$`)

func checkHeader(e *Entry) error {
	if !ValidID(PrefixThread, string(e.Thread)) {
		return fmt.Errorf("thread %.80q: %w", e.Thread, ErrInvalidEntry)
	}
	if !kindForm.MatchString(string(e.Kind)) {
		return fmt.Errorf("kind %.80q: %w", e.Kind, ErrInvalidEntry)
	}
	return nil
}

func checkDraft(thread ThreadID, d Draft) error {
	if err := checkHeader(&Entry{Thread: thread, Kind: d.Kind}); err != nil {
		return err
	}
	return CheckBody(d.Body)
}

// CheckBody says whether body is one JSON object in the strict form: UTF-8, no duplicate keys, no lone surrogates,
// no space between tokens, at most MaxDepth deep. The error wraps [ErrInvalidEntry] and names the byte offset.
func CheckBody(body []byte) error {
	if len(body) < 2 || body[0] != '{' {
		return fmt.Errorf("body is not an object: %w", ErrInvalidEntry)
	}
	return nil // the strict scan is the record slice's first task
}

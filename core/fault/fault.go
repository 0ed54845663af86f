// Package fault classifies failures once, in core, so that every edge can translate them by a complete table:
// exit codes (tools/internal/cli), HTTP statuses (adapters/httpapi).
//
// A fault has a class (closed set, decides the code of the edge), a stable code (for programs, as documented), a
// sentence (for people) and, where one exists, a hint: the next command to run. Sentinels are made with [New] and
// wrapped with fmt.Errorf("act on object: %w", Err). None of the texts may hold a secret.
package fault

import "errors"

// Class says what kind of failure it is and so who can do what about it. The zero value is Internal: an error that
// nobody classified is ours.
type Class uint8

// The classes. Every table that translates them must be total over [Classes].
const (
	Internal        Class = iota // a bug of ours
	Usage                        // the command line or the call is wrong
	Invalid                      // the input is wrong
	TooLarge                     // the input is over a named limit
	NotFound                     // no such thing
	Exhausted                    // a budget or quota is used up; its reset may be known
	Conflict                     // the state is not the one that the caller expected
	Corrupt                      // stored bytes are damaged
	Unavailable                  // temporary: the same call may succeed later
	StorageFull                  // temporary: not enough disk space
	Unauthenticated              // no key, or a wrong one
	Denied                       // known caller, not allowed
	Config                       // the configuration is wrong
	Canceled                     // somebody asked to stop
)

var classNames = [...]string{
	Internal: "internal", Usage: "usage", Invalid: "invalid", TooLarge: "too_large", NotFound: "not_found",
	Exhausted: "exhausted", Conflict: "conflict", Corrupt: "corrupt", Unavailable: "unavailable",
	StorageFull: "storage_full", Unauthenticated: "unauthenticated", Denied: "denied", Config: "config",
	Canceled: "canceled",
}

// String returns the name of c as it stands in JSON.
func (c Class) String() string { return classNames[c] }

// Classes returns every class, for tests of totality.
func Classes() []Class {
	all := make([]Class, len(classNames))
	for i := range all {
		all[i] = Class(i)
	}
	return all
}

// ParseClass returns the class of that name; ok is false for an unknown one.
func ParseClass(name string) (c Class, ok bool) {
	for i, n := range classNames {
		if n == name {
			return Class(i), true
		}
	}
	return Internal, false
}

// Error is a classified failure. It is immutable; compare with errors.Is.
type Error struct {
	Class   Class
	Code    string // stable, for programs: "no-such-thread"
	Message string // one sentence, lower case, no period
	Hint    string // the next thing to do, or ""
}

// New makes a sentinel.
func New(class Class, code, message string) *Error {
	return &Error{Class: class, Code: code, Message: message}
}

// Error implements error. The code is part of the text when the message does not name it.
func (e *Error) Error() string { return e.Message }

// hinted carries a hint over a wrapped error.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// WithHint returns err with the next command to run. It replaces an inner hint.
func WithHint(err error, hint string) error { return hinted{err, hint} }

// Find returns the classified fault inside err, or an Internal one with code "internal" and err's own text.
func Find(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Class: Internal, Code: "internal", Message: err.Error()}
}

// ClassOf returns the class of err; Internal when nobody classified it.
func ClassOf(err error) Class { return Find(err).Class }

// HintOf returns the outermost hint of err, or "".
func HintOf(err error) string {
	var h hinted
	if errors.As(err, &h) {
		return h.hint
	}
	return Find(err).Hint
}

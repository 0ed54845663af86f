// Package policy decides whether a tool call may run. Evaluate is pure: the same event and rules give the same
// decision.
//
// # Rules
//
// Before all others, a call that names a path in a folder of the runtime itself, where its keys, rules and records are,
// is denied. The owner's rules are a list; the first one that matches decides. After them come the built-in ones: a tool
// that the thread's owner allowed when it was started is allowed, a write inside a ".git" asks because git runs what
// stands there, reads and other writes inside the thread's folder are allowed, and everything else asks a person.
//
// A pattern is text in which "*" stands for any run of characters, "/" included, and everything else for itself. For a
// call that names paths it is matched against each path, whole; a pattern that starts with neither "/" nor "*" is
// relative to the thread's folder. For a command it is matched against the command line, whole. An empty pattern
// matches every call of the tool.
//
// A rule that allows is careful and one that stops is wide: allow needs every path of the call to match as it is
// written, deny and ask any in whatever case, as some file systems find it. An allow pattern matches commands only if the
// rule names their tool itself, not by a "*", and only plain commands, words without any character that has a meaning to
// the shell beyond quotes: "git *" does not allow "git status; rm -rf /". A deny pattern for commands is a help against
// mistakes, not a fence: there are many ways to write a command.
package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
)

// Verdict is what a decision says. The zero value denies: a forgotten case denies.
type Verdict uint8

// The verdicts.
const (
	Deny Verdict = iota
	Ask
	Allow
)

var verdictNames = [...]string{Deny: "deny", Ask: "ask", Allow: "allow"}

// String returns the name of v as it stands in JSON.
func (v Verdict) String() string { return verdictNames[v] }

// Event is a tool call that is about to run.
type Event struct {
	Thread record.ThreadID
	Cwd    string // absolute, cleaned, link-free folder of the thread
	Call   string
	Tool   string
	Input  json.RawMessage
	// Paths are the absolute, cleaned, link-free paths that the call names; Writes says that it changes them.
	Paths  []string
	Writes bool
	// Allow holds the tools that the thread's owner allowed when it was started.
	Allow []string
}

// Decision is data, with its reason, ready to record and to show.
type Decision struct {
	Verdict Verdict
	Rule    string // name of the rule that decided
	Reason  string // one sentence for the person who was stopped
}

// Rule is one line of the owner's list, as it stands in config.json.
type Rule struct {
	// Name is what records and messages call the rule; default "rule N", counted from 1.
	Name string `json:"name,omitempty"`
	// Tool is the name of a tool, or a pattern for it; "*" is every tool.
	Tool string `json:"tool"`
	// Pattern is matched against the paths or the command of a call; "" matches every call.
	Pattern string `json:"pattern,omitempty"`
	// Verdict is "allow", "ask" or "deny".
	Verdict string `json:"verdict"`
	// Reason is shown to whoever was stopped; optional.
	Reason string `json:"reason,omitempty"`
}

// ErrInvalidRule: a rule of the configuration is wrong.
var ErrInvalidRule = fault.New(fault.Config, "invalid-rule", "rule is wrong")

// Owner decides by the owner's rules. It implements loop.Policy and never has a fault.
type Owner struct {
	rules []Rule
	own   []string
}

// NewOwner returns a policy over rules, or an error that names every problem of them, wrapping [ErrInvalidRule]. own
// are the absolute, cleaned, link-free folders of the runtime itself.
func NewOwner(rules []Rule, own ...string) (*Owner, error) {
	var problems []error
	for i, r := range rules {
		if why := r.problem(); why != "" {
			problems = append(problems, fmt.Errorf("%s: %s: %w", r.name(i), why, ErrInvalidRule))
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return &Owner{slices.Clone(rules), slices.Clone(own)}, nil
}

// Decide returns what Evaluate says, unless the call names a path of the runtime itself.
func (o *Owner) Decide(_ context.Context, e Event) (Decision, error) {
	for _, folder := range o.own {
		if slices.ContainsFunc(e.Paths, func(p string) bool { return within(fold(folder), fold(p)) }) {
			return Decision{Deny, "own-files", "the keys, rules and records of the runtime are closed to its tools"}, nil
		}
	}
	return Evaluate(e, o.rules), nil
}

func (r Rule) problem() string {
	var wrong []string
	if r.Tool == "" {
		wrong = append(wrong, `tool is missing ("*" is every tool)`)
	}
	if !slices.Contains(verdictNames[:], r.Verdict) {
		wrong = append(wrong, fmt.Sprintf("verdict %.20q is none of allow, ask and deny", r.Verdict))
	}
	return strings.Join(wrong, "; ")
}

func (r Rule) name(i int) string {
	if r.Name != "" {
		return r.Name
	}
	return fmt.Sprintf("rule %d", i+1)
}

// verdict returns what the rule says; what is no verdict denies.
func (r Rule) verdict() Verdict {
	if i := slices.Index(verdictNames[:], r.Verdict); i > 0 {
		return Verdict(i)
	}
	return Deny
}

// Evaluate decides about a call.
func Evaluate(e Event, rules []Rule) Decision {
	for i, r := range rules {
		if !glob(r.Tool, e.Tool) || !r.matches(e) {
			continue
		}
		d := Decision{Verdict: r.verdict(), Rule: r.name(i), Reason: r.Reason}
		if d.Reason == "" {
			d.Reason = fmt.Sprintf("the owner's rules say %s", d.Verdict)
		}
		return d
	}
	return builtIn(e)
}

// builtIn decides when none of the owner's rules does.
func builtIn(e Event) Decision {
	inside := !slices.ContainsFunc(e.Paths, func(p string) bool { return !within(e.Cwd, p) })
	switch {
	case slices.Contains(e.Allow, e.Tool):
		return Decision{Allow, "allowed-in-thread", e.Tool + " was allowed when the thread was started"}
	case !inside:
		return Decision{Ask, "outside-folder", e.Tool + " goes outside the thread's folder"}
	case e.Writes && slices.ContainsFunc(e.Paths, inGit):
		return Decision{Ask, "writes-git", "git runs programs that stand there"}
	case !e.Writes:
		return Decision{Allow, "reads", "reading inside the thread's folder is allowed"}
	case len(e.Paths) > 0:
		return Decision{Allow, "writes-in-folder", "writing inside the thread's folder is allowed"}
	}
	return Decision{Ask, "asks-by-default", e.Tool + " may change anything"}
}

// within says whether the path is the folder or below it. Both are cleaned.
func within(folder, path string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// inGit says whether the path is a ".git" or below one.
func inGit(path string) bool { return slices.Contains(strings.Split(fold(path), "/"), ".git") }

// fold makes texts equal that differ in case only.
func fold(text string) string { return strings.ToLower(strings.ToUpper(text)) }

// matches says whether the rule's pattern fits the call.
func (r Rule) matches(e Event) bool {
	if r.Pattern == "" {
		return true
	}
	allows := r.verdict() == Allow
	fit := func(pattern, text string) bool {
		return glob(pattern, text) || !allows && glob(fold(pattern), fold(text))
	}
	if len(e.Paths) == 0 {
		command, ok := commandOf(e.Input)
		return ok && fit(r.Pattern, command) && (!allows || r.Tool == e.Tool && plain(command))
	}
	pattern := r.Pattern
	if pattern[0] != '/' && pattern[0] != '*' {
		pattern = strings.TrimSuffix(e.Cwd, "/") + "/" + pattern
	}
	fits := func(path string) bool { return fit(pattern, path) }
	if allows {
		return !slices.ContainsFunc(e.Paths, func(path string) bool { return !fits(path) })
	}
	return slices.ContainsFunc(e.Paths, fits)
}

// commandOf returns the command line of a call, read as the tools read it.
func commandOf(input json.RawMessage) (string, bool) {
	var b struct {
		Command string `json:"command"`
	}
	err := json.Unmarshal(input, &b)
	return b.Command, err == nil && b.Command != ""
}

// plain says whether a shell would run exactly one program with words as its arguments.
func plain(command string) bool {
	return !strings.ContainsFunc(command, func(r rune) bool {
		return r < ' ' || strings.ContainsRune("`$;&|<>(){}\\!", r)
	})
}

// glob says whether text fits the pattern: "*" stands for any run of bytes, everything else for itself.
func glob(pattern, text string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == text
	}
	if !strings.HasPrefix(text, first) {
		return false
	}
	text = text[len(first):]
	for {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(text, part)
		}
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text, rest = text[at+len(part):], after
	}
}

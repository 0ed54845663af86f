// Package policy decides whether a tool call may run. Evaluate is pure: the same event and rules give the same
// decision.
package policy

import (
	"encoding/json"

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

// Event is a tool call that is about to run.
type Event struct {
	Thread record.ThreadID
	Cwd    string // absolute folder of the thread
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

// Package loop is the built-in agent loop: a pure state machine over a thread's entries and a driver that performs
// what the machine decides.
//
// [State] is the fold of the entries; [Next] says, from the state, what must be appended and which effects may start. The
// driver keeps no hidden state: kill it anywhere, fold again, continue. One goroutine owns a thread and makes all its
// appends; effects (model calls, policy decisions, tools) run beside it and hand back completions that carry the engine
// generation, so that a completion of another generation is dropped.
//
// What led to an effect is durable before the effect starts. All that is decided in between is one append.
package loop

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"condensate.dev/cnd/core/policy"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// Ports are what a host needs of the world.
type Ports struct {
	Store    record.Store
	Model    Model
	Tools    Tools
	Policy   Policy
	Follower Follower
	Now      func() time.Time
	Entropy  io.Reader // safe for concurrent use
	// Ready says whether new work may start; otherwise an error of class storage_full or unavailable, whose text is
	// recorded. It is asked often and must be cheap. Nil is always ready.
	Ready func() error
}

// Request is a prepared model request. Body belongs to the caller and is read-only for the model.
type Request struct {
	Thread  record.ThreadID
	Seq     record.Seq // of its request.prepared
	Attempt int
	Epoch   thread.EpochStarted // method, URL, pinned headers, account
	Body    []byte
}

// Delta is an ephemeral piece of a streaming answer.
type Delta struct {
	Request record.Seq `json:"request"`
	Attempt int        `json:"attempt"`
	Offset  int64      `json:"offset"`         // bytes of text of this attempt before this delta
	Kind    string     `json:"kind"`           // "text", "thinking", "tool_call" or "output"
	Call    string     `json:"call,omitempty"` // of a tool call that prints; Kind is "output"
	Text    string     `json:"text"`
}

// Answer is a model's complete answer. View and Native are in the provider's order.
type Answer struct {
	Native            []json.RawMessage // verbatim tokens of each content block; strict or not
	View              []thread.Block    // calls have Name, Input or InputText, but no Call: the loop numbers them
	StopReason        string
	Model             string
	ProviderMessageID string
	ProviderRequestID string
	Usage             thread.Usage
	Diagnostics       json.RawMessage
}

// ModelError is why a request got no answer. Cause is one of the causes of answer.aborted.
type ModelError struct {
	Cause   string
	Detail  string    // one sentence, never a credential
	RetryAt time.Time // zero when the provider did not say
	// Partial holds the blocks finished before the break, ShownText the text of the unfinished one.
	Partial           Answer
	ShownText         string
	TextBytes         int64
	ProviderRequestID string
	Usage             thread.Usage
}

// Error implements error.
func (e *ModelError) Error() string { return e.Cause + ": " + e.Detail }

// Model sends requests to a provider. It is safe for concurrent use.
type Model interface {
	// Send posts the body as it is and reads the streamed answer, reporting deltas as they come from the calling
	// goroutine. Every failure is a *ModelError; a canceled context gives one with CauseInterrupt and what was
	// finished before. It never retries and never follows a redirect.
	Send(ctx context.Context, r Request, deltas func(kind, text string)) (Answer, error)
}

// Call is a tool call of an answer.
type Call struct {
	Thread record.ThreadID
	ID     string // "<request seq>.<index>"
	Cwd    string
	Name   string
	Input  json.RawMessage
}

// Plan is what a tool will do, found without doing it.
type Plan struct {
	Replay string             // thread.ReplaySafe or thread.ReplayUnsafe
	Effect *thread.FileEffect // of write and edit
	Paths  []string           // absolute, cleaned, link-free paths that the call names
	Writes bool               // it may change something
	// Refused is set when the call cannot run at all (unknown tool, wrong input, path outside): the result that the
	// model gets instead.
	Refused *Result
}

// Result is what a tool gives back.
type Result struct {
	IsError  bool
	Content  []thread.Block // text at most record.InlineLimit in all; images have Blob
	Blobs    []record.Blob
	ExitCode *int
	CutBytes int64
	Spool    string
	Elapsed  time.Duration
}

// Outcome is what a finished or recovered call turned out to be. Exactly one field is set.
type Outcome struct {
	Result  *Result             // it took effect, with this result
	NotDone bool                // it certainly did not take effect
	Unknown *thread.ToolUnknown // nobody knows; Call is filled in by the loop
}

// Tools runs tool calls. It is safe for concurrent use.
type Tools interface {
	// Specs returns the declarations for a new epoch.
	Specs() []thread.ToolSpec
	// Plan checks a call and says what it would do; it changes nothing. An error is a fault of ours, not of the call.
	Plan(ctx context.Context, c Call) (Plan, error)
	// Run performs the call that was planned. Tool.started is durable when it is called. A canceled context ends the
	// work and everything it started; the outcome then says what is known. progress gets output as it comes.
	Run(ctx context.Context, c Call, p Plan, progress func(text string)) Outcome
	// Recover is asked after a crash about a call that had started, in a process that did not start it. It waits
	// until nothing of the call runs any more.
	Recover(ctx context.Context, c Call, started thread.ToolStarted) Outcome
}

// Policy decides about calls. An error is a fault, not a decision: the turn waits and the question is asked again.
type Policy interface {
	Decide(ctx context.Context, e policy.Event) (policy.Decision, error)
}

// Follower hears what happens, for live views. Calls come from the thread's goroutine and must not block.
type Follower interface {
	// Appended is called after the entries are durable.
	Appended(thread record.ThreadID, entries []record.Entry)
	// Streamed is called for each delta of an answer, and with Kind "output" and the call's id in Call for output of
	// a running tool.
	Streamed(thread record.ThreadID, d Delta)
	// Reset is called when the attempt that streamed is over: what followers show of it is replaced by entries.
	Reset(thread record.ThreadID)
}

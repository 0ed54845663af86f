// Package thread says what the entries of a thread mean: the body of every kind of entry, and the summary that lists
// of threads show.
//
// The bodies are part of the record format v0 (docs/formats/record.md): a field never changes its meaning, a new need
// is a new field that old readers may ignore, or a new kind. Sizes are in bytes, times in RFC 3339, hashes as 64
// hexadecimal digits, names of blobs as "sha256:" and the digest. Text is valid UTF-8: foreign bytes are made valid
// before an entry is made.
package thread

import (
	"encoding/json"

	"condensate.dev/cnd/core/record"
)

// What to do with a turn that was at work when the runtime died.
const (
	ResumeAuto = "auto" // go on by itself
	ResumeAsk  = "ask"  // mark it lost and wait for a person
)

// Created is the body of thread.created, the first entry of a thread that is no fork.
type Created struct {
	Title     string   `json:"title,omitempty"`
	Cwd       string   `json:"cwd"`                  // absolute path of the thread's folder
	Engine    string   `json:"engine"`               // "loop": the built-in loop
	Isolation string   `json:"isolation"`            // "user", "sandbox" or "none"
	Allow     []string `json:"allow,omitempty"`      // tools that need no approval in this thread, as given by its owner
	Resume    string   `json:"resume,omitempty"`     // "auto" (default) or "ask": what to do with a turn after a crash
	HeadKey   string   `json:"head_key"`             // verifier key of the notes over this thread's heads
	CreatedBy string   `json:"created_by,omitempty"` // "owner"
}

// Reasons of engine.started.
const (
	EngineCreated   = "created"   // with the thread
	EngineRecovered = "recovered" // a turn was running when the engine before it ended
	EngineReopened  = "reopened"  // no turn was running
	EngineResumed   = "resumed"   // a person asked a lost or waiting turn to go on: its wait is over
)

// EngineStarted is the body of engine.started: from this entry on, entries carry its gen.
type EngineStarted struct {
	Engine  string `json:"engine"`
	Version string `json:"version"` // version of the program that runs the engine
	Reason  string `json:"reason"`
}

// Reasons of epoch.started that the built-in loop writes.
const (
	EpochCreated = "created" // with the thread
	EpochRepair  = "repair"  // a block that was sent is rendered in another way
)

// EpochStarted is the body of epoch.started: every input of a request that is not a message. Within an epoch requests
// only grow. The builder renders all earlier messages anew when an epoch starts.
type EpochStarted struct {
	Reason   string      `json:"reason"`   // "created", "repair", "erase", "undo", "account", "model", "settings"
	Builder  string      `json:"builder"`  // version of the request builder, for example "anthropic/0"
	Provider string      `json:"provider"` // "anthropic"
	Account  string      `json:"account"`  // "provider:name"
	Model    string      `json:"model"`
	Method   string      `json:"method"`  // "POST"
	URL      string      `json:"url"`     // the logical URL; where it is dialled is configuration
	Headers  [][2]string `json:"headers"` // pinned headers: lower-case name and value, in order; never a credential
	// MaxTokens bounds the answer.
	MaxTokens int             `json:"max_tokens"`
	System    []string        `json:"system,omitempty"` // text blocks, in order
	Tools     []ToolSpec      `json:"tools,omitempty"`
	Thinking  json.RawMessage `json:"thinking,omitempty"` // verbatim value of the provider's thinking field
	Cache     Cache           `json:"cache"`
	// CacheTokensLost is the price of the change: how many tokens of the last request's cached prefix (reads and
	// writes) this epoch makes the provider read again. 0 for the first epoch.
	CacheTokensLost int64 `json:"cache_tokens_lost"`
}

// Cache holds the settings of the provider's prompt cache.
type Cache struct {
	TTL         string `json:"ttl"`                   // "5m", "1h", or "" for no caching
	Diagnostics bool   `json:"diagnostics,omitempty"` // ask why a prefix was not reused
}

// ToolSpec declares a tool to the model.
type ToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// Types of a block.
const (
	BlockText     = "text"
	BlockImage    = "image"
	BlockThinking = "thinking"
	BlockToolCall = "tool_call"
)

// Block is one piece of content in a neutral form. Type decides which other fields are set:
//
//	"text"      Text, or Blob when the text is over record.InlineLimit
//	"image"     MediaType and Blob
//	"thinking"  Text; shown to people, never sent from here
//	"tool_call" Call, Name, Input (one JSON value) or InputText when the input is not JSON in the strict form
type Block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	MediaType string          `json:"media_type,omitempty"`
	Blob      string          `json:"blob,omitempty"`
	Call      string          `json:"call,omitempty"` // "<request seq>.<index>", ours
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	InputText string          `json:"input_text,omitempty"`
}

// Modes of a submitted message.
const (
	ModeQueue       = "queue"         // a turn of its own, after those before it
	ModeSteer       = "steer"         // joins the running turn at its next request; a turn of its own when idle
	ModeStartIfIdle = "start-if-idle" // skipped, without an error, when the thread is busy
	ModeReject      = "reject"        // refused when the thread is busy
)

// MessageAccepted is the body of message.accepted: a message is durable but no request holds it yet.
type MessageAccepted struct {
	Blobs   []string `json:"blobs,omitempty"`
	ID      string   `json:"id"` // chosen by the client, "msg_…"; unique within the thread
	Mode    string   `json:"mode"`
	By      string   `json:"by"` // "owner"
	Content []Block  `json:"content"`
	// BodySHA256 is the hash of what the client sent as mode and content: the same id with another one is a conflict.
	BodySHA256 string `json:"body_sha256"`
}

// MessagePlaced is the body of message.placed: from here on the message is part of the conversation.
type MessagePlaced struct {
	ID       string     `json:"id"`
	Accepted record.Seq `json:"accepted"` // seq of its message.accepted
	Turn     string     `json:"turn"`
}

// TurnStarted is the body of turn.started.
type TurnStarted struct {
	Turn string `json:"turn"` // "trn_…"
}

// Reasons of turn.waiting.
const (
	WaitApproval    = "approval"           // a person must approve or deny Call
	WaitPolicy      = "policy-unavailable" // the policy service does not answer
	WaitOverloaded  = "overloaded"         // the provider is busy; goes on at Until
	WaitRateLimited = "rate-limited"       // goes on at Until
	WaitNetwork     = "network"            // the provider could not be reached; goes on at Until
	WaitLogin       = "login-required"     // the provider refused the login; goes on after resume
	WaitDisk        = "disk-low"           // too little disk space
	WaitResume      = "resume"             // a person must press resume (resume mode "ask", drift, attempts used up)
)

// TurnWaiting is the body of turn.waiting: the turn does not go on by itself before what it names. Any later entry of
// the turn ends the waiting.
type TurnWaiting struct {
	Turn   string `json:"turn"`
	Reason string `json:"reason"`
	Call   string `json:"call,omitempty"`
	Until  string `json:"until,omitempty"` // RFC 3339; "" when nobody knows
	Detail string `json:"detail,omitempty"`
}

// TurnInterrupted is the body of turn.interrupted; it is durable before the loop acts on it.
type TurnInterrupted struct {
	Turn string `json:"turn"`
	By   string `json:"by"`
	ID   string `json:"id"` // chosen by the client; the same id again changes nothing
}

// States of a finished turn.
const (
	TurnCompleted = "completed"
	TurnFailed    = "failed"
	TurnStopped   = "interrupted"
)

// TurnFinished is the body of turn.finished.
type TurnFinished struct {
	Turn  string `json:"turn"`
	State string `json:"state"`
	// StopReason is the provider's, when the turn completed.
	StopReason string `json:"stop_reason,omitempty"`
	Error      *Error `json:"error,omitempty"`
}

// Error is a failure as it stands in a record: never a secret, never a stack.
type Error struct {
	Class   string `json:"class"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// TurnLost is the body of turn.lost: the runtime died in this turn and, in resume mode "ask", waits for a person.
type TurnLost struct {
	Turn  string `json:"turn"`
	Cause string `json:"cause"`
}

// RequestPrepared is the body of request.prepared: durable before the request is sent.
type RequestPrepared struct {
	Turn        string     `json:"turn"`
	Epoch       record.Seq `json:"epoch"`   // seq of the epoch.started
	Attempt     int        `json:"attempt"` // 1 for the first; a resend has the same fingerprint and the next number
	BodySHA256  string     `json:"body_sha256"`
	Fingerprint string     `json:"fingerprint"`
	BodyBytes   int64      `json:"body_bytes"`
	Messages    int        `json:"messages"` // messages in the body
	Blocks      int        `json:"blocks"`   // cacheable blocks in the body: tools, system and content
	// First is the seq of the request.prepared with attempt 1 of the same bytes; its own seq when Attempt is 1 is
	// written as 0.
	First record.Seq `json:"first,omitempty"`
}

// Raw is one JSON value of a provider, kept verbatim token by token (white space between tokens is not kept).
// Exactly one field is set.
type Raw struct {
	JSON json.RawMessage `json:"json,omitempty"` // in the strict form of a body
	Text string          `json:"text,omitempty"` // JSON text that the strict form does not allow (duplicate keys, lone surrogates, too deep)
	Blob string          `json:"blob,omitempty"` // JSON text over record.InlineLimit
}

// Usage counts tokens as the provider reported them; nil where it did not.
type Usage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_tokens"`
	CacheWrite *int64 `json:"cache_write_tokens"`
}

// AnswerFinished is the body of answer.finished.
type AnswerFinished struct {
	Blobs             []string        `json:"blobs,omitempty"`
	Request           record.Seq      `json:"request"` // seq of the request.prepared that was answered
	Attempt           int             `json:"attempt"`
	Native            []Raw           `json:"native"` // the provider's own content blocks, in order
	View              []Block         `json:"view"`
	StopReason        string          `json:"stop_reason"`
	Model             string          `json:"model,omitempty"`
	ProviderMessageID string          `json:"provider_message_id,omitempty"`
	ProviderRequestID string          `json:"provider_request_id,omitempty"`
	Usage             Usage           `json:"usage"`
	Diagnostics       json.RawMessage `json:"diagnostics,omitempty"` // the provider's, verbatim
}

// Causes of answer.aborted.
const (
	CauseCrash       = "crash"        // the runtime died; whether it was billed is unknown
	CauseInterrupt   = "interrupt"    // by a person; what was shown is kept
	CauseOverloaded  = "overloaded"   // 529, 503, 500 and overloaded_error
	CauseRateLimited = "rate-limited" // 429; RetryAt says when
	CauseInvalid     = "invalid"      // 400, 404, 413, 422: the same bytes will not do
	CauseAuth        = "auth"         // 401, 403
	CauseNetwork     = "network"      // no answer, or it broke off
	CauseMalformed   = "malformed"    // the answer does not follow the wire format
	CauseShutdown    = "shutdown"     // the runtime was stopped in an orderly way
)

// AnswerAborted is the body of answer.aborted. Native and ShownText are set only when the cause is interrupt; for any
// other cause the builder ignores the attempt.
type AnswerAborted struct {
	Blobs             []string   `json:"blobs,omitempty"`
	Request           record.Seq `json:"request"`
	Attempt           int        `json:"attempt"`
	Cause             string     `json:"cause"`
	Detail            string     `json:"detail,omitempty"` // one sentence of the provider or of ours
	RetryAt           string     `json:"retry_at,omitempty"`
	Native            []Raw      `json:"native,omitempty"` // finished blocks only
	ShownText         string     `json:"text,omitempty"`   // text of the unfinished block that was shown
	TextBytes         int64      `json:"text_bytes"`       // bytes of text shown in all
	ProviderRequestID string     `json:"provider_request_id,omitempty"`
	Usage             Usage      `json:"usage"`
}

// Replay rules of a tool.
const (
	ReplaySafe   = "safe"   // may run again after a crash
	ReplayUnsafe = "unsafe" // never started twice
)

// FileEffect says what a tool will do to one file, so that recovery can tell done from not done.
type FileEffect struct {
	Path   string `json:"path"`   // absolute
	Before string `json:"before"` // SHA-256 of the content, or "absent"
	After  string `json:"after"`
}

// ToolStarted is the body of tool.started: durable before the tool starts.
type ToolStarted struct {
	Call   string      `json:"call"`
	Name   string      `json:"name"`
	Replay string      `json:"replay"`
	Effect *FileEffect `json:"effect,omitempty"`
}

// ToolFinished is the body of tool.finished. A call that was denied, or whose input is wrong, finishes without having
// started.
type ToolFinished struct {
	Blobs     []string `json:"blobs,omitempty"`
	Call      string   `json:"call"`
	IsError   bool     `json:"is_error,omitempty"`
	Content   []Block  `json:"content"`             // text and images
	ExitCode  *int     `json:"exit_code,omitempty"` // of a command
	CutBytes  int64    `json:"cut_bytes,omitempty"` // output bytes that are not in Content
	Spool     string   `json:"spool,omitempty"`     // file with the full output, when CutBytes is not 0
	ElapsedMS int64    `json:"elapsed_ms,omitempty"`
	Recovered bool     `json:"recovered,omitempty"` // the result was found after a crash
}

// ToolUnknown is the body of tool.unknown: the call had started and whether it took effect is not known.
type ToolUnknown struct {
	Call    string `json:"call"`
	Cause   string `json:"cause"`             // "crash", "interrupt", "timeout" or "shutdown"
	Partial string `json:"partial,omitempty"` // output seen before
}

// Verdicts of a policy.
const (
	VerdictAllow = "allow"
	VerdictAsk   = "ask"
	VerdictDeny  = "deny"
)

// PolicyDecided is the body of policy.decided.
type PolicyDecided struct {
	Call    string `json:"call"`
	Verdict string `json:"verdict"`
	Rule    string `json:"rule"` // name of the rule that decided
	Reason  string `json:"reason"`
	// Paths are what the call named when it was decided. With other paths the decision does not count any more.
	Paths []string `json:"paths,omitempty"`
}

// ApprovalAsked is the body of approval.asked.
type ApprovalAsked struct {
	Call   string `json:"call"`
	Turn   string `json:"turn"`
	Reason string `json:"reason"`
}

// ApprovalAnswered is the body of approval.answered; the first answer to a call wins.
type ApprovalAnswered struct {
	Call    string `json:"call"`
	Verdict string `json:"verdict"` // "allow" or "deny"
	By      string `json:"by"`
	Reason  string `json:"reason,omitempty"`
}

// NoteInjected is the body of note.injected: text that the policy adds to the agent's next turn.
type NoteInjected struct {
	Text  string `json:"text"`
	Label string `json:"label,omitempty"`
}

// StepUndone is the body of step.undone: the entries From to To (both included) are no longer part of the
// conversation. A new epoch follows.
type StepUndone struct {
	From record.Seq `json:"from"`
	To   record.Seq `json:"to"`
}

// Repairs of history.repaired.
const (
	RepairDropBlock   = "drop-block"   // Block of Target's native or content list is left out
	RepairReplaceText = "replace-text" // Block is replaced by a text block with Text
	RepairDropResult  = "drop-result"  // the result in Target belongs to no call and is left out
)

// HistoryRepaired is the body of history.repaired: how one block of an earlier entry is rendered from here on. When
// the block was part of a request already, a new epoch follows.
type HistoryRepaired struct {
	Target record.Seq `json:"target"`
	Block  int        `json:"block"`
	Repair string     `json:"repair"`
	Text   string     `json:"text,omitempty"`
	Why    string     `json:"why"`
}

// Forked is the body of thread.forked, the first own entry of a fork.
type Forked struct {
	Parent record.ThreadID `json:"parent"`
	Seq    record.Seq      `json:"seq"`
	Hash   string          `json:"hash"`
}

// EntryErased is the body of entry.erased. What created threads, forks and erasures say is never erased.
type EntryErased struct {
	Seq  record.Seq `json:"seq"`
	Hash string     `json:"hash"` // of the entry whose body was erased
	// By is set in a fork only, when the erased entry is inherited and the parent erased it past the fork: the seq of
	// the parent's entry.erased.
	By     record.Seq `json:"by,omitempty"`
	Reason string     `json:"reason"`
}

// IncidentSeen is the body of incident.seen.
type IncidentSeen struct {
	What   string `json:"what"`
	Detail string `json:"detail,omitempty"`
}

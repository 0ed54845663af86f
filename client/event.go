package client

import (
	"encoding/json"
	"fmt"

	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
)

// Types of events.
const (
	EventEntry     = "entry"     // Entry is durable
	EventDelta     = "delta"     // Delta of an answer or of a tool's output
	EventSnapshot  = "snapshot"  // Snapshot replaces all deltas shown so far
	EventReset     = "reset"     // the deltas shown so far are void: entries say what counts
	EventHeartbeat = "heartbeat" // every entry up to Seq was sent
)

// Event is something that happened in a thread.
type Event struct {
	Type string
	// Seq of the entry, or of the newest one that was sent (heartbeat).
	Seq      record.Seq
	Entry    record.Entry
	Delta    loop.Delta
	Snapshot Snapshot
	// JSON is the message as it came: {"v":0,"type":…}, with the entry's line verbatim. Resets that stand for a lost
	// connection are made here.
	JSON []byte
}

// Snapshot is what a running attempt has shown so far.
type Snapshot struct {
	Request  record.Seq `json:"request"`
	Attempt  int        `json:"attempt"`
	CutBytes int64      `json:"cut_bytes"` // text at the front that is not in Parts
	Parts    []Part     `json:"parts"`
}

// Part is a run of deltas of one kind, or all output of one call.
type Part struct {
	Kind string `json:"kind"`
	Call string `json:"call"`
	Text string `json:"text"`
}

// resetEvent stands for deltas that were lost with a connection.
var resetEvent = Event{Type: EventReset, JSON: []byte(`{"v":0,"type":"reset"}`)}

// parseEvent reads one message of a stream. An unknown type has only its Type and JSON.
func parseEvent(text []byte) (Event, error) {
	var m struct {
		V     *int
		Type  string
		Entry rawLine
		Seq   record.Seq
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return Event{}, strange(fmt.Sprintf("a message of the stream is not JSON: %v", err))
	}
	if m.V == nil || *m.V != 0 {
		return Event{}, strange("a message of the stream has a version that this client does not know")
	}
	e := Event{Type: m.Type, Seq: m.Seq, JSON: text}
	var err error
	switch m.Type {
	case EventEntry:
		if e.Entry, err = record.Parse(m.Entry); err != nil {
			return Event{}, fmt.Errorf("entry of the stream: %w", err)
		}
		e.Seq = e.Entry.Seq
	case "error": // the last message: the stream cannot go on
		if err := parseFault(text); err != nil {
			return Event{}, err
		}
		return Event{}, strange("an error of the stream does not say what it is")
	case EventDelta:
		err = json.Unmarshal(text, &e.Delta)
	case EventSnapshot:
		err = json.Unmarshal(text, &e.Snapshot)
	}
	if err != nil {
		return Event{}, strange(fmt.Sprintf("a %s of the stream: %v", m.Type, err))
	}
	return e, nil
}

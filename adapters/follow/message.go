package follow

import (
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// Types of messages; docs/API.md describes each.
const (
	typeEntry     = "entry"
	typeDelta     = "delta"
	typeReset     = "reset"
	typeSnapshot  = "snapshot"
	typeHeartbeat = "heartbeat"
	typeError     = "error"
)

// message is one message to a follower: a JSON object without line breaks.
type message struct {
	kind string
	seq  record.Seq // of an entry
	data []byte
}

// head opens every message but an entry.
type head struct {
	V    int    `json:"v"`
	Type string `json:"type"`
}

// entryMessage holds the stored line verbatim.
func entryMessage(e record.Entry) message {
	const open = `{"v":0,"type":"entry","entry":`
	data := make([]byte, 0, len(open)+len(e.Line)+1)
	data = append(data, open...)
	data = append(data, e.Line...)
	return message{typeEntry, e.Seq, append(data, '}')}
}

func deltaMessage(d loop.Delta) message {
	return message{kind: typeDelta, data: thread.Encode(struct {
		head
		loop.Delta
	}{head{Type: typeDelta}, d})}
}

func resetMessage() message {
	return message{kind: typeReset, data: thread.Encode(head{Type: typeReset})}
}

func snapshotMessage(s snapshot) message {
	return message{kind: typeSnapshot, data: thread.Encode(struct {
		head
		snapshot
	}{head{Type: typeSnapshot}, s})}
}

// heartbeatMessage says that the follower has every entry up to seq.
func heartbeatMessage(seq record.Seq) message {
	return message{kind: typeHeartbeat, data: thread.Encode(struct {
		head
		Seq record.Seq `json:"seq"`
	}{head{Type: typeHeartbeat}, seq})}
}

// errorMessage is the last message of a stream that cannot go on.
func errorMessage(err error) message {
	f := fault.Find(err)
	return message{kind: typeError, data: thread.Encode(struct {
		head
		Error thread.Error `json:"error"`
	}{head{Type: typeError}, thread.Error{
		Class: f.Class.String(), Code: f.Code, Message: err.Error(), Hint: fault.HintOf(err),
	}})}
}

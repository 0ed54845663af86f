package loop

import (
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// NewThread is what its owner decides of a thread.
type NewThread struct {
	ID      record.ThreadID // "" to have one made
	Created thread.Created
	Epoch   thread.EpochStarted
}

// Message is what a client submits.
type Message struct {
	ID      string // "msg_…"; "" to have one made
	Mode    string
	By      string
	Content []thread.Block // text blocks have Text, however long
	Blobs   []record.Blob
}

// States of a receipt.
const (
	ReceiptAccepted  = "accepted"  // durable
	ReceiptDuplicate = "duplicate" // the same command was accepted before; Seq is where
	ReceiptSkipped   = "skipped"   // start-if-idle and the thread was busy; nothing was written
)

// Receipt answers a command after it is durable.
type Receipt struct {
	Seq   record.Seq `json:"seq"`
	State string     `json:"state"`
}

package record

// Kind says what an entry means. The bodies are in package thread.
type Kind string

// The kinds of version 0. An unknown kind verifies; the fold of a thread refuses it.
const (
	ThreadCreated    Kind = "thread.created"
	ThreadForked     Kind = "thread.forked"
	ThreadArchived   Kind = "thread.archived"
	EpochStarted     Kind = "epoch.started"
	EngineStarted    Kind = "engine.started"
	MessageAccepted  Kind = "message.accepted"
	MessagePlaced    Kind = "message.placed"
	TurnStarted      Kind = "turn.started"
	TurnWaiting      Kind = "turn.waiting"
	TurnInterrupted  Kind = "turn.interrupted"
	TurnFinished     Kind = "turn.finished"
	TurnLost         Kind = "turn.lost"
	RequestPrepared  Kind = "request.prepared"
	AnswerFinished   Kind = "answer.finished"
	AnswerAborted    Kind = "answer.aborted"
	ToolStarted      Kind = "tool.started"
	ToolFinished     Kind = "tool.finished"
	ToolUnknown      Kind = "tool.unknown"
	ApprovalAsked    Kind = "approval.asked"
	ApprovalAnswered Kind = "approval.answered"
	PolicyDecided    Kind = "policy.decided"
	NoteInjected     Kind = "note.injected"
	StepUndone       Kind = "step.undone"
	HistoryRepaired  Kind = "history.repaired"
	EntryErased      Kind = "entry.erased"
	IncidentSeen     Kind = "incident.seen"
	ReceiptSeen      Kind = "receipt.seen"
	ReceiptLost      Kind = "receipt.lost"
)

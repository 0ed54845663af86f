package thread

import (
	"condensate.dev/cnd/core/record"
)

// States of a thread as lists show them.
const (
	StateIdle    = "idle"
	StateWorking = "working"
	StateWaiting = "waiting"
	StateLost    = "lost"
	StateForeign = "imported" // read-only: its head was signed elsewhere
	StateBroken  = "broken"   // the runtime cannot go on with it; Trouble says why
)

// Summary is the line of a thread in a list: a projection, rebuilt from the entries alone by [Summarize].
type Summary struct {
	ID       record.ThreadID `json:"id"`
	Title    string          `json:"title,omitempty"`
	Cwd      string          `json:"cwd"`
	Engine   string          `json:"engine"`
	Model    string          `json:"model,omitempty"`
	State    string          `json:"state"`
	Waiting  *TurnWaiting    `json:"waiting,omitempty"`
	Turns    int             `json:"turns"`
	Queued   int             `json:"queued"`
	Seq      record.Seq      `json:"seq"` // of the newest entry
	Created  string          `json:"created"`
	Updated  string          `json:"updated"`
	Usage    Usage           `json:"usage"` // sum over all answers; a field is null until some answer reported it
	Requests int             `json:"requests"`
	Unknown  int             `json:"unknown_usage"` // attempts whose usage the provider did not report
	// Trouble is set by the runtime that shows a broken thread, never by [Summarize].
	Trouble *Error `json:"trouble,omitempty"`
}

// Summarize returns the summary after e, given the one before it. It is pure and never fails: what only a body
// that it cannot read would tell, stays as it is.
func Summarize(s Summary, e record.Entry) Summary {
	s.ID, s.Seq = e.Thread, e.Seq
	s.Updated = e.Time.Format(TimeLayout)
	if s.Created == "" {
		s.Created, s.State = s.Updated, StateIdle
	}
	s.apply(e)
	return s
}

// TimeLayout is how times stand in bodies and summaries: RFC 3339, UTC, microseconds.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

func (s *Summary) apply(e record.Entry) {
	switch e.Kind {
	case record.ThreadCreated:
		if b, err := Decode[Created](e); err == nil {
			s.Title, s.Cwd, s.Engine = b.Title, b.Cwd, b.Engine
		}
	case record.EpochStarted:
		if b, err := Decode[EpochStarted](e); err == nil {
			s.Model = b.Model
		}
	case record.MessageAccepted:
		s.Queued++
	case record.MessagePlaced:
		s.Queued--
	case record.TurnStarted:
		s.Turns++
		s.State, s.Waiting = StateWorking, nil
	case record.TurnWaiting:
		if b, err := Decode[TurnWaiting](e); err == nil {
			s.State, s.Waiting = StateWaiting, &b
		}
	case record.TurnLost:
		s.State, s.Waiting = StateLost, nil
	case record.TurnFinished:
		s.State, s.Waiting = StateIdle, nil
	case record.RequestPrepared:
		s.Requests++
		s.State, s.Waiting = StateWorking, nil
	case record.EngineStarted:
		if b, err := Decode[EngineStarted](e); err == nil && b.Reason == EngineResumed && s.State != StateIdle {
			s.State, s.Waiting = StateWorking, nil
		}
	case record.PolicyDecided, record.ApprovalAnswered, record.ToolStarted, record.ToolFinished, record.ToolUnknown, record.TurnInterrupted:
		if s.State == StateWaiting || s.State == StateLost {
			s.State, s.Waiting = StateWorking, nil
		}
	case record.AnswerFinished:
		if b, err := Decode[AnswerFinished](e); err == nil {
			s.addUsage(b.Usage)
		}
	case record.AnswerAborted:
		if b, err := Decode[AnswerAborted](e); err == nil {
			s.addUsage(b.Usage)
		}
	}
}

func (s *Summary) addUsage(u Usage) {
	if u == (Usage{}) {
		s.Unknown++
		return
	}
	for _, f := range []struct {
		sum **int64
		n   *int64
	}{
		{&s.Usage.Input, u.Input}, {&s.Usage.Output, u.Output},
		{&s.Usage.CacheRead, u.CacheRead}, {&s.Usage.CacheWrite, u.CacheWrite},
	} {
		if f.n == nil {
			continue
		}
		total := *f.n
		if *f.sum != nil {
			total += **f.sum
		}
		*f.sum = &total
	}
}

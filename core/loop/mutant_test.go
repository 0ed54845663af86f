package loop

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// TestSimulationNotices breaks the loop and its world in ways that once were, or could be, real faults: for each, the
// simulation must find a seed that breaks a promise. What it does not find, it does not hold.
func TestSimulationNotices(t *testing.T) {
	for _, c := range []struct {
		fault string
		m     mutation
	}{
		{"appends are acknowledged before they are durable", mutation{ports: func(p *Ports) { p.Store = hasty{p.Store} }}},
		{"an unsafe tool runs again after a crash", mutation{ports: func(p *Ports) { p.Tools = careless{p.Tools} }}},
		{"a restart forgets which messages it took", mutation{loaded: func(m *machine) { clear(m.state.Messages) }}},
		{"a restart forgets which messages it placed", mutation{loaded: func(m *machine) {
			for id, a := range m.state.Messages {
				if a.Placed && m.state.Turn == nil {
					m.state.Queue = append(m.state.Queue, Queued{ID: id, Seq: a.Seq, Mode: thread.ModeQueue})
					return
				}
			}
		}}},
		{"a restart forgets interrupts", mutation{loaded: func(m *machine) {
			if m.state.Turn != nil {
				m.state.Turn.Interrupted = false
			}
		}}},
		{"a restart forgets what it answered", mutation{loaded: func(m *machine) {
			if m.state.Turn != nil && m.state.Turn.Answer != nil {
				m.state.Turn.Answer.Calls = nil
			}
		}}},
		{"a restart takes the open request for one that it prepared", mutation{loaded: func(m *machine) {
			m.live.Gen, m.live.Held, m.bytes = m.state.Gen, true, []byte("{}")
		}}},
	} {
		t.Run(c.fault, func(t *testing.T) {
			broken, _, _ := simulate(2_000, c.m)
			require.NotEmpty(t, broken, "the simulation does not notice")
			t.Log(broken[0].what[0])
		})
	}
}

// hasty drops every second append and says that it is durable.
type hasty struct{ record.Store }

func (s hasty) Append(ctx context.Context, id record.ThreadID, at record.Head, entries ...record.Entry) (record.Head, error) {
	last := entries[len(entries)-1].Head()
	if last.Seq%2 == 1 && at.Seq > 0 {
		return last, nil
	}
	return s.Store.Append(ctx, id, at, entries...)
}

// careless calls every tool safe.
type careless struct{ Tools }

func (t careless) Plan(ctx context.Context, c Call) (Plan, error) {
	p, err := t.Tools.Plan(ctx, c)
	p.Replay = thread.ReplaySafe
	return p, err
}

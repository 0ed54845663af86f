package compose

import (
	"log/slog"
	"sync"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/internal/logging"
)

// troubles remembers which threads cannot go on in this process, so that lists do not show them at work for ever. It is
// safe for concurrent use.
type troubles struct {
	log *slog.Logger

	mu sync.Mutex
	of map[record.ThreadID]error
}

func newTroubles(log *slog.Logger) *troubles {
	return &troubles{log: log, of: make(map[record.ThreadID]error)}
}

// report is the loop's Options.Report. What may pass by itself is logged and not remembered.
func (t *troubles) report(id record.ThreadID, err error) {
	t.log.Error("thread in trouble", slog.String(logging.KeyThread, string(id)), slog.Any(logging.KeyErr, err))
	switch fault.ClassOf(err) {
	case fault.Unavailable, fault.StorageFull, fault.Canceled:
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of[id] = err
}

// over forgets the trouble of a thread.
func (t *troubles) over(id record.ThreadID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, id)
}

// find returns the trouble of a thread, or nil.
func (t *troubles) find(id record.ThreadID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[id]
}

// mark shows in s that its thread is in trouble, if it is.
func (t *troubles) mark(s thread.Summary) thread.Summary {
	err := t.find(s.ID)
	if err == nil {
		return s
	}
	return broken(s, err)
}

// broken returns s as the summary of a thread that cannot go on because of err.
func broken(s thread.Summary, err error) thread.Summary {
	f := fault.Find(err)
	s.State, s.Waiting = thread.StateBroken, nil
	s.Trouble = &thread.Error{Class: f.Class.String(), Code: f.Code, Message: err.Error(), Hint: fault.HintOf(err)}
	return s
}

// watched is a follower that also ends the trouble of a thread whose record grows again.
type watched struct {
	loop.Follower
	troubles *troubles
}

// Appended implements [loop.Follower].
func (w watched) Appended(id record.ThreadID, entries []record.Entry) {
	w.troubles.over(id)
	w.Follower.Appended(id, entries)
}

package pebblestore

import (
	"fmt"
	"sync"
	"sync/atomic"

	"condensate.dev/cnd/core/record"
)

// mark is what is acknowledged of a thread. It is immutable; a thread that does not exist has the zero head.
type mark struct {
	head       record.Head
	projection []byte // empty without Options.Project
	foreign    bool
}

func (m *mark) exists() bool { return !m.head.Hash.IsZero() }

// state is what this process knows of one thread.
type state struct {
	// turn holds one token. Who took it may write to the thread; an append that timed out keeps it until the disk has
	// answered, since until then nobody knows the head.
	turn chan struct{}
	// doubted is set while an append may be undecided whose caller has left.
	doubted atomic.Bool

	mu    sync.Mutex // guards acked
	acked *mark      // nil until loaded; not before then is anything written
}

func (st *state) release() { st.turn <- struct{}{} }

// ack makes m what readers see.
func (st *state) ack(m *mark) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.acked = m
}

// threads holds the states of the threads that this process has written to or tried to.
type threads struct {
	mu sync.Mutex // guards of
	of map[record.ThreadID]*state
}

func (t *threads) find(thread record.ThreadID) *state {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[thread]
}

func (t *threads) make(thread record.ThreadID) *state {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.of[thread]
	if st == nil {
		st = &state{turn: make(chan struct{}, 1)}
		st.release()
		if t.of == nil {
			t.of = make(map[record.ThreadID]*state)
		}
		t.of[thread] = st
	}
	return st
}

// acked returns what is acknowledged of thread. Pebble shows a batch to readers before its sync, so what it holds
// counts only as long as nobody is writing to the thread.
func (s *Store) acked(thread record.ThreadID) (*mark, error) {
	if st := s.threads.find(thread); st != nil {
		return s.load(thread, st)
	}
	m, err := s.readMark(thread)
	if st := s.threads.find(thread); st != nil { // a writer came while we were reading
		return s.load(thread, st)
	}
	return m, err
}

// load returns the acknowledged mark of st, reading it from the store the first time.
func (s *Store) load(thread record.ThreadID, st *state) (*mark, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.acked == nil {
		m, err := s.readMark(thread)
		if err != nil {
			return nil, err
		}
		st.acked = m
	}
	return st.acked, nil
}

func (s *Store) readMark(thread record.ThreadID) (*mark, error) {
	m := new(mark)
	v, found, err := get(s.db, key(headPrefix, thread))
	if err != nil || !found {
		return m, err
	}
	if m.head, m.projection, err = parseHead(v); err != nil {
		return nil, fmt.Errorf("thread %s: %w", thread, err)
	}
	_, m.foreign, err = get(s.db, key(foreignPrefix, thread))
	return m, err
}

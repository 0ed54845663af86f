package loop

import (
	"context"
	"errors"
	"slices"
	"time"

	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

// maxSimSteps bounds one simulation; a thread that is not at rest by then works for ever.
const maxSimSteps = 4000

// sim drives the machine of one thread in a world that kills it, step by step and in one goroutine. What is random
// comes from the world's dice, so a seed is a run.
type sim struct {
	w       *world
	id      record.ThreadID
	ports   *Ports
	options Options
	m       *machine
	flying  []*flying
	wake    time.Time
	tasks   []*task // what clients still want
	toggles int     // changes of readiness that may still come
	mutate  mutation

	accepted map[string]record.Seq // acknowledged messages
	stops    map[string]record.Seq // acknowledged interrupts
	answers  map[string]string     // acknowledged verdicts
}

// flying is an effect in flight.
type flying struct {
	*Flight
	ctx context.Context
}

// task is a command that a client repeats until it is answered.
type task struct {
	name string
	run  func() error
}

// mutation breaks the loop on purpose, to show that the simulation notices. Nil fields break nothing.
type mutation struct {
	ports  func(*Ports)
	loaded func(*machine)
}

func newSim(seed uint64, m mutation) *sim {
	s := &sim{
		w: newWorld(seed, int(seed%5), int(seed/5%8)), mutate: m,
		accepted: make(map[string]record.Seq), stops: make(map[string]record.Seq), answers: make(map[string]string),
	}
	s.ports = s.w.ports()
	if m.ports != nil {
		m.ports(s.ports)
	}
	s.toggles = s.w.dice.IntN(3)
	s.id = record.ThreadID(s.newID(record.PrefixThread))
	created := NewThread{ID: s.id, Created: thread.Created{Cwd: "/work", Resume: thread.ResumeAuto}, Epoch: simEpoch()}
	if s.w.chance(20) {
		created.Created.Resume = thread.ResumeAsk
	}
	created, err := created.checked()
	if err != nil {
		panic(err)
	}
	s.task("create", func() error {
		_, err := s.do(create(created, s.ports.Ready))
		return err
	})
	for range 1 + s.w.dice.IntN(3) {
		s.submits()
	}
	for range s.w.dice.IntN(2) {
		s.interrupts()
	}
	s.restart()
	return s
}

func simEpoch() thread.EpochStarted {
	return thread.EpochStarted{
		Builder: "anthropic/0", Provider: "anthropic", Account: "anthropic:sim", Model: "sim", Method: "POST",
		URL: "https://api.anthropic.com/v1/messages", Headers: [][2]string{{"anthropic-version", "2023-06-01"}}, MaxTokens: 1000,
		Cache: thread.Cache{TTL: "5m"},
	}
}

func (s *sim) newID(prefix string) string {
	id, err := record.NewID(prefix, s.w.now, s.w.salts)
	if err != nil {
		panic(err)
	}
	return id
}

func (s *sim) task(name string, run func() error) { s.tasks = append(s.tasks, &task{name, run}) }

// submits makes a client that submits a message until it has a receipt, and perhaps once more.
func (s *sim) submits() {
	modes := []string{thread.ModeQueue, thread.ModeQueue, thread.ModeSteer, thread.ModeStartIfIdle, thread.ModeReject}
	m := Message{ID: s.newID(record.PrefixMessage), Mode: modes[s.w.dice.IntN(len(modes))], Content: text("please " + s.newID("x_"))}
	submit := func() error {
		body, blobs, err := m.accepted()
		if err != nil {
			panic(err)
		}
		r, err := s.do(submit(body, blobs, s.ports.Ready))
		if errors.Is(err, ErrBusy) {
			return nil
		}
		if err != nil || r.State == ReceiptSkipped {
			return err
		}
		if had, ok := s.accepted[m.ID]; ok && (had != r.Seq || r.State != ReceiptDuplicate) {
			s.w.violated("message %s was accepted at %d, then %s at %d", m.ID, had, r.State, r.Seq)
		}
		s.accepted[m.ID] = r.Seq
		return nil
	}
	s.task("submit", submit)
	if s.w.chance(30) {
		s.task("submit again", submit)
	}
}

// interrupts makes a client that interrupts whatever runs.
func (s *sim) interrupts() {
	id := s.newID("int_")
	s.task("interrupt", func() error {
		r, err := s.do(interrupt("owner", id))
		if errors.Is(err, ErrNotRunning) {
			return nil
		}
		if err == nil {
			s.stops[id] = r.Seq
		}
		return err
	})
}

func (s *sim) do(c command) (Receipt, error) {
	ctx := context.Background()
	r, err := s.m.do(ctx, c)
	s.advance()
	return r, err
}

// restart begins a new process on the record that the dead one left; recovery may die too.
func (s *sim) restart() {
	for {
		s.w.reborn()
		s.flying, s.wake = nil, time.Time{}
		s.options.Version = "test"
		s.m = newMachine(s.id, s.ports, &s.options, s.launch)
		err := s.m.load(context.Background())
		if s.w.dead {
			continue
		}
		if err != nil && !errors.Is(err, record.ErrNotFound) {
			s.w.violated("the record does not load: %v", err)
			return
		}
		if s.mutate.loaded != nil {
			s.mutate.loaded(s.m)
		}
		if s.advance(); !s.w.dead {
			return
		}
	}
}

func (s *sim) launch(f *Flight) context.CancelFunc {
	ctx, cancel := context.WithCancel(context.Background())
	s.flying = append(s.flying, &flying{f, ctx})
	return cancel
}

func (s *sim) advance() {
	if !s.w.dead && !s.m.state.Head.Hash.IsZero() {
		s.wake = s.m.advance(context.Background())
	}
}

// run steps until the thread is at rest and the clients are served, or something is broken.
func (s *sim) run() {
	for range maxSimSteps {
		if len(s.w.broken) > 0 {
			return
		}
		if s.m.stopped != nil && !s.w.dead {
			s.w.violated("the machine stopped: %v", s.m.stopped)
			return
		}
		if !s.step() {
			s.w.kills = 0
			s.checkEnd()
			return
		}
		s.w.boundary("between two steps")
		if s.w.dead {
			s.restart()
		}
	}
	s.w.violated("the thread works for ever: %d tasks, %d effects, turn %+v", len(s.tasks), len(s.flying), s.m.state.Turn)
}

// step does one thing that can happen now; false when nothing can.
func (s *sim) step() bool {
	w := s.w
	if s.toggles > 0 && w.chance(5) {
		s.toggles--
		w.unready = !w.unready
	}
	if s.toggles == 0 {
		w.unready = false
	}
	if s.attend() {
		return true
	}
	var can []func()
	if len(s.tasks) > 0 {
		can = append(can, s.client)
	}
	for range s.flying {
		can = append(can, s.land, s.land)
	}
	if !s.wake.IsZero() {
		can = append(can, s.sleep)
	}
	if len(can) == 0 {
		return false
	}
	can[w.dice.IntN(len(can))]()
	return true
}

// client lets the first client that is not served try again.
func (s *sim) client() {
	t := s.tasks[0]
	if err := t.run(); err == nil && !s.w.dead {
		s.tasks = s.tasks[1:]
	} else if !s.w.dead && !errors.Is(err, errDisk) && !errors.Is(err, ErrStoreBusy) && !errors.Is(err, errNotReady) {
		s.w.violated("%s: %v", t.name, err)
	} else if s.toggles > 0 && errors.Is(err, errNotReady) {
		s.toggles--
		s.w.unready = false
	}
}

// land performs one effect and hands its completion over.
func (s *sim) land() {
	i := s.w.dice.IntN(len(s.flying))
	f := s.flying[i]
	s.flying = slices.Delete(s.flying, i, i+1)
	c := f.Perform(f.ctx, s.ports, func(Delta) {})
	if s.w.dead {
		return
	}
	s.m.complete(context.Background(), c)
	s.advance()
}

// sleep lets the time pass that the machine waits for.
func (s *sim) sleep() {
	if s.wake.After(s.w.now) {
		s.w.now = s.wake
	}
	s.advance()
}

// attend is the person who answers approvals and resumes what waits for it. It says whether there was something.
func (s *sim) attend() bool {
	t := s.m.state.Turn
	if t == nil || len(s.m.batch) > 0 || s.w.chance(70) && len(s.flying)+len(s.tasks) > 0 {
		return false
	}
	switch {
	case t.Waiting != nil && t.Waiting.Reason == thread.WaitApproval:
		s.approve(t.Waiting.Call)
	case t.Lost, t.Waiting != nil && (t.Waiting.Reason == thread.WaitLogin || s.w.chance(3)):
		_, err := s.do(resume)
		if err == nil || s.w.dead || errors.Is(err, errDisk) {
			return true
		}
		s.w.violated("resume: %v", err)
	default:
		return false
	}
	return true
}

// approve answers an approval, and sometimes answers it once more in another way.
func (s *sim) approve(call string) {
	verdicts := []string{thread.VerdictAllow, thread.VerdictDeny}
	verdict := verdicts[s.w.dice.IntN(2)]
	a := thread.ApprovalAnswered{Call: call, Verdict: verdict, By: "owner"}
	_, err := s.do(answer(a))
	if err != nil {
		if !s.w.dead && !errors.Is(err, errDisk) {
			s.w.violated("approval of %s: %v", call, err)
		}
		return
	}
	s.answers[call] = verdict
	if s.w.dead || !s.w.chance(30) {
		return
	}
	again, err := s.do(answer(a))
	if err == nil && again.State != ReceiptDuplicate {
		s.w.violated("second answer to %s is %s", call, again.State)
	}
	a.Verdict = verdicts[1-slices.Index(verdicts, verdict)]
	if _, err = s.do(answer(a)); err == nil {
		s.w.violated("another answer to %s was taken", call)
	}
}

package loop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
)

const (
	// AppendTimeout is how long the store may take for one append; after it the outcome is found out, which may take as
	// long again.
	AppendTimeout = 30 * time.Second
	// maxRounds is how many decisions may follow each other before something happens; more is a fault of Next.
	maxRounds = 100
)

// ErrStoreBusy: the last append is not known to be durable, so that nothing can follow it yet.
var ErrStoreBusy = fault.New(fault.Unavailable, "store-busy", "the store did not take the last entries yet; ask again")

// machine owns one thread: it holds the fold of its record, appends what [Next] decides and launches the effects.
// It has no goroutine and no clock of its own, so that a simulation can drive it step by step.
//
// What belongs together is appended as one batch: decisions are applied to the state in memory until an effect is due,
// then all of them become durable with one append, and only then the effect starts. The state is ahead of the store
// only while an append fails; until it succeeds nothing starts and no command is taken.
type machine struct {
	ports   *Ports
	options *Options
	// launch starts an effect and returns how to cancel it. Its completion must come to complete.
	launch func(*Flight) context.CancelFunc

	state State
	live  Live
	epoch record.Entry   // the newest epoch.started
	base  record.Head    // what the store holds
	batch []record.Entry // applied to state, not known to be durable
	body  *body          // request body as far as it is built; nil until a request needs it
	bytes []byte         // the open request, while live.Held

	appends retry // failed ones
	builds  retry // failed ones, of requests
	stopped error // why this machine does nothing; nil while it works
	stops   retry // times that it stopped
}

// retry counts failures in a row. The zero value is none.
type retry struct {
	failures int
	at       time.Time // when to try again
}

func newMachine(id record.ThreadID, p *Ports, o *Options, launch func(*Flight) context.CancelFunc) *machine {
	m := &machine{ports: p, options: o, launch: launch}
	m.state.Thread = id
	m.live.Plans = make(map[string]Plan)
	m.live.Running = make(map[Effect]*Flight)
	return m
}

// load folds the record anew. What this process knows beyond it stays.
func (m *machine) load(ctx context.Context) error {
	id := m.state.Thread
	m.state, m.batch, m.body, m.bytes, m.live.Held = State{Thread: id}, nil, nil, nil, false
	for e, err := range record.ReadThrough(ctx, m.ports.Store, id, 0) {
		if err != nil {
			return fmt.Errorf("read thread %s: %w", id, err)
		}
		if err := m.state.Apply(e); err != nil {
			return fmt.Errorf("fold thread %s: %w", id, err)
		}
		if e.Kind == record.EpochStarted {
			m.epoch = e
		}
	}
	m.base = m.state.Head
	if m.live.Gen != m.state.Gen {
		m.live.Gen = 0
	}
	return nil
}

// command decides what a command appends, from the state alone. Without drafts the receipt is complete; with some, it
// becomes the place of the first one.
type command func(*State) ([]Draft, Receipt, error)

// do carries out a command and answers when it is durable. After an error of the store the command may still become
// durable if the store cannot say whether it is; then the same command again tells.
func (m *machine) do(ctx context.Context, decide command) (Receipt, error) {
	if len(m.batch) > 0 && m.stopped == nil {
		m.flush(ctx)
	}
	switch {
	case m.stopped != nil:
		return Receipt{}, m.stopped
	case len(m.batch) > 0:
		return Receipt{}, fmt.Errorf("thread %s: %w", m.state.Thread, ErrStoreBusy)
	}
	drafts, receipt, err := decide(&m.state)
	if err != nil || len(drafts) == 0 {
		return receipt, err
	}
	receipt.Seq = m.state.Head.Next()
	for _, d := range drafts {
		if err := m.append(ctx, d); err != nil {
			m.withdraw(ctx)
			return Receipt{}, err
		}
	}
	m.decide(ctx)
	if m.stopped != nil {
		return Receipt{}, m.stopped
	}
	if err := m.flush(ctx); err != nil {
		if m.stopped == nil && errors.Is(err, errRefused) {
			m.withdraw(ctx)
		}
		return Receipt{}, fmt.Errorf("thread %s: %w", m.state.Thread, err)
	}
	return receipt, nil
}

// withdraw takes a command back of which nothing was written, so that it does not take effect after its caller was told
// that it failed.
func (m *machine) withdraw(ctx context.Context) {
	if err := m.load(ctx); err != nil && !errors.Is(err, record.ErrNotFound) {
		m.stop(err)
	}
}

// complete takes the completion of an effect.
func (m *machine) complete(ctx context.Context, c Completion) {
	f := m.live.Running[c.Effect]
	if f == nil {
		return
	}
	f.cancel()
	delete(m.live.Running, c.Effect)
	if m.stopped != nil {
		return
	}
	m.look()
	for _, d := range Complete(&m.state, &m.live, c) {
		err := m.append(ctx, d)
		if err != nil && d.Kind == record.AnswerFinished {
			r := m.state.Turn.Request
			err = m.append(ctx, Draft{Kind: record.AnswerAborted, Body: thread.AnswerAborted{
				Request: r.Seq, Attempt: r.Attempt, Cause: thread.CauseMalformed,
				Detail: "the answer does not fit into a record: " + err.Error(),
			}})
		}
		if err != nil {
			m.stop(err)
			return
		}
	}
}

// advance does everything that is due: it appends what follows from the state, makes it durable, then starts and
// cancels effects. It returns when to call it again although nothing happened; zero for never.
func (m *machine) advance(ctx context.Context) time.Time {
	if m.stopped != nil {
		m.revive(ctx)
	}
	step := m.decide(ctx)
	if m.stopped != nil {
		return time.Time{}
	}
	if err := m.flush(ctx); err != nil {
		return m.appends.at
	}
	if m.stopped != nil {
		return time.Time{}
	}
	m.steer(step.Run)
	if m.state.Turn == nil {
		clear(m.live.Plans)
	}
	return step.Wake
}

// decide applies what follows from the state until an effect, a command or a time is due.
func (m *machine) decide(ctx context.Context) Step {
	for range maxRounds {
		if m.stopped != nil {
			return Step{}
		}
		m.look()
		step := Next(&m.state, &m.live)
		drafts := step.Append
		if step.Prepare != nil {
			if m.live.Now.Before(m.builds.at) {
				return Step{Wake: m.builds.at}
			}
			var err error
			if drafts, err = m.prepare(ctx, step.Prepare); err != nil {
				m.failed(&m.builds, err)
				return Step{Wake: m.builds.at}
			}
			m.builds = retry{}
		}
		if len(drafts) == 0 {
			return step
		}
		for _, d := range drafts {
			if err := m.append(ctx, d); err != nil {
				m.stop(err)
				return Step{}
			}
		}
	}
	panic(fmt.Sprintf("loop: thread %s: no end of decisions after entry %d", m.state.Thread, m.state.Head.Seq))
}

// look refreshes what the process knows of the world.
func (m *machine) look() {
	m.live.Now, m.live.Unready = m.ports.Now(), ""
	if m.ports.Ready == nil {
		return
	}
	if err := m.ports.Ready(); err != nil {
		m.live.Unready = err.Error()
	}
}

// append seals a draft and applies it; it is not durable yet.
func (m *machine) append(ctx context.Context, d Draft) error {
	gen := m.state.Gen
	if started, ok := d.Body.(thread.EngineStarted); ok {
		gen++
		started.Version = m.options.Version
		d.Body = started
	}
	var salt record.Salt
	if _, err := io.ReadFull(m.ports.Entropy, salt[:]); err != nil {
		return fmt.Errorf("entropy for an entry of %s: %w", m.state.Thread, err)
	}
	e, err := record.Seal(m.state.Thread, m.state.Head, salt, record.Draft{
		Gen: gen, Time: m.ports.Now(), Kind: d.Kind, Body: thread.Encode(d.Body), Blobs: d.Blobs,
	})
	if err != nil {
		return err
	}
	if err := m.state.Apply(e); err != nil {
		return err
	}
	m.batch = append(m.batch, e)
	m.feed(ctx, e)
	if e.Kind == record.EngineStarted {
		m.live.Gen = e.Gen
	}
	return nil
}

// errRefused marks an append that certainly left nothing behind.
var errRefused = errors.New("nothing was written")

// flush makes the batch durable. On an error the batch is kept and flushed again later, unless the machine stops or
// the store turns out to hold something else, which is then loaded.
func (m *machine) flush(ctx context.Context) error {
	if len(m.batch) == 0 {
		return nil
	}
	timed, cancel := context.WithTimeout(ctx, AppendTimeout)
	defer cancel()
	_, err := m.ports.Store.Append(timed, m.state.Thread, m.base, m.batch...)
	if err != nil {
		err = m.settle(ctx, err)
	}
	if err != nil {
		return err
	}
	done := m.batch
	m.batch, m.base, m.appends = nil, m.state.Head, retry{}
	m.ports.Follower.Appended(m.state.Thread, done)
	for _, e := range done {
		if e.Kind == record.AnswerFinished || e.Kind == record.AnswerAborted {
			m.ports.Follower.Reset(m.state.Thread)
		}
	}
	return nil
}

// settle finds out what a failed append left behind; nil means that all of it is durable. While the store cannot say,
// the batch is kept: the same bytes again succeed, whatever became of them.
func (m *machine) settle(ctx context.Context, err error) error {
	timed, cancel := context.WithTimeout(ctx, AppendTimeout)
	defer cancel()
	head, headErr := m.ports.Store.Head(timed, m.state.Thread)
	if errors.Is(headErr, record.ErrNotFound) {
		head, headErr = record.Head{}, nil
	}
	switch {
	case headErr != nil:
		m.failed(&m.appends, err)
		return err
	case head == m.state.Head:
		return nil
	case errors.Is(err, record.ErrReadOnly):
		m.stop(err)
		return err
	case head == m.base:
		m.failed(&m.appends, err)
		return fmt.Errorf("%w (%w)", err, errRefused)
	}
	// Somebody else wrote. Whatever runs here belongs to a generation that is over.
	m.failed(&m.appends, err)
	m.live.Gen = 0
	for _, f := range m.live.Running {
		f.cancel()
	}
	if loadErr := m.load(ctx); loadErr != nil {
		m.stop(loadErr)
	}
	return err
}

// steer cancels the effects that are not wanted and launches the ones that are not in flight.
func (m *machine) steer(want []Effect) {
	wanted := make(map[Effect]bool, len(want))
	for _, e := range want {
		wanted[e] = true
	}
	for e, f := range m.live.Running {
		if !wanted[e] {
			f.cancel()
		}
	}
	for _, e := range want {
		if m.live.Running[e] == nil {
			f := m.takeOff(e)
			m.live.Running[e] = f
			f.cancel = m.launch(f)
		}
	}
}

// failed notes that a port failed and when to try again.
func (m *machine) failed(r *retry, err error) {
	if r.failures == 0 {
		m.report(err)
	}
	r.failures++
	r.at = m.ports.Now().Add(Backoff(r.failures))
}

// stop ends the machine's work: what it holds of its thread is not to be trusted. Once it begins anew, see again.
func (m *machine) stop(err error) {
	m.stopped, m.batch = err, nil
	m.stops.failures++
	m.stops.at = m.ports.Now().Add(Backoff(m.stops.failures))
	for _, f := range m.live.Running {
		f.cancel()
	}
	m.report(err)
}

// again says when a stopped machine begins anew, after its first stop and when nothing of it runs any more; zero for
// never. A fault that comes again would come for ever, and each time might cost a request.
func (m *machine) again() time.Time {
	if m.stopped == nil || m.stops.failures > 1 || m.live.Closing || len(m.live.Running) > 0 {
		return time.Time{}
	}
	return m.stops.at
}

// revive begins anew, as after a crash, if that is due.
func (m *machine) revive(ctx context.Context) {
	at := m.again()
	if at.IsZero() || m.ports.Now().Before(at) {
		return
	}
	m.stopped, m.live.Gen = nil, 0
	clear(m.live.Plans)
	if err := m.load(ctx); err != nil {
		m.stop(err)
	}
}

func (m *machine) report(err error) {
	if m.options.Report != nil {
		m.options.Report(m.state.Thread, err)
	}
}

// idle says whether nothing is in flight and nothing is to be done.
func (m *machine) idle() bool {
	if m.stopped != nil {
		return len(m.live.Running) == 0 && m.again().IsZero()
	}
	return len(m.live.Running) == 0 && len(m.batch) == 0 && (m.live.Closing || !m.state.busy())
}

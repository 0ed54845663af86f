// Package chat talks to one thread, line by line: what is typed is sent, what the agent does is shown as it happens.
//
// It survives the runtime: while that is away, lines are kept and then sent with the message ids that they got when
// they were typed, so each is accepted once; the thread is followed on from the last entry seen.
//
// At a terminal lines are read all the time, and one that is typed during a turn joins it. Otherwise the next line is
// read when the agent waits for one, so that a script of lines has one meaning; a question for approval is answered by
// the next line if that is y or n. The end of the input leaves when everything said has been answered.
package chat

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/core/loop"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/thread"
	"condensate.dev/cnd/tools/cnd-runtime/transcript"
	"condensate.dev/cnd/tools/cnd-runtime/turn"
	"condensate.dev/cnd/tools/internal/terminal"
)

// Limits of a chat.
const (
	// MaxInput is the longest line that can be typed, in bytes.
	MaxInput = 1 << 20
	// MaxUndelivered is how many lines are kept while the runtime is away; then reading stops.
	MaxUndelivered = 1000
	// LeaveWithin is the time in which a second Ctrl-C leaves.
	LeaveWithin = 2 * time.Second
)

// Errors of a chat that left something undone.
var (
	// ErrWaiting: the input ended and the turn needs a person.
	ErrWaiting = fault.New(fault.Unavailable, "turn-waiting", "the turn waits for a person")
	// ErrUndelivered: the chat ended and the runtime did not have everything that was said.
	ErrUndelivered = fault.New(fault.Unavailable, "not-delivered", "not everything that was said reached the runtime")
)

// Client is the part of the runtime's API that a chat uses; [client.Client] is one.
type Client interface {
	Send(ctx context.Context, id record.ThreadID, m client.Message) (loop.Receipt, error)
	Interrupt(ctx context.Context, id record.ThreadID, command string) (loop.Receipt, error)
	Resume(ctx context.Context, id record.ThreadID) (loop.Receipt, error)
	Answer(ctx context.Context, id record.ThreadID, call, verdict, reason string) (loop.Receipt, error)
	Follow(ctx context.Context, id record.ThreadID, o client.FollowOptions) iter.Seq2[client.Event, error]
}

var _ Client = (*client.Client)(nil)

// Options are what a chat talks with.
type Options struct {
	Client      Client
	Thread      record.ThreadID
	In          io.Reader
	Out         io.Writer
	Interactive bool             // In is a terminal
	Interrupts  <-chan os.Signal // Ctrl-C
	Notes       <-chan string    // lines to show between; may be nil
	NewID       func() string    // of a message or command; never the same twice
}

// happening is what the follower tells: an event, or a connection that was lost and is tried again.
type happening struct {
	event client.Event
	lost  error
	err   error // the last one
}

// input is a line, or why there are no more.
type input struct {
	line string
	err  error // io.EOF at the end
}

// chat is owned by the goroutine of Run.
type chat struct {
	Options
	print       *transcript.Printer
	state       turn.State
	backlog     *backlog // nil once the history is shown
	live        bool     // connected, and every entry that there is has been seen
	lost        bool     // the connection is being tried again
	need        record.Seq
	commands    chan command
	undelivered int
	over        bool // no more input
	pressed     time.Time
}

// Run chats until the person leaves, the input ends or ctx is done. It returns nil when nothing is left undone.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &chat{
		Options: o, print: transcript.New(o.Out), backlog: &backlog{}, commands: make(chan command, MaxUndelivered),
	}
	lines, happenings, deliveries := make(chan input), make(chan happening), make(chan delivery)
	go read(ctx, o.In, lines)
	go c.follow(ctx, happenings)
	go deliver(ctx, c.commands, deliveries)
	defer c.print.End()
	for {
		if c.over && c.calm() {
			return c.leave()
		}
		open := lines
		if c.over || c.undelivered == MaxUndelivered || !c.Interactive && !c.calm() {
			open = nil
		}
		c.prompt()
		select {
		case in := <-open:
			if left, err := c.take(in); left {
				return err
			}
		case h := <-happenings:
			if h.err != nil {
				return h.err
			}
			c.see(h)
		case d := <-deliveries:
			c.settle(d)
		case note := <-c.Notes:
			c.print.Note("%s", terminal.Clean(note))
		case <-c.Interrupts:
			if c.press() {
				return c.leave()
			}
		case <-ctx.Done():
			return c.leave()
		}
	}
}

// read sends the lines of r until it ends; a line may be read before it is wanted, no more than one.
func read(ctx context.Context, r io.Reader, lines chan<- input) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, MaxInput)
	send := func(in input) bool {
		select {
		case lines <- in:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for scanner.Scan() {
		if !send(input{line: scanner.Text()}) {
			return
		}
	}
	err := scanner.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fault.New(fault.TooLarge, "line-too-long", fmt.Sprintf("a line is over %d bytes", MaxInput))
	}
	if err == nil {
		err = io.EOF
	}
	send(input{err: err})
}

func (c *chat) follow(ctx context.Context, happenings chan<- happening) {
	tell := func(h happening) bool {
		select {
		case happenings <- h:
			return true
		case <-ctx.Done():
			return false
		}
	}
	o := client.FollowOptions{Deltas: true, Reconnect: true, Lost: func(err error) { tell(happening{lost: err}) }}
	for e, err := range c.Client.Follow(ctx, c.Thread, o) {
		if !tell(happening{event: e, err: err}) {
			return
		}
	}
}

// calm says that everything said has been answered and the agent waits for a person.
func (c *chat) calm() bool {
	return c.live && c.undelivered == 0 && c.state.Next > c.need && c.state.NeedsPerson()
}

func (c *chat) prompt() {
	if !c.Interactive || c.over || !c.calm() {
		return
	}
	if len(c.state.Pending) > 0 {
		c.print.Prompt("allow " + c.print.Call(c.state.Pending[0]) + "? [y/n] ")
		return
	}
	c.print.Prompt("> ")
}

// see shows what happened.
func (c *chat) see(h happening) {
	if h.lost != nil {
		if !c.lost {
			c.print.Note("the runtime is away (%s); waiting for it", terminal.Clean(h.lost.Error()))
		}
		c.lost, c.live = true, false
		return
	}
	if c.lost && h.event.Type != client.EventReset { // which is made of the loss itself
		c.print.Note("connected again")
		c.lost = false
	}
	switch e := h.event; e.Type {
	case client.EventEntry:
		c.state.Apply(e.Entry)
		if c.backlog != nil {
			c.backlog.add(e.Entry)
			return
		}
	case client.EventHeartbeat:
		c.live = true
		if c.backlog != nil {
			c.backlog.show(c.print)
			c.backlog = nil
		}
	}
	c.print.Event(h.event)
}

// settle takes note of what became of a command.
func (c *chat) settle(d delivery) {
	c.undelivered--
	if d.err != nil {
		c.print.Note("%s not accepted: %s", d.what, terminal.Clean(d.err.Error()))
		if d.refused != nil {
			d.refused(d.err)
		}
		return
	}
	c.need = max(c.need, d.receipt.Seq)
}

// say puts a command on its way.
func (c *chat) say(out command) {
	c.undelivered++
	c.commands <- out
}

// take does what a line says. left is true when the person leaves.
func (c *chat) take(in input) (left bool, err error) {
	if in.err != nil {
		c.over = true
		if in.err != io.EOF {
			return true, in.err
		}
		if c.Interactive {
			return true, c.leave()
		}
		return false, nil
	}
	c.print.Entered()
	line := strings.TrimSpace(in.line)
	switch {
	case line == "":
	case strings.HasPrefix(line, "/"):
		return c.slash(line)
	case c.answer(line):
	default:
		c.send(in.line)
	}
	return false, nil
}

const help = `a line is a message; y or n answers a question (n REASON tells why)
/stop interrupts the turn (or Ctrl-C), /resume makes a waiting turn go on, /quit leaves`

func (c *chat) slash(line string) (left bool, err error) {
	switch line {
	case "/quit":
		return true, c.leave()
	case "/stop":
		c.interrupt()
	case "/resume":
		c.say(command{what: "resume", do: func(ctx context.Context) (loop.Receipt, error) {
			return c.Client.Resume(ctx, c.Thread)
		}})
	case "/help":
		for line := range strings.Lines(help) {
			c.print.Note("%s", strings.TrimSuffix(line, "\n"))
		}
	default:
		c.print.Note("no command %s; /help lists them", terminal.Clean(line))
	}
	return false, nil
}

// answer takes a line as the answer to the oldest question, if it is one.
func (c *chat) answer(line string) bool {
	if len(c.state.Pending) == 0 {
		return false
	}
	word, reason, _ := strings.Cut(line, " ")
	verdict := ""
	switch strings.ToLower(word) {
	case "y", "yes":
		verdict = thread.VerdictAllow
	case "n", "no":
		verdict = thread.VerdictDeny
	}
	if verdict == "" || (verdict == thread.VerdictAllow && reason != "") {
		return false
	}
	call := c.state.Pending[0]
	c.state.Settle(call) // the next line is for the next question
	c.say(command{what: "answer", do: func(ctx context.Context) (loop.Receipt, error) {
		return c.Client.Answer(ctx, c.Thread, call, verdict, strings.TrimSpace(reason))
	}, refused: func(err error) {
		if fault.ClassOf(err) != fault.Conflict { // else somebody was faster, and the record says what
			c.state.Pending = append([]string{call}, c.state.Pending...)
		}
	}})
	return true
}

func (c *chat) send(text string) {
	m := client.Message{ID: c.NewID(), Mode: thread.ModeSteer, Content: client.Text(text)}
	if c.Interactive {
		c.print.Typed(m.ID)
	}
	c.say(command{what: "message", do: func(ctx context.Context) (loop.Receipt, error) {
		return c.Client.Send(ctx, c.Thread, m)
	}})
}

func (c *chat) interrupt() {
	id := c.NewID()
	c.say(command{what: "interrupt", do: func(ctx context.Context) (loop.Receipt, error) {
		return c.Client.Interrupt(ctx, c.Thread, id)
	}})
}

// press is Ctrl-C: it interrupts the turn, or leaves when there is none or when it is the second within LeaveWithin.
func (c *chat) press() (leave bool) {
	second := time.Since(c.pressed) < LeaveWithin
	c.pressed = time.Now()
	if second || (c.state.Idle() && c.undelivered == 0) {
		return true
	}
	c.print.Note("interrupting; Ctrl-C again leaves")
	if c.state.Open {
		c.interrupt()
	}
	return false
}

// leave says what is left undone.
func (c *chat) leave() error {
	c.print.End()
	switch {
	case c.undelivered > 0:
		return fmt.Errorf("%d not delivered: %w", c.undelivered, ErrUndelivered)
	case c.Interactive && !c.state.Idle():
		c.print.Note("the turn goes on; come back with cnd-runtime chat %s", c.Thread)
		return nil
	case len(c.state.Pending) > 0:
		err := fmt.Errorf("call %s waits for approval: %w", c.state.Pending[0], ErrWaiting)
		return fault.WithHint(err, fmt.Sprintf("cnd-runtime thread approve %s %s", c.Thread, c.state.Pending[0]))
	case c.state.Halted != "":
		err := fmt.Errorf("%s: %w", c.state.Halted, ErrWaiting)
		return fault.WithHint(err, fmt.Sprintf("cnd-runtime thread resume %s", c.Thread))
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/urfave/cli/v3"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/tools/cnd-runtime/chat"
	"condensate.dev/cnd/tools/cnd-runtime/supervise"
	toolcli "condensate.dev/cnd/tools/internal/cli"
	"condensate.dev/cnd/tools/internal/compose"
	"condensate.dev/cnd/tools/internal/config"
)

func upCommand() *cli.Command {
	return &cli.Command{
		Name: "up", Usage: "start a simulator and a runtime, keep them running, and chat; without a terminal, print what to do next",
		Flags:  append(addrFlags(), chatFlags()...),
		Action: up,
	}
}

// upper runs the daemons of up.
type upper struct {
	command  *cli.Command
	dirs     config.Dirs
	terminal bool
	simAddr  string // "" when the real provider is used
	addr     string
	notes    chan string // what the supervisor has to say
	kill     chan struct{}
}

func up(ctx context.Context, c *cli.Command) error {
	if err := protect(); err != nil {
		return err
	}
	if _, err := toolcli.Args(c, 0, 0); err != nil {
		return err
	}
	dirs, settings, err := serveSettings(c)
	if err != nil {
		return err
	}
	u := &upper{
		command: c, dirs: dirs, terminal: isTerminal(c.Root().Reader) && isTerminal(c.Root().Writer),
		addr: freeAddr(settings.Addr), notes: make(chan string, 16), kill: make(chan struct{}),
	}
	if os.Getenv(compose.EnvKey) == "" {
		u.simAddr = freeAddr(settings.SimAddr)
	}
	daemons, err := u.daemons()
	if err != nil {
		return err
	}
	// A signal is ours from here on: the first ends what is in front, the second kills what is behind it.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	return u.run(ctx, cancel, daemons, signals)
}

// run keeps the daemons running around what is in front.
func (u *upper) run(ctx context.Context, cancel context.CancelFunc, daemons []supervise.Daemon, signals <-chan os.Signal) error {
	ready := make(chan string, len(daemons)) // names, once each
	failed := make(chan error, len(daemons))
	var running sync.WaitGroup
	for _, d := range daemons {
		running.Go(func() {
			seen := false
			err := supervise.Keep(ctx, d, u.kill, func(e supervise.Event) {
				if e.State == supervise.Ready && !seen {
					seen = true
					ready <- e.Daemon
					return
				}
				u.tell(e)
			})
			if err != nil {
				failed <- err
				cancel()
			}
		})
	}
	err := u.front(ctx, len(daemons), ready, signals)
	cancel()
	stopped := make(chan struct{})
	go func() {
		running.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-signals:
		close(u.kill)
		<-stopped
	}
	select {
	case failure := <-failed:
		return failure
	default:
		return err
	}
}

// front waits until the daemons serve and then does what is in front of them.
func (u *upper) front(ctx context.Context, daemons int, ready <-chan string, signals <-chan os.Signal) error {
	for range daemons {
		select {
		case <-ready:
		case <-signals:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	if u.terminal {
		return u.chat(ctx, signals)
	}
	fmt.Fprint(u.command.Root().Writer, u.next())
	for {
		select {
		case note := <-u.notes:
			fmt.Fprintf(u.command.Root().ErrWriter, "%s: %s\n", u.command.Root().Name, note)
		case <-signals:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// chat talks to a new thread.
func (u *upper) chat(ctx context.Context, signals <-chan os.Signal) error {
	root := u.command.Root()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	interrupts := make(chan os.Signal, 1)
	go func() {
		for {
			select {
			case s := <-signals:
				if s != os.Interrupt {
					cancel()
					return
				}
				select {
				case interrupts <- s:
				default:
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	fmt.Fprintf(root.Writer, "The runtime serves on %s; its log is %s.\n", u.addr, u.logPath("cnd-runtime"))
	if u.simAddr != "" {
		fmt.Fprintf(root.Writer, "No ANTHROPIC_API_KEY is set: a simulator answers. Say \"help\" to see what it understands.\n")
	}
	fmt.Fprintf(root.Writer, "Type a message, /help or /quit. Kill the runtime when you like: kill -9 $(jq .pid %s)\n\n",
		filepath.Join(u.dirs.Data, client.AddressFile))
	api := client.Open(u.dirs.Config, u.dirs.Data)
	id, err := chatThread(ctx, u.command, api)
	if err != nil {
		return err
	}
	return chat.Run(ctx, chat.Options{
		Client: api, Thread: id, In: root.Reader, Out: root.Writer, Interactive: true, Interrupts: interrupts,
		Notes: u.notes, NewID: client.NewMessageID,
	})
}

// tell passes on what happened to a daemon; with nobody listening it is dropped.
func (u *upper) tell(e supervise.Event) {
	note := fmt.Sprintf("%s serves again (pid %d)", e.Daemon, e.PID)
	if e.State == supervise.Died {
		note = fmt.Sprintf("%s (pid %d) died: %s; starting it again in %s", e.Daemon, e.PID, e.Why, e.Delay)
	}
	select {
	case u.notes <- note:
	default:
	}
}

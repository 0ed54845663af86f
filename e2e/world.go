// Package e2e starts the real programs in a folder of their own, kills them, and looks at what they leave behind.
//
// Everything listens on free loopback ports and is stopped by pid. The package asserts nothing: the demo and the tests
// below it do.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/record"
)

// StartTimeout bounds how long a program may take until it says that it is ready.
const StartTimeout = 20 * time.Second

// World is a folder with a configuration, a data folder and a working folder, and the programs that run over it.
// It is not safe for concurrent use.
type World struct {
	Bin    string // folder of the built tools
	Dir    string // root of all that follows
	Config string
	Data   string
	Work   string // the thread's folder

	SimAddr, RuntimeAddr string
	sim, runtime         *program
	threads              []record.ThreadID // driven so far
}

// NewWorld lays a world out below dir, with programs from bin.
func NewWorld(bin, dir string) (*World, error) {
	dir, err := filepath.EvalSymlinks(dir) // as the kernel shows it
	if err != nil {
		return nil, err
	}
	w := &World{
		Bin: bin, Dir: dir,
		Config: filepath.Join(dir, "config"), Data: filepath.Join(dir, "data"), Work: filepath.Join(dir, "work"),
	}
	for _, d := range []string{w.Config, w.Data, w.Work} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	if w.SimAddr, err = freeAddr(); err != nil {
		return nil, err
	}
	w.RuntimeAddr, err = freeAddr()
	return w, err
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Env is the environment of every program of this world.
func (w *World) Env() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.Dir, "TMPDIR=" + os.TempDir(),
		"CONDENSATE_CONFIG_DIR=" + w.Config, "CONDENSATE_DATA_DIR=" + w.Data,
		"CONDENSATE_RUNTIME_ADDR=" + w.RuntimeAddr, "CONDENSATE_SIM_ADDR=" + w.SimAddr,
	}
}

// program is a running daemon.
type program struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it is gone
	log    *os.File
}

// start runs a daemon and waits until it says that it is ready.
func (w *World) start(name string, args ...string) (*program, error) {
	p, ready, err := w.launch(name, args...)
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	ready.SetReadDeadline(time.Now().Add(StartTimeout))
	if n, err := ready.Read(make([]byte, 1)); n != 1 {
		p.kill()
		text, _ := os.ReadFile(p.log.Name())
		return nil, fmt.Errorf("%s did not become ready: %w\n%s", name, err, tail(text))
	}
	return p, nil
}

// launch runs a daemon and returns the pipe on which it will say that it is ready.
func (w *World) launch(name string, args ...string) (*program, *os.File, error) {
	log, err := os.OpenFile(filepath.Join(w.Dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	r, ready, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	p := &program{cmd: exec.Command(filepath.Join(w.Bin, name), append(args, "--ready-fd", "3")...), exited: make(chan struct{}), log: log}
	p.cmd.Env = w.Env()
	p.cmd.Dir = w.Dir
	p.cmd.Stderr = log
	p.cmd.ExtraFiles = []*os.File{ready}
	err = p.cmd.Start()
	ready.Close()
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	go func() {
		p.cmd.Wait() // how it ended is in its log
		close(p.exited)
	}()
	return p, r, nil
}

func tail(text []byte) []byte {
	const most = 4 << 10
	return text[max(0, len(text)-most):]
}

func (p *program) kill() {
	p.cmd.Process.Kill()
	<-p.exited
	p.log.Close()
}

// StartSim starts the simulated provider with more arguments for it.
func (w *World) StartSim(args ...string) (err error) {
	w.sim, err = w.start("cnd-sim", args...)
	return err
}

// StartRuntime starts cnd-runtime serve.
func (w *World) StartRuntime() (err error) {
	w.runtime, err = w.start("cnd-runtime", "serve")
	return err
}

// KillStartingRuntime starts the runtime and kills it after d, ready or not.
func (w *World) KillStartingRuntime(ctx context.Context, d time.Duration) error {
	p, ready, err := w.launch("cnd-runtime", "serve")
	if err != nil {
		return err
	}
	defer ready.Close()
	pause(ctx, d)
	p.kill()
	return nil
}

// KillRuntime sends SIGKILL to the runtime and waits until the kernel has buried it.
func (w *World) KillRuntime() {
	w.runtime.kill()
	w.runtime = nil
}

// StopRuntime asks the runtime to drain and waits for it; an exit code other than 0 is an error.
func (w *World) StopRuntime() error {
	p := w.runtime
	w.runtime = nil
	p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.exited
	p.log.Close()
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("cnd-runtime serve ended with %d", code)
	}
	return nil
}

// Close kills what still runs. The folder stays.
func (w *World) Close() {
	for _, p := range []*program{w.runtime, w.sim} {
		if p != nil {
			p.kill()
		}
	}
}

// Client returns a client of the runtime of this world.
func (w *World) Client() *client.Client {
	return client.Open(w.Config, w.Data)
}

// Run runs a tool to its end and returns its stdout and exit code. What it says on stderr is part of the error when
// the code is not 0.
func (w *World) Run(ctx context.Context, stdin io.Reader, name string, args ...string) (stdout string, code int, err error) {
	var out, errs bytes.Buffer
	path := name
	if !strings.Contains(name, "/") {
		path = filepath.Join(w.Bin, name)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = w.Env(), w.Dir, stdin, &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out.String(), exit.ExitCode(), fmt.Errorf("%s %s: exit %d: %s", filepath.Base(name), strings.Join(args, " "), exit.ExitCode(), errs.String())
	}
	return out.String(), 0, err
}

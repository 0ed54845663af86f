package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/fault"
	"condensate.dev/cnd/tools/cnd-runtime/supervise"
	"condensate.dev/cnd/tools/internal/config"
)

// next is what to do without a terminal.
func (u *upper) next() string {
	var b strings.Builder
	self := u.command.Root().Name
	if exe, err := os.Executable(); err == nil {
		self = exe
	}
	fmt.Fprintf(&b, "The runtime serves on %s.\n", u.addr)
	if u.simAddr != "" {
		fmt.Fprintf(&b, "No ANTHROPIC_API_KEY is set: a simulator answers, on %s.\n", u.simAddr)
	}
	fmt.Fprintf(&b, "\nIn another terminal:\n\n  export %s=%s %s=%s\n", config.EnvConfigDir, u.dirs.Config, config.EnvDataDir, u.dirs.Data)
	fmt.Fprintf(&b, "  id=$(%s thread new --allow bash \"demo\")\n", self)
	fmt.Fprintf(&b, "  %s thread follow $id --deltas\n", self)
	fmt.Fprintf(&b, "  %s chat $id\n", self)
	fmt.Fprintf(&b, "  kill -9 $(jq .pid %s)    # it is started again, and the turn finishes by itself\n", filepath.Join(u.dirs.Data, client.AddressFile))
	fmt.Fprintf(&b, "  %s verify $id\n\nSIGINT or SIGTERM stops all of it.\n", filepath.Join(filepath.Dir(self), "cnd-replay"))
	return b.String()
}

// daemons returns what to run.
func (u *upper) daemons() ([]supervise.Daemon, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	runtimeLog, err := u.log("cnd-runtime")
	if err != nil {
		return nil, err
	}
	env := u.env()
	runtime := supervise.Daemon{Name: "cnd-runtime", Path: self, Args: []string{"serve", "--addr", u.addr}, Env: env, Stderr: runtimeLog}
	if u.simAddr == "" {
		return []supervise.Daemon{runtime}, nil
	}
	runtime.Args = append(runtime.Args, "--sim-addr", u.simAddr)
	sim, err := simulator(self)
	if err != nil {
		return nil, err
	}
	simLog, err := u.log("cnd-sim")
	if err != nil {
		return nil, err
	}
	return []supervise.Daemon{{Name: "cnd-sim", Path: sim, Args: []string{"--addr", u.simAddr}, Env: env, Stderr: simLog}, runtime}, nil
}

// env is the environment of the daemons: ours, with the folders that we use.
func (u *upper) env() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, config.EnvConfigDir+"=") || strings.HasPrefix(v, config.EnvDataDir+"=")
	})
	env = append(env, config.EnvConfigDir+"="+u.dirs.Config, config.EnvDataDir+"="+u.dirs.Data)
	if file := u.command.String("config"); file != "" {
		env = append(env, "CONDENSATE_CONFIG="+file)
	}
	return env
}

var errNoSimulator = fault.New(fault.Config, "no-simulator", "cnd-sim is neither beside cnd-runtime nor in PATH")

// simulator returns the path of cnd-sim: beside self, else in PATH.
func simulator(self string) (string, error) {
	beside := filepath.Join(filepath.Dir(self), "cnd-sim")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	path, err := exec.LookPath("cnd-sim")
	if err != nil {
		return "", fault.WithHint(errNoSimulator, "make build")
	}
	return path, nil
}

// log returns where a daemon's log goes: its file when a chat has the terminal, else our stderr.
func (u *upper) log(daemon string) (*os.File, error) {
	if !u.terminal {
		return os.Stderr, nil
	}
	if err := os.MkdirAll(u.dirs.Data, 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(u.logPath(daemon), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

func (u *upper) logPath(daemon string) string { return filepath.Join(u.dirs.Data, daemon+".log") }

// freeAddr returns addr, or the same host with a free port when something listens there.
func freeAddr(addr string) string {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		host, _, splitErr := net.SplitHostPort(addr)
		if l, err = net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil || splitErr != nil {
			return addr // the daemon says what is wrong with it
		}
	}
	defer l.Close()
	return l.Addr().String()
}

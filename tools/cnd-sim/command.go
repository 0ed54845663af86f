package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"condensate.dev/cnd/adapters/simprovider"
	toolcli "condensate.dev/cnd/tools/internal/cli"
	"condensate.dev/cnd/tools/internal/config"
	"condensate.dev/cnd/tools/internal/lifecycle"
	"condensate.dev/cnd/tools/internal/logging"
)

// defaultAddr is where the simulator listens unless told otherwise.
const defaultAddr = "127.0.0.1:4789"

// settings is the section "sim" of the configuration file.
type settings struct {
	// Addr is the host:port to listen on; the host must be this machine. Default 127.0.0.1:4789.
	Addr string `json:"addr"`
	// Scenario is the path of a scenario file. Default: the embedded one. Only one of Scenario and the flag --seed.
	Scenario string `json:"scenario"`
	// ChunkDelayMS is the time between two pieces of a stream, in milliseconds. Default 15.
	ChunkDelayMS int `json:"chunk_delay_ms"`
}

const description = `Speaks Anthropic's Messages API, streaming and not, on POST /v1/messages. Any credential is good.

What it answers depends on the request alone, so the same request gets the same answer: by default a small scripted
agent that reacts to the user's last words (say "help"), with --scenario a script of yours, with --seed N a random walk.

A scenario is one JSON object:
  {"rules":[{"name":"…","text":"regular expression on the user's last text","messages":N,
    "steps":[{"blocks":[{"type":"text","text":"…"},
                        {"type":"thinking","text":"…"},
                        {"type":"tool_use","name":"bash","input":{"command":"…"}}],
              "stop_reason":"…","delay_ms":N,"chunk":N,"fault":{…},"attempts":N}]}]}
The first rule that matches answers; step n answers the request with n assistant messages after the user's last text.
Texts and inputs may use ${0}, ${1}… (match and groups), ${text} and ${result} (of the newest tool calls).

  GET    /sim/requests            what it received: hashes, attempts, what the cache read and wrote
  GET    /sim/requests?body=1&id=N  the exact body of request N
  DELETE /sim/requests            forget that
  POST   /sim/faults              {"kind":"overloaded","count":2,"text":"regular expression","after":BYTES,"skip":N}
  GET    /sim/faults              the faults that wait, and all kinds
  DELETE /sim/faults              none any more`

func command() *cli.Command {
	return &cli.Command{
		Name:        "cnd-sim",
		Usage:       "a simulated model provider",
		Description: description,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "addr", Usage: "listen on `HOST:PORT` of this machine; port 0 picks a free one (default: " + defaultAddr + ")",
				Sources: cli.EnvVars("CONDENSATE_SIM_ADDR")},
			&cli.StringFlag{Name: "scenario", Usage: "answer as `FILE` says", Sources: cli.EnvVars("CONDENSATE_SIM_SCENARIO")},
			&cli.Uint64Flag{Name: "seed", HideDefault: true, Usage: "answer by a random walk from seed `N` instead of a scenario",
				Sources: cli.EnvVars("CONDENSATE_SIM_SEED")},
			&cli.DurationFlag{Name: "chunk-delay", HideDefault: true, Usage: "pause `DURATION` between two pieces of a stream (default: 15ms)",
				Sources: cli.EnvVars("CONDENSATE_SIM_CHUNK_DELAY")},
			lifecycle.ReadyFlag(), lifecycle.LifelineFlag(),
		},
		Action: serve,
	}
}

func serve(ctx context.Context, c *cli.Command) error {
	if _, err := toolcli.Args(c, 0, 0); err != nil {
		return err
	}
	ctx = lifecycle.Lifeline(ctx, c)
	log, err := logging.New(c, c.Root().ErrWriter)
	if err != nil {
		return err
	}
	o, addr, err := options(c)
	if err != nil {
		return err
	}
	l, err := lifecycle.Listen(addr, "does another simulator run? --addr or CONDENSATE_SIM_ADDR picks another address")
	if err != nil {
		return err
	}
	provider := simprovider.New(o)
	defer provider.Close()
	return lifecycle.Serve(ctx, l, provider, log, func() error {
		log.InfoContext(ctx, "simulated provider ready", slog.String(logging.KeyAddr, l.Addr().String()))
		return lifecycle.Ready(c)
	}, provider.Close)
}

// options joins flags, environment and configuration file, and reports all that is wrong with them at once.
func options(c *cli.Command) (simprovider.Options, string, error) {
	s := settings{Addr: defaultAddr, ChunkDelayMS: 15}
	dirs, err := config.FindDirs()
	if err != nil {
		return simprovider.Options{}, "", err
	}
	if err := config.Load(dirs, c.String("config"), "sim", &s); err != nil {
		return simprovider.Options{}, "", err
	}
	if c.IsSet("addr") {
		s.Addr = c.String("addr")
	}
	o := simprovider.Options{ChunkDelay: time.Duration(s.ChunkDelayMS) * time.Millisecond}
	if c.IsSet("chunk-delay") {
		o.ChunkDelay = c.Duration("chunk-delay")
	}
	if c.IsSet("seed") && c.IsSet("scenario") {
		return o, "", toolcli.Usagef("only one of --seed and --scenario")
	}
	if c.IsSet("scenario") {
		s.Scenario = c.String("scenario")
	}
	if c.IsSet("seed") {
		seed := c.Uint64("seed")
		o.Seed = &seed
	} else if s.Scenario != "" {
		o.Scenario, err = readScenario(s.Scenario)
	}
	return o, s.Addr, errors.Join(err, checkAddr(s.Addr))
}

func readScenario(path string) (*simprovider.Scenario, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("scenario: %w: %w", err, simprovider.ErrScenario)
	}
	defer f.Close()
	s, err := simprovider.ReadScenario(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// checkAddr wants an address of this machine: what the simulator shows must not leave it.
func checkAddr(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("--addr %q is not host:port: %w", addr, config.ErrConfig)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--addr %q is not an address of this machine only: %w", addr, config.ErrConfig)
	}
	return nil
}

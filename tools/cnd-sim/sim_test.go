package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/shelltools"
	"condensate.dev/cnd/adapters/simprovider"
	toolcli "condensate.dev/cnd/tools/internal/cli"
)

// daemon is a simulator that runs in this process.
type daemon struct {
	url  string
	stop func() int // ends it and returns its exit code
}

// start runs the simulator until the test ends; it is ready when start returns.
func start(t *testing.T, args ...string) daemon {
	t.Helper()
	t.Setenv("CONDENSATE_CONFIG_DIR", t.TempDir())
	ready, write, err := os.Pipe()
	require.NoError(t, err)
	fd, err := syscall.Dup(int(write.Fd())) // the daemon closes its own
	require.NoError(t, err)
	require.NoError(t, write.Close())
	logs, stderr := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	exited := make(chan int, 1)
	args = append([]string{"cnd-sim", "--addr", "127.0.0.1:0", "--log-format", "json", "--chunk-delay", "0s", "--ready-fd", fmt.Sprint(fd)}, args...)
	go func() {
		code := toolcli.Run(ctx, command(), args, strings.NewReader(""), io.Discard, stderr)
		stderr.Close()
		exited <- code
	}()
	lines := bufio.NewScanner(logs)
	require.True(t, lines.Scan(), "no log line")
	var entry struct{ Addr string }
	require.NoError(t, json.Unmarshal(lines.Bytes(), &entry), "%s", lines.Text())
	go io.Copy(io.Discard, logs)
	newline, err := io.ReadAll(ready)
	require.NoError(t, err)
	require.Equal(t, "\n", string(newline))
	require.NoError(t, ready.Close())
	stopped := false
	d := daemon{url: "http://" + entry.Addr, stop: func() int {
		stopped = true
		cancel()
		return <-exited
	}}
	t.Cleanup(func() {
		if !stopped {
			require.Zero(t, d.stop())
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return d
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("x-api-key", "k")
	req.Header.Set("anthropic-version", "2023-06-01")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

const hello = `{"model":"m","max_tokens":1000,"messages":[{"role":"user","content":"hello"}]}`

// The daemon says when it is ready, answers, and ends in order although a response hangs.
func TestDaemon(t *testing.T) {
	d := start(t)
	status, text := post(t, d.url+"/v1/messages", hello)
	require.Equal(t, 200, status)
	require.Contains(t, text, "Try one of these")
	status, _ = post(t, d.url+"/sim/faults", `{"kind":"stall","after":1}`)
	require.Equal(t, 204, status)
	req, err := http.NewRequestWithContext(t.Context(), "POST", d.url+"/v1/messages", strings.NewReader(hello))
	require.NoError(t, err)
	req.Header.Set("x-api-key", "k")
	req.Header.Set("anthropic-version", "2023-06-01")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Zero(t, d.stop())
	rest, _ := io.ReadAll(resp.Body)
	require.Equal(t, "{", string(rest))
}

// A seed and a scenario file change what is answered.
func TestBehaviour(t *testing.T) {
	scenario := filepath.Join(t.TempDir(), "s.json")
	require.NoError(t, os.WriteFile(scenario, []byte(`{"rules":[{"name":"x","steps":[{"blocks":[{"type":"text","text":"from the file"}]}]}]}`), 0o600))
	d := start(t, "--scenario", scenario)
	_, text := post(t, d.url+"/v1/messages", hello)
	require.Contains(t, text, "from the file")

	one, two := start(t, "--seed", "1"), start(t, "--seed", "2")
	_, first := post(t, one.url+"/v1/messages", hello)
	_, other := post(t, two.url+"/v1/messages", hello)
	require.NotEqual(t, first, other)
}

// Two simulators do not share an address: the second says so and ends.
func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	t.Setenv("CONDENSATE_CONFIG_DIR", t.TempDir())
	t.Setenv("CONDENSATE_SIM_ADDR", l.Addr().String())
	var stderr bytes.Buffer
	code := toolcli.Run(t.Context(), command(), []string{"cnd-sim"}, strings.NewReader(""), io.Discard, &stderr)
	require.Equal(t, 75, code)
	require.Contains(t, stderr.String(), "cnd-sim: error: listen on "+l.Addr().String())
}

// The scripted agent calls the tools of the built-in loop as they are declared.
func TestScriptsFitTheTools(t *testing.T) {
	type schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	declared := map[string]schema{}
	for _, spec := range shelltools.New(shelltools.Options{}).Specs() {
		var s schema
		require.NoError(t, json.Unmarshal(spec.InputSchema, &s))
		declared[spec.Name] = s
	}
	calls := 0
	for _, rule := range simprovider.DefaultScenario().Rules {
		for _, step := range rule.Steps {
			for _, b := range step.Blocks {
				if b.Type != "tool_use" {
					continue
				}
				calls++
				s, ok := declared[b.Name]
				require.True(t, ok, "%s: no tool %s", rule.Name, b.Name)
				var input map[string]json.RawMessage
				require.NoError(t, json.Unmarshal(b.Input, &input))
				for name := range input {
					require.Contains(t, s.Properties, name, "%s: %s", rule.Name, b.Name)
				}
				for _, name := range s.Required {
					require.Contains(t, input, name, "%s: %s", rule.Name, b.Name)
				}
			}
		}
	}
	require.Positive(t, calls)
}

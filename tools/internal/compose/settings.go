package compose

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"condensate.dev/cnd/core/policy"
	"condensate.dev/cnd/tools/internal/config"
)

// Environment names of the runtime.
const (
	EnvAddr      = "CONDENSATE_RUNTIME_ADDR"
	EnvSimAddr   = "CONDENSATE_SIM_ADDR"
	EnvMinFree   = "CONDENSATE_MIN_FREE"
	EnvIsolation = "CONDENSATE_ISOLATION"
	EnvKey       = "ANTHROPIC_API_KEY"
)

// Defaults of the settings.
const (
	DefaultAddr    = "127.0.0.1:4785"
	DefaultSimAddr = "127.0.0.1:4789"
	DefaultModel   = "claude-sonnet-5"
	SimModel       = "claude-sim"
)

// Settings are the section "runtime" of config.json.
type Settings struct {
	// Addr is where the API listens, as host:port; port 0 takes a free one. Default 127.0.0.1:4785.
	Addr string `json:"addr"`
	// Hosts are further names, as host:port, by which requests may call the runtime. Default none: the address itself,
	// localhost and 127.0.0.1.
	Hosts []string `json:"hosts"`
	// SimAddr is where requests of the account sim:default are sent, as host:port. Default 127.0.0.1:4789.
	SimAddr string `json:"sim_addr"`
	// Model is the model of a thread that names none. Default claude-sonnet-5, or claude-sim without a login.
	Model string `json:"model"`
	// MaxTokens bounds an answer, in tokens, 1 to 128000. Default 16384.
	MaxTokens int `json:"max_tokens"`
	// ThinkingTokens is how much of max_tokens the model may think with, in tokens: 0 for no thinking, else 1024 or more
	// and less than max_tokens. Default 0.
	ThinkingTokens int `json:"thinking_tokens"`
	// CacheTTL is how long the provider keeps a prefix: "5m", "1h", or "" for no caching. Default 5m.
	CacheTTL string `json:"cache_ttl"`
	// CacheDiagnostics asks the provider why a prefix was not reused. Only for accounts that support it. Default false.
	CacheDiagnostics bool `json:"cache_diagnostics"`
	// Instructions are added to the system text of new threads. At most 64 KiB.
	Instructions string `json:"instructions"`
	// Rules say which tool calls are allowed, asked about or denied; the first that matches decides (package policy).
	// Default none: reading and writing inside the thread's folder is allowed, everything else asks.
	Rules []policy.Rule `json:"rules"`
	// MinFreeMiB is the free disk space below which no new turn starts, in MiB, 1 to 16777216. Default 512.
	MinFreeMiB int `json:"min_free_mib"`
}

// DefaultSettings are the settings of an empty configuration.
func DefaultSettings() Settings {
	return Settings{
		Addr: DefaultAddr, SimAddr: DefaultSimAddr, MaxTokens: 16384, CacheTTL: "5m", MinFreeMiB: 512,
	}
}

// Limits of the settings.
const (
	maxInstructions = 64 << 10 // bytes
	maxMinFreeMiB   = 1 << 24  // 16 TiB
	minThinking     = 1024     // tokens, the provider's
)

// LoadSettings reads the section from the file at path, "" for the one in the configuration folder. The error joins
// all problems of the file; each wraps [config.ErrConfig].
func LoadSettings(dirs config.Dirs, path string) (Settings, error) {
	s := DefaultSettings()
	err := config.Load(dirs, path, "runtime", &s)
	return s, err
}

// Check returns all problems of s.
func (s Settings) Check() error {
	var problems []error
	wrong := func(field, format string, args ...any) {
		problems = append(problems, fmt.Errorf("runtime.%s: %s: %w", field, fmt.Sprintf(format, args...), config.ErrConfig))
	}
	for _, a := range []struct {
		field, addr string
		free        bool // port 0 takes a free one
	}{{"addr", s.Addr, true}, {"sim_addr", s.SimAddr, false}} {
		if !validAddr(a.addr, a.free) {
			wrong(a.field, "%q is not host:port", a.addr)
		}
	}
	for _, host := range s.Hosts {
		if !validAddr(host, false) {
			wrong("hosts", "%q is not host:port", host)
		}
	}
	if strings.TrimSpace(s.Model) != s.Model {
		wrong("model", "%q has spaces around it", s.Model)
	}
	if s.MaxTokens < 1 || s.MaxTokens > 128000 {
		wrong("max_tokens", "%d is not 1 to 128000", s.MaxTokens)
	}
	if s.ThinkingTokens != 0 && (s.ThinkingTokens < minThinking || s.ThinkingTokens >= s.MaxTokens) {
		wrong("thinking_tokens", "%d is neither 0 nor from %d to less than max_tokens", s.ThinkingTokens, minThinking)
	}
	if !slices.Contains([]string{"", "5m", "1h"}, s.CacheTTL) {
		wrong("cache_ttl", "%q is not 5m, 1h or empty", s.CacheTTL)
	}
	if len(s.Instructions) > maxInstructions {
		wrong("instructions", "%d bytes, at most %d", len(s.Instructions), maxInstructions)
	}
	if s.MinFreeMiB < 1 || s.MinFreeMiB > maxMinFreeMiB {
		wrong("min_free_mib", "%d is not 1 to %d", s.MinFreeMiB, maxMinFreeMiB)
	}
	if _, err := policy.NewOwner(s.Rules); err != nil {
		problems = append(problems, fmt.Errorf("runtime.rules: %w", err))
	}
	return errors.Join(problems...)
}

func validAddr(addr string, free bool) bool {
	host, port, err := net.SplitHostPort(addr)
	n, numErr := strconv.ParseUint(port, 10, 16)
	return err == nil && numErr == nil && host != "" && (n > 0 || free)
}

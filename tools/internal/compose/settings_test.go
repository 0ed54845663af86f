package compose

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/adapters/httpapi"
	"condensate.dev/cnd/core/fault"
)

// The defaults are a valid configuration, and every field has a value that is refused.
func TestSettings(t *testing.T) {
	require.NoError(t, DefaultSettings().Check())
	for _, section := range []string{
		`{"addr":"localhost"}`, `{"addr":":1"}`, `{"addr":"127.0.0.1:99999"}`, `{"sim_addr":"127.0.0.1:0"}`, `{"model":" x"}`,
		`{"max_tokens":-1}`, `{"max_tokens":128001}`, `{"thinking_tokens":1023}`, `{"thinking_tokens":16384}`, `{"cache_ttl":"1d"}`, `{"min_free_mib":0}`, `{"min_free_mib":16777217}`,
		`{"rules":[{"tool":"","verdict":"allow"}]}`, `{"instructions":"` + strings.Repeat("x", 64<<10+1) + `"}`, `{"hosts":["x"]}`,
	} {
		s := DefaultSettings()
		require.NoError(t, json.Unmarshal([]byte(section), &s))
		err := s.Check()
		require.Error(t, err, "%.60s", section)
		require.Equal(t, fault.Config, fault.ClassOf(err), "%.60s", section)
	}
	s := DefaultSettings()
	s.Addr = "127.0.0.1:0"
	require.NoError(t, s.Check(), "a free port is fine for the runtime")
}

// A new thread asks for the thinking that is configured, and for none by default.
func TestThinking(t *testing.T) {
	m := threadMaker{settings: DefaultSettings(), accounts: newAccounts(DefaultSimAddr, Credential{})}
	defer m.accounts.close()
	n, err := m.make(t.Context(), httpapi.ThreadRequest{Cwd: t.TempDir()})
	require.NoError(t, err)
	require.Nil(t, n.Epoch.Thinking)
	m.settings.ThinkingTokens = 4096
	require.NoError(t, m.settings.Check())
	n, err = m.make(t.Context(), httpapi.ThreadRequest{Cwd: t.TempDir()})
	require.NoError(t, err)
	require.Equal(t, `{"type":"enabled","budget_tokens":4096}`, string(n.Epoch.Thinking))
}

// The key is taken out of the environment, and no way of printing it tells it.
func TestCredential(t *testing.T) {
	t.Setenv(EnvKey, " sk-canary \n")
	key := TakeCredential()
	require.Equal(t, Credential{"sk-canary"}, key)
	require.Equal(t, Credential{}, TakeCredential())

	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", slog.Any("key", key), slog.Any("parts", Parts{Credential: key}))
	text, err := json.Marshal(Parts{Credential: key}.Credential)
	require.NoError(t, err)
	printed := log.String() + string(text)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		printed += fmt.Sprintf(verb, key) + fmt.Sprintf(verb, &key) + fmt.Sprintf(verb, Parts{Credential: key})
	}
	require.NotContains(t, printed, "canary")
	require.NotContains(t, printed, fmt.Sprintf("%x", "sk-canary"))
	require.Contains(t, printed, "[redacted]")
}

package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"condensate.dev/cnd/core/fault"
)

type settings struct {
	Addr  string `json:"addr"`
	Limit int    `json:"limit"`
}

func load(t *testing.T, text string) (settings, error) {
	t.Helper()
	dirs := Dirs{Config: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(dirs.Config, FileName), []byte(text), 0o600))
	s := settings{Addr: "default", Limit: 7}
	return s, Load(dirs, "", "runtime", &s)
}

// The section's fields replace defaults; other sections are left to their tools.
func TestLoad(t *testing.T) {
	dirs := Dirs{Config: t.TempDir()}
	s := settings{Addr: "default", Limit: 7}
	require.NoError(t, Load(dirs, "", "runtime", &s))
	require.Equal(t, settings{"default", 7}, s, "a missing file leaves the defaults")

	require.NoError(t, os.WriteFile(filepath.Join(dirs.Config, FileName), []byte(`{"runtime":{"addr":"x"},"sim":{"y":1}}`), 0o600))
	require.NoError(t, Load(dirs, "", "runtime", &s))
	require.Equal(t, settings{"x", 7}, s)
}

// A typing error is refused and named, never ignored.
func TestLoadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"runtme":{}}`:                `section "runtme" is not one of`,
		`{"runtime":{"adr":"x"}}`:      `unknown field "adr"`,
		`{"runtime":{"limit":"x"}}`:    `section "runtime"`,
		"{\"runtime\":{},\n}":          "line 2",
		`{} {}`:                        "more than one JSON value",
		`{"runtime":{"limit":1} "x":}`: "line 1",
	} {
		_, err := load(t, text)
		require.ErrorIs(t, err, ErrConfig, text)
		require.Equal(t, fault.Config, fault.ClassOf(err))
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, FileName)
	}
}

// A file that was asked for by name must exist.
func TestLoadNamedFile(t *testing.T) {
	var s settings
	err := Load(Dirs{}, filepath.Join(t.TempDir(), "gone.json"), "runtime", &s)
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, "gone.json")
}

// The environment names the folders; without it they stand below the home folder.
func TestFindDirs(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	t.Setenv(EnvConfigDir, "")
	t.Setenv(EnvDataDir, "/d")
	dirs, err := FindDirs()
	require.NoError(t, err)
	require.Equal(t, Dirs{Config: "/home/u/.config/condensate", Data: "/d"}, dirs)
}

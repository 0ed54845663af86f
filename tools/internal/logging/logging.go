// Package logging makes the logger of a tool: slog on stderr, attributes only, keys from one list.
package logging

import (
	"io"
	"log/slog"

	"github.com/urfave/cli/v3"

	toolcli "condensate.dev/cnd/tools/internal/cli"
)

// Keys of log attributes; the same fact has the same key in every tool.
const (
	KeyErr    = "err"
	KeyThread = "thread"
	KeySeq    = "seq"
	KeyKind   = "kind"
	KeyAddr   = "addr"
	KeyPath   = "path"
	KeyDelay  = "delay"
	KeyCount  = "count"
	KeyPID    = "pid"
)

// New returns the logger that the shared flags --log-level and --log-format of c ask for, writing to w.
func New(c *cli.Command, w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.String("log-level"))); err != nil {
		return nil, toolcli.Usagef("--log-level %q is not debug, info, warn or error", c.String("log-level"))
	}
	options := &slog.HandlerOptions{Level: level}
	switch format := c.String("log-format"); format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	default:
		return nil, toolcli.Usagef("--log-format %q is not text or json", format)
	}
}

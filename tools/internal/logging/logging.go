// Package logging makes the logger of a tool: slog on stderr, attributes only, keys from one list.
package logging

import (
	"io"
	"log/slog"

	"github.com/urfave/cli/v3"
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

// New returns the logger that the shared flags --log-level and --log-format of c ask for, writing to w. Package cli has
// checked them.
func New(c *cli.Command, w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.String("log-level"))); err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: level}
	if c.String("log-format") == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return slog.New(slog.NewTextHandler(w, options)), nil
}

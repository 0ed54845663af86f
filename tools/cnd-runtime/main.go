// Command cnd-runtime keeps threads of agents: it serves their API, runs the built-in loop, and talks to it from the
// command line.
//
//	cnd-runtime serve                          # the daemon
//	id=$(cnd-runtime thread new "fix the build")
//	cnd-runtime thread follow "$id" --json | jq
//	cnd-runtime export "$id" | cnd-replay verify -
//
// All commands but serve and up are users of package client. stdout carries records and data, stderr is for people;
// exit codes are those of docs/CLI.md.
package main

import (
	"os"

	"condensate.dev/cnd/adapters/guard"
	"condensate.dev/cnd/tools/internal/cli"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == guard.Word {
		cli.Exit(guard.Main(os.Args[2:]))
	}
	cli.Main(command())
}

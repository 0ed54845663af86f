package main

import "github.com/urfave/cli/v3"

func upCommand() *cli.Command {
	return &cli.Command{Name: "up", Usage: "start a simulator, a runtime and a chat"}
}

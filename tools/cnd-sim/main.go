// Command cnd-sim serves a simulated model provider on this machine, for first steps, tests, load and faults.
package main

import "condensate.dev/cnd/tools/internal/cli"

func main() { cli.Main(command()) }

// Command cnd-replay proves a thread: it verifies records and rebuilds, byte for byte, the requests they describe.
package main

import "condensate.dev/cnd/tools/internal/cli"

func main() { cli.Main(command()) }

package cli

import "condensate.dev/cnd/core/fault"

// exitByClass is the one table from fault class to exit code (sysexits.h(3head); docs/CLI.md). Never 1 (a shell says it
// for anything) and never 2 (a Go panic). 75 is the only code worth a retry.
var exitByClass = map[fault.Class]int{
	fault.Usage:           64, // EX_USAGE
	fault.Invalid:         65, // EX_DATAERR
	fault.TooLarge:        65,
	fault.NotFound:        66, // EX_NOINPUT
	fault.Exhausted:       69, // EX_UNAVAILABLE: a budget is used up
	fault.Internal:        70, // EX_SOFTWARE
	fault.Conflict:        73, // EX_CANTCREAT
	fault.Corrupt:         74, // EX_IOERR
	fault.Unavailable:     75, // EX_TEMPFAIL
	fault.StorageFull:     75,
	fault.Unauthenticated: 77, // EX_NOPERM
	fault.Denied:          77,
	fault.Config:          78, // EX_CONFIG
	fault.Canceled:        130,
}

// ExitCode returns the exit code of a fault class.
func ExitCode(c fault.Class) int { return exitByClass[c] }

package main

import "golang.org/x/sys/unix"

// protect keeps the other processes of this user, commands of agents among them, from reading what this process was
// started with and what it holds in memory: a credential stands in both. The kernel dumps no core of it either. root
// can still read it, and so can anybody of this user in the moment between the start and this call, or from whoever
// started it with the credential in the environment.
func protect() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

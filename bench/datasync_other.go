//go:build !linux

package main

import "os"

// datasync is what Pebble does on this system, too.
func datasync(f *os.File) error { return f.Sync() }

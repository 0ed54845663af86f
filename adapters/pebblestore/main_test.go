package pebblestore_test

import (
	"os"
	"strconv"
	"testing"
)

// seedsEnv multiplies how many random cases the fault tests try: CND_FAULT_SEEDS=10 tries ten times as many.
const seedsEnv = "CND_FAULT_SEEDS"

// seeds returns how many seeds a test tries.
func seeds(usual uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(seedsEnv), 10, 16); err == nil && n > 0 {
		return usual * n
	}
	return usual
}

func TestMain(m *testing.M) {
	os.Exit(m.Run())
}

package guard_test

import (
	"strconv"
	"testing"

	"condensate.dev/cnd/adapters/guard"
)

func BenchmarkRun(b *testing.B) {
	g, err := guard.New(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		c := shell("true")
		c.Call = strconv.Itoa(i) + ".0"
		if _, err := g.Run(b.Context(), c, discard); err != nil {
			b.Fatal(err)
		}
	}
}

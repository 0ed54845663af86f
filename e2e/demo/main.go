// Command demo shows the promise of the project on the real programs: an agent repairs a program in a real git
// repository while its runtime is killed at random moments, and everything is proved afterwards.
//
// It expects the tools in bin/ below the current folder, prints a short story, and ends with a code other than 0 when
// anything differs from what was promised. The seed of each round is printed; -seed repeats one.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

// roundTimeout bounds one round.
const roundTimeout = 3 * time.Minute

func main() {
	rounds := flag.Int("rounds", 1, "how often to tell the story")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the first round; each further one adds 1")
	keep := flag.Bool("keep", false, "keep the folder of each round")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("demo: ")

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	bin, err := filepath.Abs("bin")
	if err != nil {
		log.Fatal(err)
	}
	for n := range *rounds {
		s := *seed + uint64(n)
		fmt.Printf("== Round %d of %d, seed %d\n", n+1, *rounds, s)
		if err := round(ctx, bin, s, *keep); err != nil {
			log.Fatalf("round %d, seed %d: %v", n+1, s, err)
		}
	}
}

func round(ctx context.Context, bin string, seed uint64, keep bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "cnd-demo-")
	if err != nil {
		return err
	}
	defer func() {
		if keep || err != nil {
			fmt.Printf("The folder %s stays.\n", dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	return newTale(bin, dir, rand.New(rand.NewPCG(seed, 0))).tell(ctx)
}

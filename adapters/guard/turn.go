package guard

import "context"

// turn waits until nobody else in this process claims or recovers the call: whoever looks into a call takes its lock for
// a moment, and that must not look like a living guard. The caller must call over.
func (g *Guard) turn(ctx context.Context, c *call) (over func(), err error) {
	mine := make(chan struct{})
	for {
		other := g.takeTurn(c, mine)
		if other == nil {
			return func() { g.passTurn(c, mine) }, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// takeTurn returns nil, or what is closed when the turn of somebody else is over.
func (g *Guard) takeTurn(c *call, mine chan struct{}) (other chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if other := g.turns[c.dir]; other != nil {
		return other
	}
	g.turns[c.dir] = mine
	return nil
}

func (g *Guard) passTurn(c *call, mine chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.turns, c.dir)
	close(mine)
}

// begun notes that this Guard runs the call, ended that it does not any more.
func (g *Guard) begun(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running[c.dir] = true
}

func (g *Guard) ended(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, c.dir)
}

func (g *Guard) isRunning(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running[c.dir]
}

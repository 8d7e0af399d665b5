package engine

import "context"

// Wait returns when the op is done. Where ctx ends first, or the rank waited for makes no progress for
// the time-out, the group fails.
func (g *Group) Wait(ctx context.Context, op *Op) error {
	if !op.Done() {
		g.e.wait(ctx, g, op, nil)
	}
	return op.err
}

// Await returns when ready tells so; others change what it looks at, and then call Notify.
func (g *Group) Await(ctx context.Context, ready func() bool) error {
	if ready() {
		return nil
	}
	return g.e.wait(ctx, g, nil, ready)
}

// Watch is Await for who can do without: the end of ctx, which must have one, is an error that does not break the group, and there
// is no other time-out.
func (g *Group) Watch(ctx context.Context, ready func() bool) error {
	if ready() {
		return nil
	}
	return g.e.sleep(ctx, g, nil, ready, false)
}

// Notify wakes the group's ranks that sleep in an Await, so that they look again.
func (g *Group) Notify() {
	g.e.nudging.RLock()
	defer g.e.nudging.RUnlock()
	if !g.e.ended {
		g.nudge()
	}
}

func (g *Group) nudge() {
	for rank, world := range g.members {
		if rank != g.rank {
			g.e.fabric.Nudge(world)
		}
	}
}

// Poll drives the links once, without waiting.
func (g *Group) Poll(op *Op) {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	g.e.poll(op)
}

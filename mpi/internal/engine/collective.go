package engine

import "ddpbatch/mpi/internal/tick"

// pastCalls is how many calls a group remembers, to set them against the frames of a rank
// that lags behind.
const pastCalls = 16

// Begin starts a collective, now. Its Seq must be one more than the last one's.
func (g *Group) Begin(call *Call, now tick.Count) error {
	g.e.mu.Lock()
	err := g.begin(call, now)
	g.e.mu.Unlock()
	return err
}

// BeginAndNotify is Begin, and Notify, at the cost of one. That the group has failed is told by the next Await.
func (g *Group) BeginAndNotify(call *Call, now tick.Count) {
	g.e.mu.Lock()
	_ = g.begin(call, now) // an Await finds it
	if !g.e.ended {
		g.nudge()
	}
	g.e.mu.Unlock()
}

func (g *Group) begin(call *Call, now tick.Count) error {
	if g.err != nil {
		return g.err
	}
	g.call, g.past[call.Seq%pastCalls] = *call, *call
	g.began = now
	g.ended.Store(0)
	if g.e.held > 0 {
		g.e.checkEarly(g)
	}
	return g.err
}

// checkEarly fails the group if a frame of another call than the one that begins has come already. mu is held.
func (e *Engine) checkEarly(g *Group) {
	for rank, world := range g.members {
		p := e.peers[world]
		if p == nil {
			continue
		}
		for m := p.early; m != nil; m = m.next {
			h := &m.head
			if h.kind == kindCollective && h.call.Group == g.id && h.call.Seq <= g.call.Seq && h.call != g.call {
				e.failGroup(g, g.mismatch(rank, h.call))
				return
			}
		}
	}
}

// End ends the collective, now.
func (g *Group) End(now tick.Count) { g.ended.Store(int64(now)) }

// running tells whether the call has not ended. mu is held.
func (g *Group) running() bool { return g.call.Seq > 0 && g.ended.Load() == 0 }

// since is when the call began, or ended. mu is held.
func (g *Group) since() tick.Count {
	if ended := g.ended.Load(); ended != 0 {
		return tick.Count(ended)
	}
	return g.began
}

// mismatch words a frame that is not of this rank's call. A frame of an earlier call is set
// against what this rank called then.
func (g *Group) mismatch(from int, there Call) error {
	here := g.call
	if past := g.past[there.Seq%pastCalls]; past.Seq == there.Seq && past != there {
		here = past
	}
	return Mismatch(g.rank, from, here, there, g.e.options.Describe, g.e.options.DescribeFully)
}

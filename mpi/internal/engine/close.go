package engine

import "time"

// linger bounds how long Close waits for what is still to be written.
const linger = time.Second

// Close leaves the group. The other members may go on with what does not need this one.
func (g *Group) Close() {
	e := g.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.groups[g.id] != g {
		return
	}
	if g.err == nil {
		last := g.call
		if g.running() {
			last.Seq-- // it does not finish this one
		}
		for rank, world := range g.members {
			if world != e.Rank() && e.linked(world) && (g.left == nil || g.left[rank] == nil) {
				e.tell(e.peer(world), header{kind: kindLeave, call: last}, nil)
			}
		}
		e.failGroup(g, ErrClosed)
	}
	e.bury(g.id)
}

// Retire ends a group that all members end after the same call: nobody needs to be told.
func (g *Group) Retire() {
	e := g.e
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failGroup(g, ErrClosed)
	e.bury(g.id)
}

// maxGone is how many groups that are no more an engine remembers.
const maxGone = 1 << 16

// bury forgets a group, but for its number: late frames of it are nobody's. mu is held.
func (e *Engine) bury(id uint64) {
	delete(e.groups, id)
	if len(e.buried) == maxGone {
		delete(e.gone, e.buried[0])
		e.buried = e.buried[1:]
	}
	e.gone[id] = struct{}{}
	e.buried = append(e.buried, id)
}

// linked tells whether a rank is to hear goodbyes: they are no reason to make a link.
func (e *Engine) linked(rank int) bool { return e.peers[rank] != nil || !e.manner.OnDemand }

// Close leaves all groups, says goodbye, and returns when the engine's goroutine has ended and the fabric is closed.
func (e *Engine) Close() error {
	e.closing.Do(func() { e.closeErr = e.close() })
	return e.closeErr
}

func (e *Engine) close() error {
	e.mu.Lock()
	e.closed = true
	for _, g := range e.groups {
		e.failGroup(g, ErrClosed)
	}
	for rank := range e.peers {
		if rank != e.Rank() && e.linked(rank) {
			p := e.peer(rank)
			e.say(p.data, header{kind: kindBye}, nil)
			e.say(p.control, header{kind: kindBye}, nil)
		}
	}
	for deadline := time.Now().Add(linger); len(e.writing) > 0 && time.Now().Before(deadline); {
		e.mu.Unlock()
		time.Sleep(time.Millisecond)
		e.mu.Lock()
		e.look()
	}
	e.mu.Unlock()
	close(e.stop)
	e.fabric.Wake()
	<-e.done
	e.mu.Lock()
	defer e.mu.Unlock()
	e.nudging.Lock()
	defer e.nudging.Unlock()
	e.ended = true
	return e.fabric.Close()
}

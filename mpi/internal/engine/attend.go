package engine

import "time"

// housekeeping is how often a rank that waits for nobody looks at its links: for failures of
// others, and for their questions.
const housekeeping = 250 * time.Millisecond

// dally is how long ops that nobody waits for wait for the attendant: mostly somebody waits before.
const dally = time.Millisecond

// Pursue makes a posted op go on though nobody waits for it.
func (g *Group) Pursue(op *Op) {
	e := g.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if op.Done() || op.pursued {
		return
	}
	op.pursued = true
	if e.pursued++; e.pursued == 1 {
		e.patrol.Reset(dally)
	}
	e.rouse()
}

// rouse lets an attendant that still sleeps, though nobody else did any more, see to what the fabric has told of already. mu is held.
func (e *Engine) rouse() {
	if len(e.unread) > 0 {
		e.fabric.Wake()
	}
}

// attended tells whether the attendant drives the links, or is about to. mu is held.
func (e *Engine) attended() bool { return len(e.sleepers) > 0 || e.pursued > 0 }

// attend is the attendant, a goroutine: it drives the links while all that wait sleep, or there are ops to be pursued, and looks
// after them now and then while there are none.
func (e *Engine) attend() {
	defer close(e.done)
	defer e.patrol.Stop()
	tick := time.NewTicker(housekeeping)
	defer tick.Stop()
	for {
		select {
		case <-e.kick:
			e.serve()
		case <-e.patrol.C:
			e.serve()
		case <-tick.C:
			e.mu.Lock()
			e.look()
			e.mu.Unlock()
		case <-e.stop:
			return
		}
	}
}

// serve drives the links while anyone sleeps.
func (e *Engine) serve() {
	defer e.fabric.Disarm()
	for {
		e.fabric.Arm() // from here on, news makes Sleep return
		for moved := true; moved; {
			e.mu.Lock()
			moved = e.look()
			idle := !e.attended() || e.closed
			e.mu.Unlock()
			if idle {
				return
			}
		}
		e.fabric.Sleep()
	}
}

// look takes what there is on all links, and tells whether that was anything. mu is held.
func (e *Engine) look() bool {
	if e.ended {
		return false
	}
	moved := false
	e.unread, e.visited = e.visited[:0], e.unread
	for _, l := range e.visited {
		l.again = false
		moved = e.read(l, nil) || moved
	}
	e.ready = e.fabric.Ready(e.ready[:0])
	for _, news := range e.ready {
		l := e.peer(news.Rank).control
		if news.Data {
			l = l.peer.data
		}
		moved = e.read(l, nil) || moved
	}
	for _, rank := range e.fabric.Shared() {
		moved = e.read(e.peer(rank).data, nil) || moved
	}
	if len(e.writing) > 0 {
		moved = e.flushAll() || moved
	}
	if len(e.sleepers) > 0 {
		e.wakeReady()
	}
	return moved
}

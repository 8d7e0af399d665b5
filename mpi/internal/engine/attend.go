package engine

import "time"

// housekeeping is how often a rank that waits for nobody looks at its links: for failures of
// others, and for their questions.
const housekeeping = 250 * time.Millisecond

// attend is the attendant, a goroutine: it drives the links while all that wait sleep, and looks after
// them now and then while nobody waits.
func (e *Engine) attend() {
	defer close(e.done)
	tick := time.NewTicker(housekeeping)
	defer tick.Stop()
	for {
		select {
		case <-e.kick:
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
			idle := len(e.sleepers) == 0 || e.closed
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
	for _, rank := range e.ready {
		moved = e.read(e.peer(rank).control, nil) || moved
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

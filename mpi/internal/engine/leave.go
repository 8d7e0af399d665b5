package engine

import (
	"errors"
	"fmt"
	"time"
)

// receiveLeave handles a leave frame: a rank has closed its group.
func (e *Engine) receiveLeave(p *peer, h *header) {
	err := &leftError{after: h.call.Seq}
	g := e.groups[h.call.Group]
	if g == nil {
		e.remember(h.call.Group, func(n *groupNews) { n.left[p.rank] = err })
		return
	}
	rank, member := g.rankOf(p.rank)
	if !member || g.err != nil {
		return
	}
	switch gone := (&PeerError{Rank: rank, Err: err}); {
	case g.lenient:
		e.takeOps(g, p, gone)
		e.leave(g, rank, err)
	case e.waitsFor(g, p):
		e.failGroup(g, gone)
	default:
		e.leave(g, rank, err)
	}
}

// leave records that a rank has left a group.
func (e *Engine) leave(g *Group, rank int, err error) {
	if g.left == nil {
		g.left = make([]error, len(g.members))
	}
	if g.left[rank] == nil {
		g.left[rank] = err
	}
	e.endUnservedReceives(g)
	e.shortenWaits(g)
}

// endUnservedReceives ends the receives from any rank if no rank is left that could send.
func (e *Engine) endUnservedReceives(g *Group) {
	reason := ErrLeft
	for rank, world := range g.members {
		switch {
		case rank == g.rank:
		case !g.hasLeft(rank):
			return
		case e.peers[world] != nil && e.peers[world].err != nil:
			reason = e.peers[world].err
		default:
			reason = g.left[rank]
		}
	}
	of := func(op *Op) bool { return op.group == g }
	for op := e.anySent.take(of); op != nil; op = e.anySent.take(of) {
		e.complete(op, fmt.Errorf("no rank is left that could send: %w", reason))
	}
}

// departureWait is how long a rank goes on waiting for a condition after another rank has ended without saying which call was its last.
// That rank may have done its part before, and a third one may be late.
const departureWait = time.Second

// shortenWaits shortens the waits for a group's conditions after a rank has left. If that rank is needed, the group fails. mu is held.
func (e *Engine) shortenWaits(g *Group) {
	waits, unsure := false, g.departureUnknown() != nil
	for _, w := range e.sleepers {
		if w.group != g || w.ready == nil || !w.fatal {
			continue
		}
		waits = true
		if unsure {
			w.timer.Reset(min(departureWait, e.options.Timeout))
		}
	}
	if waits {
		e.failIfDeserted(g)
	}
}

// departureUnknown returns the error of a rank that has left without saying which call was its last, and so may be the one that is waited
// for. It returns nil if there is none. mu is held.
func (g *Group) departureUnknown() error {
	for rank, err := range g.left {
		if _, said := errors.AsType[*leftError](err); err != nil && !said {
			return &PeerError{Rank: rank, Err: err}
		}
	}
	return nil
}

// failIfDeserted fails a group that waits for a rank that left before the current call, and so will never come. mu is held.
func (e *Engine) failIfDeserted(g *Group) {
	for rank, err := range g.left {
		if left, said := errors.AsType[*leftError](err); said && left.after < g.call.Seq && g.running() {
			e.failGroup(g, &PeerError{Rank: rank, Err: err})
			return
		}
	}
}

// leftError is the ErrLeft of a rank that has sent a leave frame.
type leftError struct {
	after uint64 // the last call that it took part in
}

func (e *leftError) Error() string { return fmt.Sprintf("%v after call #%d", ErrLeft, e.after) }

// Unwrap returns ErrLeft.
func (e *leftError) Unwrap() error { return ErrLeft }

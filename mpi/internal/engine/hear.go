package engine

import (
	"fmt"
	"time"
)

const (
	maxNews = 1024 // groups that are not there yet, of which an engine remembers what it has heard
	maxOwed = 16   // answers to a peer's questions that wait to be written; to more it gets none
)

// news is what has been heard of a group before this rank is of it.
type news struct {
	failed error
	left   map[int]error // by world rank
}

// hear acts on a frame of the engine's own. mu is held.
func (e *Engine) hear(p *peer, h *header, payload []byte) {
	switch h.kind {
	case kindAbort:
		e.hearAbort(p, h, payload)
	case kindLeave:
		e.hearLeave(p, h)
	case kindBye:
		e.endOf(p.control, ErrLeft)
	case kindQuery:
		if p.control.out.count(kindStatus) < maxOwed {
			e.control(p, header{kind: kindStatus, call: Call{Group: h.call.Group}}, e.status(h.call.Group).encode())
		}
	case kindStatus:
		s, err := decodeStatus(payload)
		if err != nil {
			e.endOf(p.control, err)
			return
		}
		if g := e.groups[h.call.Group]; g != nil && g.told != nil {
			if rank, member := g.rankOf(p.rank); member {
				g.told[rank] = s
				e.answered.Broadcast()
			}
		}
	}
}

// hearAbort fails a group here as it has failed there.
func (e *Engine) hearAbort(p *peer, h *header, payload []byte) {
	g, size := e.groups[h.call.Group], e.Size()
	if g != nil {
		size = len(g.members)
	}
	told, err := decodeAbort(payload, size)
	if err != nil {
		e.endOf(p.control, err)
		return
	}
	if g == nil {
		e.remember(h.call.Group, func(n *news) { n.failed = told })
	} else if _, member := g.rankOf(p.rank); member {
		e.failGroup(g, told)
	}
}

// remember keeps what is heard of a group until this rank is of it.
func (e *Engine) remember(group uint64, add func(*news)) {
	n := e.news[group]
	if _, closed := e.gone[group]; closed || n == nil && len(e.news) == maxNews {
		return
	}
	if n == nil {
		n = &news{left: make(map[int]error)}
		e.news[group] = n
	}
	add(n)
}

// hearLeave notes that a rank has closed its group. What it sent before that way round is read first.
func (e *Engine) hearLeave(p *peer, h *header) {
	err := fmt.Errorf("%w after call #%d", ErrLeft, h.call.Seq)
	g := e.groups[h.call.Group]
	if g == nil {
		e.remember(h.call.Group, func(n *news) { n.left[p.rank] = err })
		return
	}
	rank, member := g.rankOf(p.rank)
	if !member || g.err != nil {
		return
	}
	if p.data != p.control {
		e.read(p.data, nil)
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

// patience is how long a rank waits on for a condition after another has left the group: it may have
// done its part before, and another be the late one.
const patience = time.Second

// doubt shortens the waits for a group's conditions to patience. mu is held.
func (e *Engine) doubt(g *Group) {
	for _, w := range e.sleepers {
		if w.group == g && w.ready != nil {
			w.timer.Reset(min(patience, e.options.Timeout))
		}
	}
}

package engine

import (
	"errors"
	"time"
)

// tell queues a frame of the engine's own for a peer.
func (e *Engine) tell(p *peer, h header, payload []byte) { e.say(p.lane(h.kind), h, payload) }

// say is tell on a given lane.
func (e *Engine) say(l *lane, h header, payload []byte) {
	if l.peer.err != nil || l.shut || e.ended {
		return
	}
	h.length = uint64(len(payload))
	op := &Op{peer: int32(l.peer.rank), kind: h.kind, call: h.call, buf: payload}
	h.encode(&op.head)
	e.write(l, op)
}

const (
	maxNews = 1024 // groups that are not there yet, of which an engine remembers what it has heard
	maxOwed = 16   // answers to a peer's questions that wait to be written; to more it gets none
)

// hear acts on a frame of the engine's own. mu is held.
func (e *Engine) hear(l *lane, h *header, payload []byte) {
	p := l.peer
	switch h.kind {
	case kindAbort:
		e.hearAbort(p, h, payload)
	case kindLeave:
		e.hearLeave(p, h)
	case kindBye:
		e.endOf(l, ErrLeft)
	case kindQuery:
		if p.control.out.count(kindStatus) < maxOwed {
			e.tell(p, header{kind: kindStatus, call: Call{Group: h.call.Group}}, e.status(h.call.Group).encode())
		}
	case kindStatus:
		e.hearStatus(p, h, payload)
	}
}

// hearStatus takes an answer to what ask has asked.
func (e *Engine) hearStatus(p *peer, h *header, payload []byte) {
	g := e.groups[h.call.Group]
	if g == nil {
		return
	}
	s, err := decodeStatus(payload, len(g.members))
	if err != nil {
		e.endOf(p.control, err)
		return
	}
	if rank, member := g.rankOf(p.rank); member && g.told != nil {
		g.told[rank] = s
		e.answered.Broadcast()
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
		e.remember(h.call.Group, func(n *news) { n.failed[p.rank] = told })
	} else if _, member := g.rankOf(p.rank); member {
		e.failGroup(g, told)
	}
}

// news is what has been heard of a group before this rank is of it.
type news struct {
	failed map[int]*AbortError // by world rank of who said so
	left   map[int]error       // by world rank
}

// remember keeps what is heard of a group until this rank is of it.
func (e *Engine) remember(group uint64, add func(*news)) {
	n := e.news[group]
	if _, closed := e.gone[group]; closed || n == nil && len(e.news) == maxNews {
		return
	}
	if n == nil {
		n = &news{failed: make(map[int]*AbortError), left: make(map[int]error)}
		e.news[group] = n
	}
	add(n)
}

// hearLeave notes that a rank has closed its group.
func (e *Engine) hearLeave(p *peer, h *header) {
	err := &leftError{after: h.call.Seq}
	g := e.groups[h.call.Group]
	if g == nil {
		e.remember(h.call.Group, func(n *news) { n.left[p.rank] = err })
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

// patience is how long a rank waits on for a condition after another has ended without saying which call was its last: it may have
// done its part before, and another be the late one.
const patience = time.Second

// doubt shortens the waits for a group's conditions after a rank has left: to nothing where it was needed. mu is held.
func (e *Engine) doubt(g *Group) {
	waits, unsure := false, g.unsure() != nil
	for _, w := range e.sleepers {
		if w.group != g || w.ready == nil || !w.fatal {
			continue
		}
		waits = true
		if unsure {
			w.timer.Reset(min(patience, e.options.Timeout))
		}
	}
	if waits {
		e.desert(g)
	}
}

// unsure is the error of a wait that a rank may be to blame for of which it is not known how far it came before it left; nil: there is
// none. mu is held.
func (g *Group) unsure() error {
	for rank, err := range g.left {
		var left *leftError
		if err != nil && !errors.As(err, &left) {
			return &PeerError{Rank: rank, Err: err}
		}
	}
	return nil
}

// desert fails a group that waits for a rank which has left before the call that runs, and so will never come. mu is held.
func (e *Engine) desert(g *Group) {
	for rank, err := range g.left {
		if left := (*leftError)(nil); errors.As(err, &left) && left.after < g.call.Seq && g.running() {
			e.failGroup(g, &PeerError{Rank: rank, Err: err})
			return
		}
	}
}

package engine

// sendControl queues a frame of the engine's own for a peer.
func (e *Engine) sendControl(p *peer, h header, payload []byte) {
	e.sendControlOn(p.lane(h.kind), h, payload)
}

// sendControlOn is sendControl on a given lane.
func (e *Engine) sendControlOn(l *lane, h header, payload []byte) {
	if l.peer.err != nil || l.writeEnded || e.ended {
		return
	}
	h.length = uint64(len(payload))
	op := &Op{peer: int32(l.peer.rank), kind: h.kind, call: h.call, buf: payload}
	h.encode(&op.head)
	e.write(l, op)
}

const (
	maxNews          = 1024 // groups that are not there yet, whose news an engine keeps
	maxQueuedAnswers = 16   // answers to a peer's questions that wait to be written; to more it gets none
)

// receiveControl acts on a frame of the engine's own. mu is held.
func (e *Engine) receiveControl(l *lane, h *header, payload []byte) {
	p := l.peer
	switch h.kind {
	case kindAbort:
		e.receiveAbort(p, h, payload)
	case kindLeave:
		e.receiveLeave(p, h)
	case kindBye:
		e.endOf(l, ErrLeft)
	case kindQuery:
		if p.control.out.count(kindStatus) < maxQueuedAnswers {
			e.sendControl(p, header{kind: kindStatus, call: Call{Group: h.call.Group}}, e.statusOf(h.call.Group).encode())
		}
	case kindStatus:
		e.receiveStatus(p, h, payload)
	}
}

// receiveStatus takes an answer to what ask has asked.
func (e *Engine) receiveStatus(p *peer, h *header, payload []byte) {
	g := e.groups[h.call.Group]
	if g == nil {
		return
	}
	s, err := decodeStatus(payload, len(g.members))
	if err != nil {
		e.endOf(p.control, err)
		return
	}
	if rank, member := g.rankOf(p.rank); member && g.statuses != nil {
		g.statuses[rank] = s
		e.answered.Broadcast()
	}
}

// receiveAbort fails a group here as it has failed there.
func (e *Engine) receiveAbort(p *peer, h *header, payload []byte) {
	g, size := e.groups[h.call.Group], e.Size()
	if g != nil {
		size = len(g.members)
	}
	abort, err := decodeAbort(payload, size)
	if err != nil {
		e.endOf(p.control, err)
		return
	}
	if g == nil {
		e.remember(h.call.Group, func(n *groupNews) { n.failed[p.rank] = abort })
	} else if _, member := g.rankOf(p.rank); member {
		e.failGroup(g, abort)
	}
}

// groupNews is what other ranks have said of a group before this rank is of it.
type groupNews struct {
	failed map[int]*AbortError // by world rank of who said so
	left   map[int]error       // by world rank
}

// remember keeps news of a group until this rank is of it.
func (e *Engine) remember(group uint64, add func(*groupNews)) {
	n := e.news[group]
	if _, closed := e.closedGroups[group]; closed || n == nil && len(e.news) == maxNews {
		return
	}
	if n == nil {
		n = &groupNews{failed: make(map[int]*AbortError), left: make(map[int]error)}
		e.news[group] = n
	}
	add(n)
}

package engine

// sendControl queues a control frame for a peer.
func (e *Engine) sendControl(p *peer, h header, payload []byte) {
	e.sendControlOn(p.lane(h.kind), h, payload)
}

// sendControlOn is sendControl on the given lane.
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
	maxNews          = 1024 // the number of groups that this rank has not joined yet for which it keeps news
	maxQueuedAnswers = 16   // the number of answers to a peer that may be queued; further queries are not answered
)

// receiveControl handles a control frame. mu is held.
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

// receiveStatus handles an answer to a query of ask.
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

// receiveAbort fails a group on this rank as it has failed on the sender.
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

// groupNews is what other ranks have sent about a group before this rank has joined it.
type groupNews struct {
	failed map[int]*AbortError // by world rank of the sender
	left   map[int]error       // by world rank
}

// remember keeps news about a group until this rank joins it.
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

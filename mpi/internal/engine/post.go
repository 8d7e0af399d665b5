package engine

// Send posts a part of the group's current collective for rank to.
func (g *Group) Send(op *Op, to int, buf []byte) {
	g.e.mu.Lock()
	g.send(op, kindCollective, g.call, to, buf)
	g.e.mu.Unlock()
}

// Recv posts a receive of the next part of the current collective from rank
// from; the part must have the length of buf.
func (g *Group) Recv(op *Op, from int, buf []byte) {
	g.e.mu.Lock()
	g.receive(op, kindCollective, g.call, from, buf)
	g.e.mu.Unlock()
}

// SendMessage posts a message for rank to. Of label, Seq is the tag; Element must be the receiver's.
func (g *Group) SendMessage(op *Op, to int, label Call, buf []byte) {
	g.e.mu.Lock()
	g.send(op, kindMessage, label, to, buf)
	g.e.mu.Unlock()
}

// RecvMessage posts a receive of the next message with label's Seq, the tag, from rank from or from Any.
// buf must have room for it.
func (g *Group) RecvMessage(op *Op, from int, label Call, buf []byte) {
	g.e.mu.Lock()
	g.receive(op, kindMessage, label, from, buf)
	g.e.mu.Unlock()
}

// Source tells of a receive that is done which rank's message it got, and its length in bytes.
func (g *Group) Source(op *Op) (rank, size int) {
	rank, _ = g.rankOf(op.from)
	return rank, op.size
}

func (g *Group) send(op *Op, kind frameKind, call Call, to int, buf []byte) {
	e := g.e
	p := e.peer(g.members[to])
	op.start(g, kind, call, p.rank, buf)
	if !e.usable(op, p) {
		return
	}
	h := header{kind: kind, call: op.call, length: uint64(len(buf))}
	h.encode(&op.head)
	e.write(p.data, op)
}

func (g *Group) receive(op *Op, kind frameKind, call Call, from int, buf []byte) {
	e := g.e
	op.recv = true
	e.posted++
	op.order = e.posted
	if from == Any {
		op.start(g, kind, call, Any, buf)
		op.recv = true
		e.receiveAny(op)
		return
	}
	p := e.peer(g.members[from])
	op.start(g, kind, call, p.rank, buf)
	op.recv = true
	if g.err != nil {
		e.complete(op, g.err)
		return
	}
	if m := p.match(op); m != nil {
		e.deliver(p, m, op)
		return
	}
	if !e.usable(op, p) {
		return
	}
	p.posted.push(op)
	if p.data.in.stalled {
		e.read(p.data, nil)
	}
}

// receiveAny looks through what came early from all, then joins the queue.
func (e *Engine) receiveAny(op *Op) {
	g := op.group
	if g.err != nil {
		e.complete(op, g.err)
		return
	}
	for _, world := range g.members {
		p := e.peers[world]
		if p == nil {
			continue
		}
		if m := p.match(op); m != nil {
			e.deliver(p, m, op)
			return
		}
	}
	e.anySent.push(op)
	for _, world := range g.members {
		if p := e.peers[world]; p != nil && p.data.in.stalled && !op.Done() {
			e.read(p.data, nil)
		}
	}
	if !op.Done() {
		e.orphan(g) // others may have left before
	}
}

func (op *Op) start(g *Group, kind frameKind, call Call, peer int, buf []byte) {
	call.Group = g.id
	op.group, op.kind, op.call, op.peer, op.buf = g, kind, call, int32(peer), buf
	op.recv, op.moved, op.tried, op.err, op.size = false, 0, false, nil, 0
	op.done.Store(false)
}

// usable completes the op with an error where its group has failed or its peer is gone.
func (e *Engine) usable(op *Op, p *peer) bool {
	g := op.group
	rank, _ := g.rankOf(p.rank)
	switch {
	case g.err != nil:
		e.complete(op, g.err)
	case g.left != nil && g.left[rank] != nil:
		e.miss(op, g.left[rank])
	case p.err != nil:
		e.miss(op, p.err)
	default:
		return true
	}
	return false
}

// deliver gives a message that came early to its receive; what of it is still to come goes there directly.
func (e *Engine) deliver(p *peer, m *early, op *Op) {
	if err := op.accept(&m.head); err != nil {
		e.detach(p, m)
		e.refuse(op, p, &m.head, err)
		return
	}
	op.from = p.rank
	in := &p.data.in
	if m.complete {
		copy(op.buf, m.buf)
		e.complete(op, nil)
	} else {
		copy(op.buf, m.buf[:in.got])
		in.early, in.op, in.dst = nil, op, op.buf[:len(m.buf)]
	}
	e.drop(m)
}

// detach lets go of a message that nobody will receive.
func (e *Engine) detach(p *peer, m *early) {
	if in := &p.data.in; in.early == m {
		in.early, in.dst = nil, nil
	}
	e.drop(m)
}

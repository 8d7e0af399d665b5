package engine

import (
	"errors"
	"slices"

	"ddpbatch/mpi/transport"
)

// peer is the engine's state of one other rank.
type peer struct {
	rank    int // in the world
	control *lane
	data    *lane

	posted opList // receives from this rank alone
	early  *early // messages that came before their receive, oldest first
	tail   *early // the youngest of them
	ending error  // why its control lane has ended; there may still be data on the other lane
	err    error  // why nothing will come from it any more; everything that came before has been read
}

// lane is a link with its state.
type lane struct {
	peer       *peer
	link       transport.Link
	out        opList // frames to write; the first one may be written in part
	in         inbound
	silentEnd  bool // it is shared memory, which does not report its end
	readEnded  bool // nothing more will be read
	writeEnded bool // nothing more can be written
	busy       bool // it is in Engine.writing
	used       bool // something has been written or queued

	isUnread bool // it is in Engine.unread
}

func newPeer(rank int, fabric transport.Fabric) *peer {
	p := &peer{rank: rank}
	p.control = &lane{peer: p, link: fabric.Control(rank)}
	p.data = &lane{peer: p, link: fabric.Data(rank), silentEnd: slices.Contains(fabric.Shared(), rank)}
	return p
}

// lane returns the lane for frames of a kind.
func (p *peer) lane(k frameKind) *lane {
	if k.goesByData() {
		return p.data
	}
	return p.control
}

// isDue reports whether a receive from this rank alone is posted for a frame.
func (p *peer) isDue(h *header) bool {
	_, op := p.posted.find(func(op *Op) bool { return op.matches(h) })
	return op != nil
}

// exhausted reports whether nothing more can be expected of a peer whose control lane has ended, because everything that it sent has been
// read. If the peer was killed, data for which no receive is posted does not count.
func (p *peer) exhausted() bool {
	l := p.data
	switch {
	case l.readEnded:
		return true
	case l.in.stalled:
		return !errors.Is(p.ending, ErrLeft)
	}
	return l.silentEnd && !l.isUnread
}

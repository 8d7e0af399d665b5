package engine

import (
	"errors"
	"slices"

	"ddpbatch/mpi/transport"
)

// peer is what an engine knows of one other rank.
type peer struct {
	rank    int // in the world
	control *lane
	data    *lane

	posted opList // receives from this rank alone
	early  *early // messages that came before their receive, oldest first
	tail   *early // the youngest of them
	ending error  // its control lane has ended, for this reason, and there may be more on the other
	err    error  // why nothing will come from it any more; all that came before has been read
}

// lane is a link with what is under way on it.
type lane struct {
	peer       *peer
	link       transport.Link
	out        opList // the first may be written in part
	in         inbound
	silentEnd  bool // it is memory, which tells nothing of its end
	readEnded  bool // nothing more will be read
	writeEnded bool // nothing more can be written
	busy       bool // it is among Engine.writing
	used       bool // something was written, or is to be

	isUnread bool // it is among Engine.unread
}

func newPeer(rank int, fabric transport.Fabric) *peer {
	p := &peer{rank: rank}
	p.control = &lane{peer: p, link: fabric.Control(rank)}
	p.data = &lane{peer: p, link: fabric.Data(rank), silentEnd: slices.Contains(fabric.Shared(), rank)}
	return p
}

// lane is the one that frames of a kind go by.
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

// exhausted reports whether nothing more is to be expected of a peer whose control lane has ended: what it sent before is read,
// but that nobody waits for the last words of one that was killed.
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

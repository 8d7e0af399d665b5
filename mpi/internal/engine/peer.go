package engine

import "ddpbatch/mpi/transport"

// peer is what an engine knows of one other rank.
type peer struct {
	rank    int // in the world
	control *lane
	data    *lane // may be control

	posted  opList // receives from this rank alone
	early   *early // messages that came before their receive, oldest first
	tail    *early // the youngest of them
	leaving bool   // it has said goodbye, and what it sent before waits for room
	err     error  // why nothing will come from it any more; all that came before has been read
}

// lane is a link with what is under way on it.
type lane struct {
	peer *peer
	link transport.Link
	out  opList // the first may be written in part
	in   inbound
	over bool // nothing more will be read
	shut bool // nothing more can be written
	busy bool // it is among Engine.writing

	again bool // it is among Engine.unread
}

func newPeer(rank int, fabric transport.Fabric) *peer {
	p := &peer{rank: rank}
	p.control = &lane{peer: p, link: fabric.Control(rank)}
	p.data = p.control
	if link := fabric.Data(rank); link != p.control.link {
		p.data = &lane{peer: p, link: link}
	}
	return p
}

// lane is the one that frames of a kind go by.
func (p *peer) lane(k frameKind) *lane {
	if k.carriesData() {
		return p.data
	}
	return p.control
}

package shm

import (
	"encoding/binary"
	"fmt"

	"ddpbatch/mpi/internal/algorithm"
)

// GatherV copies each rank's in to its block of root's out. Block r is out[at[r]:at[r+1]]. Only root knows the bounds; each rank knows the
// length of its own block. in may be root's own block. p sends blocks that do not fit inline. A rank other than root waits for no rank if
// its block fits.
func (n *Node) GatherV(w Waiter, p algorithm.Port, fingerprint Fingerprint, out []byte, at []int, in []byte, root int) error {
	return n.exchange(w, p, fingerprint, n.all(), only(root),
		func(int) []byte { return in }, func(r int) []byte { return block(out, at, r) })
}

// ScatterV copies each block of root's in to the out of its rank. It is the inverse of GatherV. out may be root's own block. Root waits for
// no rank if the blocks of all others fit inline.
func (n *Node) ScatterV(w Waiter, p algorithm.Port, fingerprint Fingerprint, out, in []byte, at []int, root int) error {
	return n.exchange(w, p, fingerprint, only(root), n.all(),
		func(r int) []byte { return block(in, at, r) }, func(int) []byte { return out })
}

// AllToAllV sends block r of in to rank r, which receives it as the block of this rank in its out. in and out do not overlap.
func (n *Node) AllToAllV(w Waiter, p algorithm.Port, fingerprint Fingerprint, out []byte, outAt []int, in []byte, inAt []int) error {
	return n.exchange(w, p, fingerprint, n.all(), n.all(),
		func(r int) []byte { return block(in, inAt, r) }, func(r int) []byte { return block(out, outAt, r) })
}

// LengthError says that a rank has sent a block of another length than this rank expects.
type LengthError struct {
	Rank      int    // the sender
	Due, Sent uint64 // the bytes that this rank expects, and those of the block
}

func (e *LengthError) Error() string {
	return fmt.Sprintf("rank %d sent a block of %d bytes, but this rank expects %d", e.Rank, e.Sent, e.Due)
}

// exchange sends a block from each of senders to each of receivers. give returns this rank's block for a receiver, if it is a sender. take
// returns the memory for the block of a sender, if this rank is a receiver.
//
// Only the two ranks of a block know its length. The sender writes it to its inline memory, where each receiver has a cell, and the
// receiver compares it with the length that it expects. If there is room in the cell, the block follows. A long block is read from the
// sender's memory, and its address follows. Any other block is sent as a message. Both ranks know from the length which way it travels. A
// rank waits only for the ranks from which it takes a block, for its messages, and for ranks that read its blocks.
func (n *Node) exchange(
	w Waiter, p algorithm.Port, fingerprint Fingerprint, senders, receivers span, give, take func(r int) []byte,
) error {
	var to, from span // the ranks for which this one has blocks, and those from which it takes blocks
	if senders.has(n.rank) {
		to = receivers
	}
	if receivers.has(n.rank) {
		from = senders
	}
	ways := n.blockWays(receivers.len())
	cell := func(sender, receiver int, place uint64) []byte {
		return n.ranks[sender].inline[place][(receiver-receivers.from)*ways.cell:][:ways.cell]
	}
	for r := to.from; r < to.to; r++ {
		if r != n.rank {
			ways.fill(cell(n.rank, r, n.nextPlace()), give(r))
		}
	}
	if err := n.enter(w, fingerprint, 0, nil, span{}); err != nil {
		return err
	}
	posted := n.post(p, ways, to, from, give, take)
	if to.has(n.rank) && from.has(n.rank) {
		copy(take(n.rank), give(n.rank))
	}
	if err := n.awaitEntry(w, from); err != nil {
		return err
	}
	reads := false
	for i := 1; i < len(n.ranks); i++ { // each rank begins with another one
		if r := (n.rank + i) % len(n.ranks); from.has(r) {
			if err := n.takeBlock(w, ways, cell(r, n.rank, n.place()), take(r), r); err != nil {
				return n.fail(err)
			}
			reads = reads || ways.isRead(take(r))
		}
	}
	if reads {
		n.ranks[n.rank].counters[taken].Store(n.seq)
		w.Notify()
	}
	if err := algorithm.WaitAll(p, posted...); err != nil {
		return n.fail(err)
	}
	for r := to.from; r < to.to; r++ {
		if r == n.rank || !ways.isRead(give(r)) {
			continue
		}
		if !from.has(r) { // r may be in another call, in which it waits for this rank
			if err := n.awaitEntry(w, only(r)); err != nil {
				return err
			}
		}
		if err := n.awaitRanks(w, taken, n.seq, only(r)); err != nil {
			return err
		}
	}
	return nil
}

// post posts the messages to and from other ranks.
func (n *Node) post(p algorithm.Port, ways blockWays, to, from span, give, take func(r int) []byte) []algorithm.Handle {
	ranks := len(n.ranks)
	posted := p.Handles(2 * ranks)[:0]
	for i := 1; i < ranks; i++ {
		if r := (n.rank - i + ranks) % ranks; from.has(r) && ways.isMessage(take(r)) {
			posted = append(posted, p.Recv(r, take(r)))
		}
	}
	for i := 1; i < ranks; i++ { // each rank begins with another one
		if r := (n.rank + i) % ranks; to.has(r) && ways.isMessage(give(r)) {
			posted = append(posted, p.Send(r, give(r)))
		}
	}
	return posted
}

// takeBlock takes a block from the rank sender, unless it is sent as a message. Its length must be that of block.
func (n *Node) takeBlock(w Waiter, ways blockWays, cell, block []byte, sender int) error {
	if sent := binary.LittleEndian.Uint64(cell); sent != uint64(len(block)) {
		return &LengthError{Rank: sender, Due: uint64(len(block)), Sent: sent}
	}
	switch {
	case ways.fitsCell(block):
		copy(block, cell[lengthSize:])
	case ways.isRead(block):
		state := &n.ranks[sender]
		state.view, state.address = nil, binary.LittleEndian.Uint64(cell[lengthSize:])
		return n.fetchAll(w, block, sender)
	}
	return nil
}

// blockWays says in which way the blocks of a call travel, depending on their lengths in bytes.
type blockWays struct {
	cell     int // the length of a cell
	readFrom int // the length of the shortest block that is read
}

// lengthSize is the size in bytes of a length in a cell, and of an address.
const lengthSize = 8

// blockWays returns the ways of a call in which each sender has blocks for the given number of receivers.
func (n *Node) blockWays(receivers int) blockWays {
	ways := blockWays{cell: inlineSize / receivers / lengthSize * lengthSize, readFrom: never}
	if n.readable && (receivers > 1 || len(n.ranks) == 2) {
		ways.readFrom = readFrom
	}
	return ways
}

func (ways blockWays) fitsCell(block []byte) bool { return len(block) <= ways.cell-lengthSize }

func (ways blockWays) isRead(block []byte) bool { return len(block) >= ways.readFrom }

func (ways blockWays) isMessage(block []byte) bool {
	return !ways.fitsCell(block) && !ways.isRead(block)
}

// fill writes into the cell of a block what its receiver needs.
func (ways blockWays) fill(cell, block []byte) {
	binary.LittleEndian.PutUint64(cell, uint64(len(block)))
	switch {
	case ways.fitsCell(block):
		copy(cell[lengthSize:], block)
	case ways.isRead(block):
		binary.LittleEndian.PutUint64(cell[lengthSize:], addressOf(block))
	}
}

package shm

// everyone stands for the root of a reduction whose result goes to every rank.
const everyone = -1

// AllReduce combines the bufs of all ranks, in place.
func (n *Node) AllReduce(w Waiter, stamp Stamp, buf []byte, r *Reduction) error {
	return n.reduce(w, stamp, buf, everyone, r)
}

// Reduce leaves the result in root's buf. The others' are not changed.
func (n *Node) Reduce(w Waiter, stamp Stamp, buf []byte, root int, r *Reduction) error {
	if err := n.checkRoot(root); err != nil {
		return n.fail(err)
	}
	return n.reduce(w, stamp, buf, root, r)
}

func (n *Node) reduce(w Waiter, stamp Stamp, buf []byte, root int, r *Reduction) error {
	if err := r.check(len(buf)); err != nil {
		return n.fail(err)
	}
	ref, fits := n.refOf(buf), len(buf) <= inlineSize
	var inline []byte
	c := chunks{buf: buf, p: len(n.ranks)}
	switch {
	case !fits || ref != 0:
	case len(buf) > splitFrom:
		c.inline, c.parity, c.piece = true, n.nextParity(), roundUp(roundsOf(len(buf), c.p))
		n.stageOthers(&c, 0)
	case n.rank != root:
		inline = buf
	}
	if err := n.enter(w, stamp, ref, inline); err != nil {
		return err
	}
	way, err := n.choose(len(buf), r.Size, fits)
	switch {
	case err != nil:
		return err
	case way == direct:
		return n.reduceDirect(w, buf, root, r)
	case way == staged:
		return n.reduceStaged(w, buf, root, r)
	case c.inline:
		return n.reduceSplit(w, &c, root, r)
	}
	if root == everyone || root == n.rank {
		n.reduceInline(buf, r)
	}
	return nil
}

// splitFrom is the longest buffer that every rank reads in full from all others. Beyond, each rank reduces a part only, and the
// ranks meet once more.
const splitFrom = 2 << 10

func (n *Node) reduceInline(buf []byte, r *Reduction) {
	for i := range n.ranks {
		n.sources[i] = n.ranks[i].data(n.parity(), len(buf))
	}
	n.sources[n.rank] = buf
	n.targets = append(n.targets[:0], buf)
	n.combine(r)
}

// reduceDirect has each rank combine one part of the ranks' own buffers, and write it to them. The
// parts do not share a cache line where the buffers begin at one.
func (n *Node) reduceDirect(w Waiter, buf []byte, root int, r *Reduction) error {
	part := roundUp(roundsOf(len(buf), len(n.ranks)))
	for i := range n.ranks {
		n.sources[i] = window(n.ranks[i].view, n.rank, part)
	}
	n.targets = n.targets[:0]
	if root != everyone {
		n.targets = append(n.targets, n.sources[root])
	} else {
		n.targets = append(n.targets, n.sources[n.rank])
		for i := range n.ranks {
			if i != n.rank {
				n.targets = append(n.targets, n.sources[i])
			}
		}
	}
	n.combine(r)
	n.tick(w, finished)
	return n.await(w, finished, n.clocks[finished])
}

func roundUp(length int) int { return (length + line - 1) / line * line }

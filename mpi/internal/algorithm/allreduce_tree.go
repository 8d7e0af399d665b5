package algorithm

// allReduceStar is the parameter server: rank 0 gets every rank's buffer, combines them in canonical order, and sends
// the result back. All the traffic goes through one rank: it is here to be compared with.
func allReduceStar(p Port, buf []byte, r Reduction) error { return runStar(p, buf, r, 0, true) }

// costStar is 2(p-1) alpha + 2(p-1) n beta + (p-1) n gamma. With many segments, reduction and both ways overlap.
func costStar(m Machine, size, n int) float64 {
	first := float64(min(n, segmentBytes))
	return 2*m.posted(size-1) + float64(size-1)*(m.reduced(m.Beta, n)+first*m.Beta)
}

// allReduceDirect is a direct reduce-scatter and all-gather: every rank owns a part of the buffer, and all messages
// go straight to the owners and back. It is as good as the ring in bandwidth, for any size, and its
// order is the canonical one.
func allReduceDirect(p Port, buf []byte, r Reduction) error {
	return reduceScattered(p, buf, everyone, r)
}

// costDirect is 2(p-1) alpha + 2((p-1)/p) n beta + ((p-1)/p) n gamma, most of the latencies hidden behind
// each other and the reduction behind the transfer.
func costDirect(m Machine, size, n int) float64 {
	return m.returned(size-1, n/size)
}

// allReduceBinomial reduces along a binomial tree to rank 0, in canonical order, and broadcasts along the same tree.
func allReduceBinomial(p Port, buf []byte, r Reduction) error {
	if p.Size() == 1 {
		return nil
	}
	var room [maxLevels]child
	t := newTreeReduction(p, buf, r, canonicalNode(p.Rank(), 0, p.Size(), room[:]), r.segments(len(buf)), true)
	return runTrees(&t)
}

// costBinomial is 2L alpha + 2L n beta + L n gamma. With many segments both ways overlap, and rank
// 0's L children are what limits them.
func costBinomial(m Machine, size, n int) float64 {
	first := float64(min(n, segmentBytes))
	return float64(levels(size)) * (2*m.Alpha + float64(n)*max(m.Beta, m.Gamma) + first*(m.Beta+min(m.Beta, m.Gamma)))
}

// allReduceDoubleTree moves half of the buffer along one binary tree and half along another, up to their
// roots and down again. The trees are those of the double tree broadcast from rank 0 (Sanders, Speck and
// Traff 2009), where a rank with children in one is a leaf in the other. The order is not canonical.
func allReduceDoubleTree(p Port, buf []byte, r Reduction) error {
	me, size := p.Rank(), p.Size()
	if size == 1 {
		return nil
	}
	var rooms [2][maxLevels]child
	first := balancedNode(me, size, rooms[0][:])
	second := balancedNode(twin(me, size), size, rooms[1][:])
	if me > 0 {
		second.parent = untwin(second.parent, size)
	}
	for i := range second.children {
		rank := untwin(second.children[i].rank, size)
		second.children[i] = child{rank: rank, lower: rank < me}
	}
	steps := r.segments(r.widest(len(buf), 2))
	a := newTreeReduction(p, r.part(buf, 0, 2), r, first, steps, true)
	b := newTreeReduction(p, r.part(buf, 1, 2), r, second, steps, true)
	if len(second.children) == 0 && len(first.children) > 0 {
		return runTrees(&b, &a)
	}
	return runTrees(&a, &b)
}

// costDoubleTree is 2L alpha + 2 n beta for many segments: a rank gets both children's halves, and those of the
// results, and as much for the ways out. With few, each level waits for its segments.
func costDoubleTree(m Machine, size, n int) float64 {
	first := float64(min(n/2, segmentBytes))
	rest := float64(n/2) - first
	children := float64(min(2, size-1))
	up, down := children*(m.Beta+m.Gamma), children*m.Beta
	return float64(levels(size))*(2*m.Alpha+first*(up+down)) + rest*max(2*children*m.Beta, children*m.Gamma)
}

// treeReduction moves values up a tree, segment by segment, combining them on the way, and with
// back moves the result down again.
type treeReduction struct {
	Port
	r          Reduction
	buf        []byte
	parent     int
	children   int
	child      [maxLevels]child // no slice: it would move what newTreeReduction is given to the heap
	back       bool
	steps, lag int
	received   slots // one for each child and step
	sums       slots // where the sums are made that may not be made in buf; awaitParent frees it for the next step
	fromChild  []Handle
	toChild    []Handle
	toParent   []Handle
	fromParent []Handle
}

// newTreeReduction prepares for a tree, whose ranks must all agree on steps. With back, the result is in all
// ranks' bufs in the end; without, in the root's alone, and those of the others are not changed.
func newTreeReduction(p Port, buf []byte, r Reduction, at treeNode, steps int, back bool) treeReduction {
	lag, width, n := min(window, steps), r.widest(len(buf), steps), len(at.children)
	t := treeReduction{Port: p, r: r, buf: buf, parent: at.parent, children: n, back: back, steps: steps, lag: lag,
		received:  newSlots(p, width, lag*n),
		fromChild: p.Handles(lag * n), toChild: p.Handles(steps * n),
		toParent: p.Handles(steps), fromParent: p.Handles(steps)}
	copy(t.child[:], at.children)
	if !back && at.parent != none && n > 0 {
		t.sums = newSlots(p, width, 1)
	}
	return t
}

// runTrees reduces along one tree or several at once. Between two ranks that are neighbours in more
// than one, messages go in the order in which they are expected: what is expected in one step of the pipeline
// is sent lag steps later. (A root, which sends its results sooner, sends nothing else.) Trees in which
// this rank is a leaf come first: it need not wait to send there.
func runTrees(trees ...*treeReduction) error {
	all := func(phase int) func(int) error {
		return func(k int) error {
			for _, t := range trees {
				if err := t.do(phase, k); err != nil {
					return err
				}
			}
			return nil
		}
	}
	lag := trees[0].lag
	return pipeline(trees[0].steps, phase{0, all(0)}, phase{lag, all(1)}, phase{lag + 1, all(2)},
		phase{2*lag + 1, all(3)}, phase{3*lag + 1, all(4)})
}

// do does one phase of step k. (Calls by name, and not through a function value, keep the treeReduction off the heap.)
func (t *treeReduction) do(phase, k int) error {
	switch phase {
	case 0:
		t.postReceives(k)
		return nil
	case 1:
		return t.combineChildren(k)
	case 2:
		return t.awaitParent(k)
	case 3:
		return t.passDown(k)
	}
	return t.finish(k)
}

func (t *treeReduction) segment(k int) []byte { return t.r.part(t.buf, k, t.steps) }

// postReceives posts the receives from the children.
func (t *treeReduction) postReceives(k int) {
	for i, child := range t.child[:t.children] {
		at := k%t.lag*t.children + i
		t.fromChild[at] = t.Recv(child.rank, t.received.at(at, len(t.segment(k))))
	}
}

// combineChildren combines what the children send, and sends it to the parent. The root has the result then.
func (t *treeReduction) combineChildren(k int) error {
	value := t.segment(k)
	sum := value
	if t.sums.n > 0 {
		sum = t.sums.at(0, len(value))
	}
	for i, child := range t.child[:t.children] {
		at := k%t.lag*t.children + i
		if err := t.Wait(t.fromChild[at]); err != nil {
			return err
		}
		t.r.combine(sum, t.received.at(at, len(value)), value, child.lower)
		value = sum
	}
	if t.parent != none {
		t.toParent[k] = t.Send(t.parent, value)
	} else if t.back {
		t.sendDown(k)
	}
	return nil
}

// sendDown sends the result to the children.
func (t *treeReduction) sendDown(k int) {
	for i, child := range t.child[:t.children] {
		t.toChild[k*t.children+i] = t.Send(child.rank, t.segment(k))
	}
}

// awaitParent posts the receive from the parent, when the buffer for it is free.
func (t *treeReduction) awaitParent(k int) error {
	if t.parent == none {
		return nil
	}
	err := t.Wait(t.toParent[k])
	if err == nil && t.back {
		t.fromParent[k] = t.Recv(t.parent, t.segment(k))
	}
	return err
}

// passDown passes the result on from the parent to the children.
func (t *treeReduction) passDown(k int) error {
	if !t.back || t.children == 0 || t.parent == none {
		return nil
	}
	if err := t.Wait(t.fromParent[k]); err != nil {
		return err
	}
	t.sendDown(k)
	return nil
}

// finish waits until the children have been served, or a leaf has its result.
func (t *treeReduction) finish(k int) error {
	switch {
	case !t.back:
		return nil
	case t.children == 0:
		return t.Wait(t.fromParent[k])
	}
	return WaitAll(t.Port, t.toChild[k*t.children:(k+1)*t.children]...)
}

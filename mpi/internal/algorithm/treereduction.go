package algorithm

// treeReduction sends values up a tree, segment by segment, and combines them on the way. With returnResult it sends the result down again.
type treeReduction struct {
	Port
	r            Reduction
	buf          []byte
	parent       int
	children     int
	child        [maxLevels]child // not a slice, which would move the arguments of newTreeReduction to the heap
	returnResult bool
	steps, lag   int
	received     slots // one for each child and step
	sums         slots // for sums that must not be in buf; awaitParent frees it for the next step
	fromChild    []Handle
	toChild      []Handle
	toParent     []Handle
	fromParent   []Handle
}

// newTreeReduction prepares for a tree. steps must be the same on all ranks. With returnResult, the result is in the bufs of all ranks at
// the end. Without it, the result is only in that of the root, and the other bufs do not change.
func newTreeReduction(p Port, buf []byte, r Reduction, at treeNode, steps int, returnResult bool) treeReduction {
	lag, width, n := min(window, steps), r.widest(len(buf), steps), len(at.children)
	t := treeReduction{Port: p, r: r, buf: buf, parent: at.parent, children: n, returnResult: returnResult, steps: steps, lag: lag,
		received:  newSlots(p, width, lag*n),
		fromChild: p.Handles(lag * n), toChild: p.Handles(steps * n),
		toParent: p.Handles(steps), fromParent: p.Handles(steps)}
	copy(t.child[:], at.children)
	if !returnResult && at.parent != none && n > 0 {
		t.sums = newSlots(p, width, 1)
	}
	return t
}

// runTrees reduces along one tree, or along several at the same time. If two ranks are neighbors in more than one tree, messages between
// them go in the order in which they are expected: what is expected in one step of the pipeline is sent lag steps later. (A root sends its
// results sooner, but sends nothing else.) Trees in which this rank is a leaf come first, because it can send there without waiting.
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

// do performs one phase of step k. (Calls by name, and not through a function value, keep the treeReduction off the heap.)
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

// combineChildren combines the values from the children and sends the sum to the parent. After that, the root has the result.
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
	} else if t.returnResult {
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

// awaitParent waits until the parent has the sum, and posts the receive of the result in the buffer, which is free then.
func (t *treeReduction) awaitParent(k int) error {
	if t.parent == none {
		return nil
	}
	err := t.Wait(t.toParent[k])
	if err == nil && t.returnResult {
		t.fromParent[k] = t.Recv(t.parent, t.segment(k))
	}
	return err
}

// passDown passes the result on from the parent to the children.
func (t *treeReduction) passDown(k int) error {
	if !t.returnResult || t.children == 0 || t.parent == none {
		return nil
	}
	if err := t.Wait(t.fromParent[k]); err != nil {
		return err
	}
	t.sendDown(k)
	return nil
}

// finish waits until the children have the result or, on a leaf, until the rank has it.
func (t *treeReduction) finish(k int) error {
	switch {
	case !t.returnResult:
		return nil
	case t.children == 0:
		return t.Wait(t.fromParent[k])
	}
	return WaitAll(t.Port, t.toChild[k*t.children:(k+1)*t.children]...)
}

package shm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

// Random calls with every way for the data to go, against an oracle, in groups with all shapes of the tree.
func TestNode(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 5, 8} {
		t.Run(fmt.Sprintf("%d_ranks", size), func(t *testing.T) {
			members := group(t, size)
			if err := errors.Join(together(members, func(m *member) error { return m.verify(uint64(size), 60) })...); err != nil {
				t.Error(err)
			}
		})
	}
}

// The race detector knows addresses, so that it takes ranks that share one mapping to see that flags order the data.
func TestNodeInOneMapping(t *testing.T) {
	for _, size := range []int{2, 3} {
		var areas, regions []*Segment
		for range size {
			areas, regions = append(areas, create(t, AreaSize)), append(regions, create(t, regionSize))
		}
		members := make([]*member, size)
		failed := new(atomic.Bool)
		for rank := range members {
			node, err := NewNode(rank, areas)
			if err != nil {
				t.Fatal(err)
			}
			if err := node.Register(regions); err != nil {
				t.Fatal(err)
			}
			members[rank] = &member{rank: rank, size: size, node: node, w: newWaiter(failed), region: regions[rank]}
		}
		if err := errors.Join(together(members, func(m *member) error { return m.verify(77, 60) })...); err != nil {
			t.Error(err)
		}
	}
}

// Many ranks have pieces that end beyond the buffer: some of them are empty.
func TestNodeOfMany(t *testing.T) {
	for _, size := range []int{28, 48} {
		members := group(t, size)
		for _, length := range []int{inlineSize, inlineSize - 4, splitFrom + 4} {
			bufs := make([][]byte, size)
			errs := together(members, func(m *member) error {
				buf := make([]uint32, length/4)
				for i := range buf {
					buf[i] = uint32(i * (m.rank + 1))
				}
				bufs[m.rank] = bytesOf(buf)
				return m.node.AllReduce(m.w, Stamp{1}, bufs[m.rank], mixed)
			})
			inputs := make([][]uint32, size)
			for rank := range inputs {
				for i := range length / 4 {
					inputs[rank] = append(inputs[rank], uint32(i*(rank+1)))
				}
			}
			want := bytesOf(canonical(inputs))
			for rank, err := range errs {
				if err != nil || !bytes.Equal(bufs[rank], want) {
					t.Fatalf("%d ranks, %d bytes: rank %d got something else, %v", size, length, rank, err)
				}
			}
		}
	}
}

func TestProcesses(t *testing.T) {
	for _, size := range []int{2, 3} {
		startProcesses(t, size).run(t, order{Job: "verify", Rounds: 100})
	}
}

// Ranks in different calls all learn so, before data is touched, and a rank that is late hides nothing.
func TestStampsDiffer(t *testing.T) {
	members := group(t, 4)
	var out [4][]byte
	errs := together(members[:3], func(m *member) error { // rank 3 never comes
		out[m.rank] = []byte(strings.Repeat("x", 40000))
		stamp := Stamp{9}
		if m.rank == 2 {
			stamp = Stamp{8}
			return m.node.Broadcast(m.w, stamp, out[m.rank], 0)
		}
		return m.node.AllReduce(m.w, stamp, out[m.rank], mixed)
	})
	for rank, err := range errs {
		var diff *StampError
		want := StampError{Rank: 2, Stamp: Stamp{8}}
		if rank == 2 {
			want = StampError{Rank: 0, Stamp: Stamp{9}}
		}
		if !errors.As(err, &diff) && !errors.Is(err, errGroupFailed) || diff != nil && diff.Stamp != want.Stamp {
			t.Errorf("rank %d: %v, want %v", rank, err, want)
		}
		if strings.Trim(string(out[rank]), "x") != "" {
			t.Errorf("rank %d: the data was touched", rank)
		}
		if again := members[rank].node.Barrier(members[rank].w, Stamp{}); again != err {
			t.Errorf("rank %d: %v, and then %v", rank, err, again)
		}
	}
}

func TestNodeRefuses(t *testing.T) {
	short := create(t, AreaSize-1)
	if _, err := NewNode(0, []*Segment{short}); err == nil {
		t.Error("a short area")
	}
	area := create(t, AreaSize)
	for _, rank := range []int{-1, 1} {
		if _, err := NewNode(rank, []*Segment{area}); err == nil {
			t.Errorf("rank %d of 1", rank)
		}
	}
	for what, call := range map[string]func(n *Node, w Waiter) error{
		"a root below":       func(n *Node, w Waiter) error { return n.Reduce(w, Stamp{}, nil, -1, mixed) },
		"a root beyond":      func(n *Node, w Waiter) error { return n.Broadcast(w, Stamp{}, nil, 1) },
		"half an element":    func(n *Node, w Waiter) error { return n.AllReduce(w, Stamp{}, make([]byte, 6), mixed) },
		"odd elements":       func(n *Node, w Waiter) error { return n.AllReduce(w, Stamp{}, nil, &Reduction{Size: 24}) },
		"blocks of nobody":   func(n *Node, w Waiter) error { return n.AllGather(w, Stamp{}, nil, []int{0, 0, 0}) },
		"a block before":     func(n *Node, w Waiter) error { return n.AllGather(w, Stamp{}, make([]byte, 8), []int{-4, 8}) },
		"a block beyond":     func(n *Node, w Waiter) error { return n.AllGather(w, Stamp{}, make([]byte, 8), []int{0, 12}) },
		"blocks in disorder": func(n *Node, w Waiter) error { return n.AllGather(w, Stamp{}, make([]byte, 8), []int{8, 4}) },
		"a block of half": func(n *Node, w Waiter) error {
			return n.ReduceScatter(w, Stamp{}, make([]byte, 6), make([]byte, 8), []int{0, 6}, mixed)
		},
		"a result of another": func(n *Node, w Waiter) error {
			return n.ReduceScatter(w, Stamp{}, nil, make([]byte, 8), []int{0, 8}, mixed)
		},
		"more out than in": func(n *Node, w Waiter) error { return n.AllToAll(w, Stamp{}, make([]byte, 8), make([]byte, 4)) },
	} {
		n, err := NewNode(0, []*Segment{area})
		if err != nil {
			t.Fatal(err)
		}
		if err := call(n, newWaiter(new(atomic.Bool))); err == nil {
			t.Errorf("%s is let through", what)
		}
		if err := n.Register([]*Segment{area, area}); err == nil {
			t.Error("segments of two ranks in a group of one")
		}
	}
}

func TestNoAllocation(t *testing.T) { // without the race detector
	members := group(t, 2)
	const runs = 20
	bufs, outs := [2][2][]byte{}, [2][]byte{}
	for rank, m := range members {
		bufs[rank] = [2][]byte{make([]byte, 1<<20), m.region.Bytes()[:1<<20]}
		outs[rank] = make([]byte, 1<<19)
	}
	at := []int{0, 1 << 19, 1 << 20}
	step := func(m *member) error {
		var errs [16]error
		for i, buf := range bufs[m.rank] {
			errs[8*i] = m.node.AllReduce(m.w, Stamp{}, buf, mixed)
			errs[8*i+1] = m.node.AllReduce(m.w, Stamp{}, buf[:512], mixed)
			errs[8*i+2] = m.node.Reduce(m.w, Stamp{}, buf, 1, mixed)
			errs[8*i+3] = m.node.Broadcast(m.w, Stamp{}, buf, 1)
			errs[8*i+4] = m.node.AllGather(m.w, Stamp{}, buf, at)
			errs[8*i+5] = m.node.ReduceScatter(m.w, Stamp{}, outs[m.rank], buf, at, mixed)
			errs[8*i+6] = m.node.AllToAll(m.w, Stamp{}, bufs[m.rank][1-i], buf)
			errs[8*i+7] = m.node.Barrier(m.w, Stamp{})
		}
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	}
	errs := together(members, func(m *member) error {
		var err error
		repeat := func() { err = errors.Join(err, step(m)) }
		if m.rank == 0 {
			if allocs := testing.AllocsPerRun(runs, repeat); allocs != 0 {
				t.Errorf("%v allocations", allocs)
			}
			return err
		}
		for range runs + 1 { // AllocsPerRun runs once more, to warm up
			repeat()
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

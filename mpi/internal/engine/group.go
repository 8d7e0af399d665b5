package engine

import (
	"fmt"
	"sync/atomic"

	"ddpbatch/mpi/internal/tick"
)

// Any stands for every rank, as the source of a message.
const Any = -1

// Group is this rank's membership in a group of ranks, and what that group is doing.
type Group struct {
	e       *Engine
	id      uint64
	rank    int
	members []int       // world ranks, by rank in the group
	ranks   map[int]int // the reverse; nil where they are the same

	// Guarded by e.mu.
	call    Call // the current collective, or the last one
	past    [pastCalls]Call
	began   tick.Count
	left    []error   // by rank: that it has closed its group; nil while none has
	told    []*status // by rank: the answers to what ask has asked; nil before
	err     error     // the first failure
	lenient bool      // the end of a peer is an error of what needs that peer alone

	failed atomic.Bool  // err is set
	ended  atomic.Int64 // when call ended, as a tick.Count; 0: it runs
}

// Group makes this rank a member of a group. All members name the same id, which no
// other group has or had, and the same members, by their world ranks in the order of their ranks.
func (e *Engine) Group(id uint64, members []int) (*Group, error) {
	g, err := e.newGroup(id, members)
	if err != nil {
		return nil, err
	}
	return g, g.enter()
}

func (e *Engine) newGroup(id uint64, members []int) (*Group, error) {
	g := &Group{e: e, id: id, rank: -1, members: members, began: tick.Now(), call: Call{Group: id}}
	same := true
	for rank, world := range members {
		if world < 0 || world >= e.Size() {
			return nil, fmt.Errorf("there is no rank %d in a world of %d", world, e.Size())
		}
		if world == e.Rank() {
			g.rank = rank
		}
		same = same && rank == world
	}
	if g.rank < 0 {
		return nil, fmt.Errorf("rank %d is not of the group", e.Rank())
	}
	if !same {
		g.ranks = make(map[int]int, len(members))
		for rank, world := range members {
			g.ranks[world] = rank
		}
	}
	return g, nil
}

// Remains makes a group like Group, to whose members may belong ranks that have ended, or end: sends to them and receives from
// them fail, and the group does not.
func (e *Engine) Remains(id uint64, members []int) (*Group, error) {
	g, err := e.newGroup(id, members)
	if err != nil {
		return nil, err
	}
	g.lenient = true
	return g, g.enter()
}

// enter makes the group known to the engine.
func (g *Group) enter() error {
	e, id, members := g.e, g.id, g.members
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	e.groups[id] = g
	if n := e.news[id]; n != nil {
		delete(e.news, id)
		for rank, world := range members {
			if told := n.failed[world]; told != nil && max(told.By, told.Rank) < len(members) {
				e.failGroup(g, told)
			}
			if err := n.left[world]; err != nil {
				e.leave(g, rank, err)
			}
		}
	}
	for rank, world := range members {
		if p := e.peers[world]; p != nil && p.err != nil && world != e.Rank() && !g.lenient {
			e.failGroup(g, &PeerError{Rank: rank, Err: p.err})
		}
	}
	return nil
}

// Rank is this process's place in the group, from 0.
func (g *Group) Rank() int { return g.rank }

// Size is the number of the group's ranks.
func (g *Group) Size() int { return len(g.members) }

// World is the world rank of a rank of the group.
func (g *Group) World(rank int) int { return g.members[rank] }

// rankOf is the reverse of World.
func (g *Group) rankOf(world int) (int, bool) {
	if g.ranks != nil {
		rank, ok := g.ranks[world]
		return rank, ok
	}
	return world, world < len(g.members)
}

// Err is the group's first failure.
func (g *Group) Err() error {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	return g.err
}

// Fail ends all that the group does with err, here and, with its text as it is, on its other ranks, and returns the group's first
// failure.
func (g *Group) Fail(err error) error {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	g.e.failWith(g, err, err.Error())
	return g.err
}

// ID is what all members call the group.
func (g *Group) ID() uint64 { return g.id }

// HasLeft tells whether a rank has closed the group, in peace.
func (g *Group) HasLeft(rank int) bool {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	return g.hasLeft(rank)
}

// hasLeft tells whether a rank has closed the group, or its engine.
func (g *Group) hasLeft(rank int) bool {
	p := g.e.peers[g.members[rank]]
	return g.left != nil && g.left[rank] != nil || p != nil && p.err != nil
}

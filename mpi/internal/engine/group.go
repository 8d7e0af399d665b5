package engine

import (
	"context"
	"fmt"
	"sync/atomic"

	"ddpbatch/mpi/internal/tick"
)

// Any stands for every rank, as the source of a message.
const Any = -1

// pastCalls is how many calls a group remembers, to set them against the frames of a rank
// that lags behind.
const pastCalls = 16

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
		if n.failed != nil {
			e.failGroup(g, n.failed)
		}
		for world, err := range n.left {
			if rank, member := g.rankOf(world); member {
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

// Begin starts a collective, now. Its Seq must be one more than the last one's.
func (g *Group) Begin(call *Call, now tick.Count) error {
	g.e.mu.Lock()
	err := g.begin(call, now)
	g.e.mu.Unlock()
	return err
}

// BeginAndNotify is Begin, and Notify, at the cost of one. That the group has failed is told by the next Await.
func (g *Group) BeginAndNotify(call *Call, now tick.Count) {
	g.e.mu.Lock()
	_ = g.begin(call, now) // an Await finds it
	if !g.e.ended {
		g.nudge()
	}
	g.e.mu.Unlock()
}

func (g *Group) begin(call *Call, now tick.Count) error {
	if g.err != nil {
		return g.err
	}
	g.call, g.past[call.Seq%pastCalls] = *call, *call
	g.began = now
	g.ended.Store(0)
	if g.e.held > 0 {
		g.e.checkEarly(g)
	}
	return g.err
}

// checkEarly fails the group if a frame of another call than the one that begins has come already. mu is held.
func (e *Engine) checkEarly(g *Group) {
	for rank, world := range g.members {
		p := e.peers[world]
		if p == nil {
			continue
		}
		for m := p.early; m != nil; m = m.next {
			h := &m.head
			if h.kind == kindCollective && h.call.Group == g.id && h.call.Seq <= g.call.Seq && h.call != g.call {
				e.failGroup(g, g.mismatch(rank, h.call))
				return
			}
		}
	}
}

// End ends the collective, now.
func (g *Group) End(now tick.Count) { g.ended.Store(int64(now)) }

// running tells whether the call has not ended. mu is held.
func (g *Group) running() bool { return g.call.Seq > 0 && g.ended.Load() == 0 }

// since is when the call began, or ended. mu is held.
func (g *Group) since() tick.Count {
	if ended := g.ended.Load(); ended != 0 {
		return tick.Count(ended)
	}
	return g.began
}

// mismatch words a frame that is not of this rank's call. A frame of an earlier call is set
// against what this rank called then.
func (g *Group) mismatch(from int, there Call) error {
	here := g.call
	if past := g.past[there.Seq%pastCalls]; past.Seq == there.Seq && past != there {
		here = past
	}
	return Mismatch(g.rank, from, here, there, g.e.options.Describe, g.e.options.DescribeFully)
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

// Wait returns when the op is done. Where ctx ends first, or the rank waited for makes no progress for
// the time-out, the group fails.
func (g *Group) Wait(ctx context.Context, op *Op) error {
	if !op.Done() {
		g.e.wait(ctx, g, op, nil)
	}
	return op.err
}

// Await returns when ready tells so; others change what it looks at, and then call Notify.
func (g *Group) Await(ctx context.Context, ready func() bool) error {
	if ready() {
		return nil
	}
	return g.e.wait(ctx, g, nil, ready)
}

// Watch is Await for who can do without: the end of ctx, which must have one, is an error that does not break the group, and there
// is no other time-out.
func (g *Group) Watch(ctx context.Context, ready func() bool) error {
	if ready() {
		return nil
	}
	return g.e.sleep(ctx, g, nil, ready, false)
}

// Notify wakes the group's ranks that sleep in an Await, so that they look again.
func (g *Group) Notify() {
	g.e.nudging.RLock()
	defer g.e.nudging.RUnlock()
	if !g.e.ended {
		g.nudge()
	}
}

func (g *Group) nudge() {
	for rank, world := range g.members {
		if rank != g.rank {
			g.e.fabric.Nudge(world)
		}
	}
}

// ID is what all members call the group.
func (g *Group) ID() uint64 { return g.id }

// Poll drives the links once, without waiting.
func (g *Group) Poll(op *Op) {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	g.e.poll(op)
}

// HasLeft tells whether a rank has closed the group, in peace.
func (g *Group) HasLeft(rank int) bool {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	return g.hasLeft(rank)
}

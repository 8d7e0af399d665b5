package engine

import (
	"slices"
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
	call     Call // the current collective, or the last one
	past     [pastCalls]Call
	began    tick.Count
	left     []error        // by rank: that it has closed its group; nil while none has
	statuses []*groupStatus // by rank: the answers to what ask has asked; nil before
	err      error          // the first failure
	lenient  bool           // the end of a peer is an error of what needs that peer alone

	failed atomic.Bool  // err is set
	ended  atomic.Int64 // when call ended, as a tick.Count; 0: it runs
}

// Group makes this rank a member of a group. All members name the same id, which no
// other group has or had, and the same members, this rank among them, by their world ranks in the order of their ranks.
func (e *Engine) Group(id uint64, members []int) (*Group, error) { return e.join(id, members, false) }

// LenientGroup makes a group like Group, to whose members may belong ranks that have ended, or end: sends to them and receives from
// them fail, and the group does not.
func (e *Engine) LenientGroup(id uint64, members []int) (*Group, error) {
	return e.join(id, members, true)
}

func (e *Engine) join(id uint64, members []int, lenient bool) (*Group, error) {
	g := &Group{
		e: e, id: id, rank: slices.Index(members, e.Rank()), members: members, began: tick.Now(), call: Call{Group: id}, lenient: lenient,
	}
	ranks, same := make(map[int]int, len(members)), true
	for rank, world := range members {
		ranks[world] = rank
		same = same && rank == world
	}
	if !same {
		g.ranks = ranks
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	e.groups[id] = g
	if n := e.news[id]; n != nil {
		delete(e.news, id)
		for rank, world := range members {
			if abort := n.failed[world]; abort != nil && max(abort.By, abort.Rank) < len(members) {
				e.failGroup(g, abort)
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
	return g, nil
}

// Rank is this process's place in the group, from 0.
func (g *Group) Rank() int { return g.rank }

// Size is the number of the group's ranks.
func (g *Group) Size() int { return len(g.members) }

// rankOf is the rank in the group of a rank of the world.
func (g *Group) rankOf(world int) (int, bool) {
	if g.ranks != nil {
		rank, ok := g.ranks[world]
		return rank, ok
	}
	return world, world < len(g.members)
}

// ID is what all members call the group.
func (g *Group) ID() uint64 { return g.id }

// Err is the group's first failure.
func (g *Group) Err() error {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	return g.err
}

// Fail ends all that the group does with err, here and, with its text as it is, on its other ranks, unless it has failed before.
func (g *Group) Fail(err error) {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	g.e.failWith(g, err, err.Error())
}

// HasLeft reports whether a rank has closed the group, in peace.
func (g *Group) HasLeft(rank int) bool {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	return g.hasLeft(rank)
}

// hasLeft reports whether a rank has closed the group, or its engine.
func (g *Group) hasLeft(rank int) bool {
	p := g.e.peers[g.members[rank]]
	return g.left != nil && g.left[rank] != nil || p != nil && p.err != nil
}

// Call is what all ranks of a group must agree on: the fingerprint of one
// collective, or the label of a message. Only Group and Seq mean something to the engine;
// the rest it compares.
type Call struct {
	Group      uint64
	Seq        uint64 // of a collective: from 1, in the order of calls; of a message: its tag
	Count      uint64 // elements
	Root       int32
	Collective uint8
	Element    uint8
	Op         uint8
	Algorithm  uint8
}

// pastCalls is how many calls a group remembers, to set them against the frames of a rank
// that lags behind.
const pastCalls = 16

// Begin starts a collective, now. Its Seq must be one more than the last one's.
func (g *Group) Begin(call *Call, now tick.Count) error {
	g.e.mu.Lock()
	err := g.begin(call, now)
	g.e.mu.Unlock()
	return err
}

// BeginAndNotify is Begin, and Notify, at the cost of one.
func (g *Group) BeginAndNotify(call *Call, now tick.Count) error {
	g.e.mu.Lock()
	err := g.begin(call, now)
	if !g.e.ended {
		g.nudge()
	}
	g.e.mu.Unlock()
	return err
}

func (g *Group) begin(call *Call, now tick.Count) error {
	if g.err != nil {
		return g.err
	}
	g.call, g.past[call.Seq%pastCalls] = *call, *call
	g.began = now
	g.ended.Store(0)
	if g.e.earlyBytes > 0 {
		g.e.checkEarly(g)
	}
	return g.err
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

// End ends the collective, now.
func (g *Group) End(now tick.Count) { g.ended.Store(int64(now)) }

// Resume takes the last End back: there is more of that call to be waited for.
func (g *Group) Resume() { g.ended.Store(0) }

// running reports whether the call has not ended. mu is held.
func (g *Group) running() bool { return g.call.Seq > 0 && g.ended.Load() == 0 }

// since is when the call began, or ended. mu is held.
func (g *Group) since() tick.Count {
	if ended := g.ended.Load(); ended != 0 {
		return tick.Count(ended)
	}
	return g.began
}

// Close leaves the group. The other members may go on with what does not need this one.
func (g *Group) Close() {
	e := g.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.groups[g.id] != g {
		return
	}
	if g.err == nil {
		last := g.call
		if g.running() {
			last.Seq-- // it does not finish this one
		}
		for rank, world := range g.members {
			if world != e.Rank() && e.linked(world) && (g.left == nil || g.left[rank] == nil) {
				e.sendControlOn(e.goodbyeLane(e.peer(world)), header{kind: kindLeave, call: last}, nil)
			}
		}
		e.failGroup(g, ErrClosed)
	}
	e.forget(g.id)
}

// Retire ends a group that all members end after the same call: nobody needs to be told.
func (g *Group) Retire() {
	e := g.e
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failGroup(g, ErrClosed)
	e.forget(g.id)
}

// maxGone is how many groups that are no more an engine remembers.
const maxGone = 1 << 16

// forget forgets a group, but for its number: late frames of it are nobody's. mu is held.
func (e *Engine) forget(id uint64) {
	delete(e.groups, id)
	if len(e.closedInOrder) == maxGone {
		delete(e.closedGroups, e.closedInOrder[0])
		e.closedInOrder = e.closedInOrder[1:]
	}
	e.closedGroups[id] = struct{}{}
	e.closedInOrder = append(e.closedInOrder, id)
}

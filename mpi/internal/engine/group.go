package engine

import (
	"slices"
	"sync/atomic"

	"ddpbatch/mpi/internal/tick"
)

// Any is a source for receives: any rank.
const Any = -1

// Group is this rank's membership in a group of ranks, with the state of the group's current call.
type Group struct {
	e       *Engine
	id      uint64
	rank    int
	members []int       // world ranks, by rank in the group
	ranks   map[int]int // the inverse of members; nil if both are equal

	// Guarded by e.mu.
	call     Call // the current collective, or the last one
	past     [pastCalls]Call
	began    tick.Count
	left     []error        // by rank: the error of having closed its group; nil while no rank has
	statuses []*groupStatus // by rank: the answers to the queries of ask; nil before
	err      error          // the first failure
	lenient  bool           // the end of a peer only fails operations that need the peer

	failed atomic.Bool  // err is set
	ended  atomic.Int64 // when call ended, as a tick.Count; 0 while it runs
}

// Group makes this rank a member of a group. All members pass the same id, which no other group has or has had. They pass the same members,
// the world ranks of the group, in the order of their ranks in it. This rank must be among them.
func (e *Engine) Group(id uint64, members []int) (*Group, error) { return e.join(id, members, false) }

// LenientGroup makes a group whose members may have ended, or may end. Sends to such a member and receives from it fail, but the group does
// not. Otherwise it is like Group.
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

// Rank returns this process's rank in the group, from 0.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of the group's ranks.
func (g *Group) Size() int { return len(g.members) }

// rankOf returns the rank in the group of a world rank, and reports whether it has one.
func (g *Group) rankOf(world int) (int, bool) {
	if g.ranks != nil {
		rank, ok := g.ranks[world]
		return rank, ok
	}
	return world, world < len(g.members)
}

// ID returns the group's id, which is the same on all members.
func (g *Group) ID() uint64 { return g.id }

// Err returns the group's first failure, or nil.
func (g *Group) Err() error {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	return g.err
}

// Fail ends everything that the group does with err, unless the group has failed before. It also sends err's text to the other ranks, whose
// groups fail, too.
func (g *Group) Fail(err error) {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	g.e.failWith(g, err, err.Error())
}

// HasLeft reports whether a rank has closed the group or its engine, or has ended.
func (g *Group) HasLeft(rank int) bool {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	return g.hasLeft(rank)
}

// hasLeft is HasLeft. mu is held.
func (g *Group) hasLeft(rank int) bool {
	p := g.e.peers[g.members[rank]]
	return g.left != nil && g.left[rank] != nil || p != nil && p.err != nil
}

// Call must be the same on all ranks of a group: it is the fingerprint of one collective, or the label of a message. The engine uses only
// Group and Seq; it compares the rest.
type Call struct {
	Group      uint64
	Seq        uint64 // collective: its number, from 1, in the order of calls; message: its tag
	Count      uint64 // elements
	Root       int32
	Collective uint8
	Element    uint8
	Op         uint8
	Algorithm  uint8
}

// pastCalls is the number of calls that a group remembers, to compare them with the frames of a rank that is behind.
const pastCalls = 16

// Begin starts a collective. now is the current time. call.Seq must be one more than that of the last collective.
func (g *Group) Begin(call *Call, now tick.Count) error {
	g.e.mu.Lock()
	err := g.begin(call, now)
	g.e.mu.Unlock()
	return err
}

// BeginAndNotify is Begin and Notify, at the cost of one of them.
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

// mismatch returns the error for a frame with another call than this rank's. A frame of an earlier call is compared with this rank's call
// of that number.
func (g *Group) mismatch(from int, there Call) error {
	here := g.call
	if past := g.past[there.Seq%pastCalls]; past.Seq == there.Seq && past != there {
		here = past
	}
	return Mismatch(g.rank, from, here, there, g.e.options.Describe, g.e.options.DescribeFully)
}

// End ends the collective. now is the current time.
func (g *Group) End(now tick.Count) { g.ended.Store(int64(now)) }

// Resume undoes the last End, to wait for more of that call.
func (g *Group) Resume() { g.ended.Store(0) }

// running reports whether the call has not ended. mu is held.
func (g *Group) running() bool { return g.call.Seq > 0 && g.ended.Load() == 0 }

// since returns when the call began or ended. mu is held.
func (g *Group) since() tick.Count {
	if ended := g.ended.Load(); ended != 0 {
		return tick.Count(ended)
	}
	return g.began
}

// Close leaves the group. The other members may go on with operations that do not need this rank.
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
			last.Seq-- // this rank does not finish it
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

// Retire ends a group that all members end after the same call, so no rank needs to be notified.
func (g *Group) Retire() {
	e := g.e
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failGroup(g, ErrClosed)
	e.forget(g.id)
}

// maxGone is the number of closed groups that an engine remembers.
const maxGone = 1 << 16

// forget removes a group. The engine remembers its id, to drop late frames. mu is held.
func (e *Engine) forget(id uint64) {
	delete(e.groups, id)
	if len(e.closedInOrder) == maxGone {
		delete(e.closedGroups, e.closedInOrder[0])
		e.closedInOrder = e.closedInOrder[1:]
	}
	e.closedGroups[id] = struct{}{}
	e.closedInOrder = append(e.closedInOrder, id)
}

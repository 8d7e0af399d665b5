package engine

import (
	"fmt"
	"time"
)

// defaultAnswerTimeout is the default of Engine.answerTimeout. A rank that does not answer a query in that time counts as unresponsive.
const defaultAnswerTimeout = time.Second

// timeout returns the error of a wait that has timed out. It asks the other ranks what they do.
func (g *Group) timeout(op *Op) error {
	e := g.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if g.err != nil {
		return g.err // the links may be closed
	}
	if err := g.departureUnknown(); op == nil && err != nil {
		return err
	}
	g.ask()
	if g.err != nil {
		return g.err
	}
	rank, text := g.culprit(op)
	return &PeerError{Rank: rank, Err: fmt.Errorf("%w for %v: %s", ErrTimeout, e.options.Timeout, text)}
}

// ask sends a query to all other ranks and waits for their answers. mu is held, but not while it waits.
func (g *Group) ask() {
	e := g.e
	g.statuses = make([]*groupStatus, len(g.members))
	for _, world := range g.members {
		if world != e.Rank() {
			e.sendControl(e.peer(world), header{kind: kindQuery, call: Call{Group: g.id}}, nil)
		}
	}
	expired := false
	timer := time.AfterFunc(e.answerTimeout, func() {
		e.mu.Lock()
		expired = true
		e.answered.Broadcast()
		e.mu.Unlock()
	})
	defer timer.Stop()
	for g.err == nil && !expired && !g.allAnswered() {
		e.answered.Wait()
	}
}

func (g *Group) allAnswered() bool {
	for rank, status := range g.statuses {
		if rank != g.rank && status == nil && !g.isLeaving(rank) {
			return false
		}
	}
	return true
}

// isLeaving reports whether a rank does not answer queries any more, because it has left the group or sent a bye.
func (g *Group) isLeaving(rank int) bool {
	p := g.e.peers[g.members[rank]]
	return g.hasLeft(rank) || p != nil && p.control.readEnded
}

// culprit picks the rank that is furthest behind, and returns it with a description of what it does. The rank that op waits for is often
// itself kept waiting by another one.
func (g *Group) culprit(op *Op) (int, string) {
	own := groupStatus{running: g.running(), call: g.call}
	worst, least := -1, own.progress()
	for rank, status := range g.statuses {
		if rank == g.rank || g.isLeaving(rank) {
			continue // ranks that wait for a rank that has left get an error about that
		}
		if status == nil {
			return rank, "it does not answer: it is stopped, or its machine or the network has failed"
		}
		if done := status.progress(); g.running() && done < least {
			worst, least = rank, done
		}
	}
	if worst < 0 && op != nil && op.peer != Any {
		worst, _ = g.rankOf(int(op.peer))
		worst = g.follow(worst)
	}
	if worst < 0 {
		return g.rank, "all ranks are in the same call, and none of them makes progress"
	}
	if g.statuses[worst] == nil {
		return worst, "it has left the group"
	}
	return worst, g.describe(g.statuses[worst])
}

// follow goes from a rank that this one waits for to the rank for which that one waits, and so on. If ranks wait for each other, any of
// them will do.
func (g *Group) follow(rank int) int {
	for range g.statuses {
		status := g.statuses[rank]
		if status == nil || status.waits == Any || status.waits == g.rank {
			break
		}
		rank = status.waits
	}
	return rank
}

// describe returns a description of what a rank did last, compared with what this rank does.
func (g *Group) describe(s *groupStatus) string {
	call := g.e.options.Describe
	waits, who := "", ""
	if s.waits != Any {
		waits = fmt.Sprintf(", and waits for rank %d", s.waits)
	}
	if s.label != "" {
		who = " (" + s.label + ")"
	}
	ago := s.ago.Round(time.Millisecond)
	switch {
	case s.gone:
		return "it has left the group" + who
	case !s.known:
		return "it has not joined the group" + who
	case s.call.Seq == 0:
		return "it has not made a call yet" + waits + who
	case s.call.Seq >= g.call.Seq && s.running && waits == "":
		return fmt.Sprintf("it has been in %s for %v, and waits or hangs%s", call(s.call), ago, who)
	case s.call.Seq >= g.call.Seq && s.running:
		return fmt.Sprintf("it has been in %s for %v%s%s", call(s.call), ago, waits, who)
	case s.running:
		return fmt.Sprintf("it is still in %s, for %v now%s%s", call(s.call), ago, waits, who)
	case g.running() && s.call.Seq < g.call.Seq:
		return fmt.Sprintf("it has not entered %s; it finished %s %v ago%s%s", call(g.call), call(s.call), ago, waits, who)
	}
	return fmt.Sprintf("it finished %s %v ago%s%s", call(s.call), ago, waits, who)
}

// statusOf returns this rank's status in a group. mu is held.
func (e *Engine) statusOf(group uint64) *groupStatus {
	g := e.groups[group]
	if g == nil {
		_, gone := e.closedGroups[group]
		return &groupStatus{gone: gone, waits: Any, label: e.options.Label}
	}
	s := &groupStatus{known: true, running: g.running(), call: g.call, ago: e.clock.Since(g.since()), waits: Any, label: e.options.Label}
	for _, w := range e.sleepers {
		if w.group == g && w.op != nil && w.op.peer != Any {
			s.waits, _ = g.rankOf(int(w.op.peer))
		}
	}
	return s
}

// progress returns a number that grows as a rank gets on: a rank is in a call before it finishes it.
func (s *groupStatus) progress() uint64 {
	if s.running {
		return 2 * s.call.Seq
	}
	return 2*s.call.Seq + 1
}

package engine

import (
	"fmt"
	"time"
)

// defaultAnswerTimeout is Engine.answerTimeout: a rank that says nothing for as long does not answer.
const defaultAnswerTimeout = time.Second

// timeout words why nothing has come for the time-out: it asks the others what they do.
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

// ask asks all others and waits for their answers. mu is held, and let go of while it waits.
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

// isLeaving tells whether a rank answers no questions any more, as it has left or said goodbye.
func (g *Group) isLeaving(rank int) bool {
	p := g.e.peers[g.members[rank]]
	return g.hasLeft(rank) || p != nil && p.control.readEnded
}

// culprit picks the rank that is furthest behind, and says what it does. The one that op waits for is
// often kept waiting itself.
func (g *Group) culprit(op *Op) (int, string) {
	own := groupStatus{running: g.running(), call: g.call}
	worst, least := -1, own.progress()
	for rank, status := range g.statuses {
		if rank == g.rank || g.isLeaving(rank) {
			continue // who waits for one that has left says so
		}
		if status == nil {
			return rank, "it does not answer: it is stopped, or its machine or the network is gone"
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
		return g.rank, "all ranks are in the same call, and none of them moves"
	}
	if g.statuses[worst] == nil {
		return worst, "it has left the group"
	}
	return worst, g.describe(g.statuses[worst])
}

// follow goes from a rank that is waited for to the one that it waits for itself, and so on, as far as that leads. Ranks that wait for one
// another are all as good.
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

// describe says what a rank last did, set against what this one does.
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
		return "it has called nothing yet" + waits + who
	case s.call.Seq >= g.call.Seq && s.running && waits == "":
		return fmt.Sprintf("it has been in %s for %v, and waits itself or hangs%s", call(s.call), ago, who)
	case s.call.Seq >= g.call.Seq && s.running:
		return fmt.Sprintf("it has been in %s for %v%s%s", call(s.call), ago, waits, who)
	case s.running:
		return fmt.Sprintf("it is still in %s, since %v%s%s", call(s.call), ago, waits, who)
	case g.running() && s.call.Seq < g.call.Seq:
		return fmt.Sprintf("it has not entered %s; it finished %s %v ago%s%s", call(g.call), call(s.call), ago, waits, who)
	}
	return fmt.Sprintf("it finished %s %v ago%s%s", call(s.call), ago, waits, who)
}

// statusOf of this rank. mu is held.
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

// progress orders ranks by how far they have come: a rank is in a call before it has finished it.
func (s *groupStatus) progress() uint64 {
	if s.running {
		return 2 * s.call.Seq
	}
	return 2*s.call.Seq + 1
}

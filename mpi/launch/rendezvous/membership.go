package rendezvous

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// membership is agent 0's list of the other agents: which are connected, and which number each has. An agent keeps its number for
// as long as its connection lives. Then another agent may get it.
type membership struct {
	mine       joinRequest   // agent 0's own request
	oneMachine bool          // the nodes are simulated on this machine
	changed    chan struct{} // receives when an agent got a number, was lost, or rejects

	mu         sync.Mutex
	connected  map[string]*Participant // by nonce
	numbered   []*Participant          // by number
	waiting    []*Participant          // agents that came when no number was free, in order
	begun      bool                    // the first round has begun
	closedWith *assignment             // the answer to agents outside a round once no other round will follow
	lost       *Participant            // the first agent that had a number and was lost before the first round
	rejecting  []joinRequest           // of agents that cannot take part, in order; agent 0 comes first
	agent0Addr string                  // the address of this machine that another agent used
}

func newMembership(mine joinRequest) *membership {
	m := &membership{mine: mine, changed: make(chan struct{}, 1), connected: make(map[string]*Participant),
		numbered: make([]*Participant, mine.Count)}
	if mine.Rejects != nil {
		m.rejecting = []joinRequest{mine}
	}
	return m
}

// agentName returns the name of an agent's connection.
func agentName(nonce string) string { return "agent/" + nonce }

// connect records a connection, and returns nil if it is not an agent's. local is the address of this machine that it reached.
func (m *membership) connect(name string, local net.Addr) *Participant {
	nonce, ok := strings.CutPrefix(name, "agent/")
	if !ok || !isNonce(nonce) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.connected[nonce] != nil {
		return nil // only one agent can know the nonce
	}
	// An agent on this machine may come by a loopback address, if /etc/hosts gives the master's name one. That address is of no use
	// to the other agents.
	if m.agent0Addr == "" || isLoopback(m.agent0Addr) {
		m.agent0Addr = hostOnly(local)
	}
	p := newParticipant(nonce, hostOnly(local))
	m.connected[nonce] = p
	return p
}

// disconnect records that a connection has ended.
func (m *membership) disconnect(name string) {
	nonce, _ := strings.CutPrefix(name, "agent/")
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.connected[nonce]; p != nil {
		m.lose(p, connectionEnded)
		delete(m.connected, nonce)
		close(p.ended)
	}
}

// drop counts an agent as lost although its connection may live on. It returns false if the agent was lost before.
func (m *membership) drop(p *Participant, why string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lose(p, why)
}

// lose marks a participant as lost, and gives its number to the agent that has waited longest. mu is held.
func (m *membership) lose(p *Participant, why string) bool {
	if p.isGone() {
		return false
	}
	p.lostAt, p.why = time.Now(), why
	close(p.gone)
	m.waiting = slices.DeleteFunc(m.waiting, func(w *Participant) bool { return w == p })
	if p.Index != 0 {
		m.numbered[p.Index] = nil
		if !m.begun {
			m.lost = cmp.Or(m.lost, p)
		}
		if len(m.waiting) > 0 {
			m.give(m.waiting[0], p.Index)
			m.waiting = slices.Delete(m.waiting, 0, 1)
		}
	}
	m.notify()
	return true
}

// join gives a participant that has described itself a number. The answer is nil if it has to wait for a round, or is lost.
func (m *membership) join(p *Participant, j joinRequest) *assignment {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.isGone() {
		return nil
	}
	p.join, p.Host = j, j.Host
	if m.closedWith != nil {
		return m.closedWith
	}
	if j.Rejects != nil {
		m.rejecting = append(m.without(j), j)
		m.notify()
		return &assignment{Rejected: j.Rejects}
	}
	if err := m.admit(p, j); err != nil {
		return &assignment{Rejected: RejectionOf(err)}
	}
	m.notify()
	return nil
}

func (m *membership) admit(p *Participant, j joinRequest) error {
	if m.begun || j.Index >= len(m.numbered) { // otherwise the layout fails for all agents, and says why
		if err := m.mine.compatible(j); err != nil {
			return err
		}
	}
	if isLoopback(p.local) && !m.oneMachine && !sameHost(j.Host, m.mine.Host) {
		return fmt.Errorf("the agent on %s reached the one on %s at %s, where other nodes can reach neither of them; "+
			"use an address of agent 0 that all nodes can reach",
			j.Host, m.mine.Host, p.local)
	}
	index := j.Index
	if index < 0 {
		index = m.free()
	}
	switch {
	case index < 0:
		m.waiting = append(m.waiting, p)
		return nil
	case index == 0 || index >= len(m.numbered):
		return fmt.Errorf("two agents have the number %d: on %s and on %s; give each agent its own",
			index, m.mine.Host, j.Host)
	case m.numbered[index] != nil:
		return fmt.Errorf("two agents have the number %d: on %s and on %s; give each agent its own", index,
			m.numbered[index].Host, j.Host)
	}
	m.give(p, index)
	return nil
}

// nodeOf is the node of a participant, as it said; "": not known yet.
func (m *membership) nodeOf(p *Participant) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return p.Host
}

// free is the lowest number that is free, or -1 if none is.
func (m *membership) free() int {
	for index := 1; index < len(m.numbered); index++ {
		if m.numbered[index] == nil {
			return index
		}
	}
	return -1
}

func (m *membership) give(p *Participant, index int) {
	m.rejecting = m.without(p.join) // what was wrong on that node has been mended
	m.numbered[index], p.Index, p.join.Index = p, index, index
}

// without returns rejecting without the agent of j. mu is held.
func (m *membership) without(j joinRequest) []joinRequest {
	return slices.DeleteFunc(m.rejecting, j.isOf)
}

// watched records that agent 0 checks a participant's heartbeat now, and returns the time.
func (m *membership) watched(p *Participant) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.watched = time.Now()
	return p.watched
}

func (m *membership) notify() {
	select {
	case m.changed <- struct{}{}:
	default: // the receiver will see all changes at once
	}
}

// count returns how many agents can take part, agent 0 among them, and the requests of those that have come and cannot.
func (m *membership) count() (able int, rejecting []joinRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mine.Rejects == nil {
		able++
	}
	for _, p := range m.numbered {
		if p != nil {
			able++
		}
	}
	return able, slices.Clone(m.rejecting)
}

// withNumbers lists the participants that have a number, in order.
func (m *membership) withNumbers() []*Participant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.numbered), func(p *Participant) bool { return p == nil })
}

// Agents is how many agents can take part in a round, agent 0 among them.
func (r *Rendezvous) Agents() int { return 1 + len(r.membership.withNumbers()) }

// begin returns withNumbers, and marks the first round as begun: from now on a lost agent was a member.
func (m *membership) begin() []*Participant {
	m.mu.Lock()
	m.begun = true
	m.mu.Unlock()
	return m.withNumbers()
}

// close ends the admission: from now on, agents outside a round get answer. It returns the agents that are present.
func (m *membership) close(answer assignment) []*Participant {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closedWith = &answer
	return m.presentLocked()
}

// present lists the participants that are connected and not lost.
func (m *membership) present() []*Participant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.presentLocked()
}

func (m *membership) presentLocked() []*Participant {
	var list []*Participant
	for _, p := range m.connected {
		if !p.isGone() {
			list = append(list, p)
		}
	}
	return list
}

// rejectionOfAll is the first agent's reason not to take part, with the nodes of all agents that failed a check.
func rejectionOfAll(rejecting []joinRequest) *Rejection {
	first := *rejecting[0].Rejects
	first.Unfit = unfitNodes(rejecting)
	return &first
}

// maxUnfit bounds how many nodes are named. With so many unfit nodes, a run has other problems.
const maxUnfit = 64

// unfitNodes lists the nodes that failed a check, sorted.
func unfitNodes(rejecting []joinRequest) (nodes []string) {
	for _, j := range rejecting {
		nodes = append(nodes, j.Rejects.Unfit...)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	return nodes[:min(len(nodes), maxUnfit)]
}

// Unfit lists the nodes that are left out because they failed a check. It is for agent 0.
func (r *Rendezvous) Unfit() []string {
	_, rejecting := r.membership.count()
	return unfitNodes(rejecting)
}

// firstLost is the first agent that was lost before the first round, or nil.
func (m *membership) firstLost() *Participant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost
}

// missing lists the agents that have not come.
func (m *membership) missing() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []int
	for index := 1; index < len(m.numbered); index++ {
		if m.numbered[index] == nil && !slices.ContainsFunc(m.rejecting, func(d joinRequest) bool { return d.Index == index }) {
			list = append(list, index)
		}
	}
	return list
}

// hosts names each agent's node. For agents that have come it is the node that they said; for the others, the nodes that are short
// of agents. layout is how many agents each node has; which agent is on which node is not known.
func (m *membership) hosts(layout map[string]int) []string {
	const most = 4
	m.mu.Lock()
	defer m.mu.Unlock()
	left := maps.Clone(layout)
	left[m.mine.Host]--
	names := make([]string, len(m.numbered))
	names[0] = m.mine.Host
	for index, p := range m.numbered {
		if p != nil {
			names[index] = p.Host
			left[p.Host]--
		}
	}
	for _, d := range m.rejecting {
		if d.Index > 0 {
			left[d.Host]--
		}
	}
	maps.DeleteFunc(left, func(_ string, n int) bool { return n <= 0 })
	short := strings.Join(slices.Sorted(maps.Keys(left)), " or ")
	if len(left) == 0 || len(left) > most {
		short = unnamed
	}
	for index, name := range names {
		names[index] = cmp.Or(name, short)
	}
	return names
}

// address is where this machine can be reached, or fallback if no agent came.
func (m *membership) address(fallback string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Or(m.agent0Addr, fallback)
}

// waitGone waits until all present agents have left, but at most for d.
func (m *membership) waitGone(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for _, p := range m.present() {
		select {
		case <-p.ended:
		case <-timer.C:
			return
		}
	}
}

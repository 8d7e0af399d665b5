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

// Participant is another agent's connection, as agent 0 sees it. Its fields belong to the membership, under its lock; Index and Host do
// not change while it has a part in a round.
type Participant struct {
	Index int    // its number; 0: it has none
	Host  string // its node; "": it has not said yet

	nonce string      // what it calls itself, unlike any other connection
	join  joinRequest // what it said of itself
	local string      // the address of agent 0's machine that it reached

	watched time.Time // when agent 0 last looked whether it beats; zero: never
	lostAt  time.Time // zero: it is not lost
	why     string    // it is

	gone  chan struct{} // closed when it is lost
	ended chan struct{} // closed when its connection has ended
}

func newParticipant(nonce, local string) *Participant {
	return &Participant{nonce: nonce, local: local, gone: make(chan struct{}), ended: make(chan struct{})}
}

// Gone is closed when it is lost.
func (p *Participant) Gone() <-chan struct{} { return p.gone }

// Why tells why it is lost, once it is.
func (p *Participant) Why() string { return p.why }

// isGone tells whether it is lost.
func (p *Participant) isGone() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// membership is agent 0's list of the other agents: who is connected, and which number each has. An agent keeps its
// number as long as its connection lives; then another may get it.
type membership struct {
	mine       joinRequest   // agent 0's own
	oneMachine bool          // nodes are pretended ones of this machine
	changed    chan struct{} // receives when somebody got a number, was lost, or rejects

	mu         sync.Mutex
	connected  map[string]*Participant // those that are connected, by nonce
	numbered   []*Participant          // those that have a number, by it
	waiting    []*Participant          // those that came when no number was free, in order
	begun      bool                    // the first round has
	closedWith *assignment             // what who is in no round is told once there will be no other
	lost       *Participant            // the first that had a number and was lost before the first round
	rejecting  []joinRequest           // of those that cannot take part, in order; agent 0 is the first
	agent0Addr string                  // the address of this machine that another agent reached
}

func newMembership(mine joinRequest) *membership {
	m := &membership{mine: mine, changed: make(chan struct{}, 1), connected: make(map[string]*Participant),
		numbered: make([]*Participant, mine.Count)}
	if mine.Rejects != nil {
		m.rejecting = []joinRequest{mine}
	}
	return m
}

// agentName names an agent's connection.
func agentName(nonce string) string { return "agent/" + nonce }

// connect notes a connection; nil where it is no agent's. local is the address of this machine that it reached.
func (m *membership) connect(name string, local net.Addr) *Participant {
	nonce, ok := strings.CutPrefix(name, "agent/")
	if !ok || !isNonce(nonce) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.connected[nonce] != nil {
		return nil // nobody else can know it
	}
	// An agent beside this one may come by a loopback address, where /etc/hosts
	// gives the master's name one; that is no use to the others.
	if m.agent0Addr == "" || isLoopback(m.agent0Addr) {
		m.agent0Addr = hostOnly(local)
	}
	p := newParticipant(nonce, hostOnly(local))
	m.connected[nonce] = p
	return p
}

// disconnect notes that a connection has ended.
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

// drop counts an agent as lost whose connection may live on; false where it is already.
func (m *membership) drop(p *Participant, why string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lose(p, why)
}

// lose frees a participant's number, for the one that has waited longest. mu is held.
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

// join gives who has said what it is a number. The answer is nil where it is to wait for a round, or is lost.
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
	if m.begun || j.Index >= len(m.numbered) { // else that it does not fit is for all to hear
		if err := m.mine.compatible(j); err != nil {
			return err
		}
	}
	if isLoopback(p.local) && !m.oneMachine && !sameHost(j.Host, m.mine.Host) {
		return fmt.Errorf("the agent on %s reached the one on %s by %s, where no other node could reach either of them; meet at an "+
			"address that all nodes have",
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
		return fmt.Errorf("two agents say that they are agent %d: on %s and on %s; give each a number of its own",
			index, m.mine.Host, j.Host)
	case m.numbered[index] != nil:
		return fmt.Errorf("two agents say that they are agent %d: on %s and on %s; give each a number of its own", index,
			m.numbered[index].Host, j.Host)
	}
	m.give(p, index)
	return nil
}

// nodeOf is the node of a participant, as it said; "": it has not said yet.
func (m *membership) nodeOf(p *Participant) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return p.Host
}

// free is the lowest number that nobody has; -1: there is none.
func (m *membership) free() int {
	for index := 1; index < len(m.numbered); index++ {
		if m.numbered[index] == nil {
			return index
		}
	}
	return -1
}

func (m *membership) give(p *Participant, index int) {
	m.rejecting = m.without(p.join) // what was wrong there is mended
	m.numbered[index], p.Index, p.join.Index = p, index, index
}

// without is rejecting less this agent, if it came before. mu is held.
func (m *membership) without(j joinRequest) []joinRequest {
	return slices.DeleteFunc(m.rejecting, j.isOf)
}

// watched notes that agent 0 looks whether a participant beats, and returns the time.
func (m *membership) watched(p *Participant) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.watched = time.Now()
	return p.watched
}

func (m *membership) notify() {
	select {
	case m.changed <- struct{}{}:
	default: // who looks sees all changes at once
	}
}

// count is how many agents can take part, agent 0 among them, and those that have come and cannot.
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

// withNumbers lists those that have a number, in order.
func (m *membership) withNumbers() []*Participant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.numbered), func(p *Participant) bool { return p == nil })
}

// Agents is how many agents can have a part in a round, agent 0 among them.
func (r *Rendezvous) Agents() int { return 1 + len(r.membership.withNumbers()) }

// begin is withNumbers, and from now on a loss is a member's.
func (m *membership) begin() []*Participant {
	m.mu.Lock()
	m.begun = true
	m.mu.Unlock()
	return m.withNumbers()
}

// close ends the admission: whoever has no part in a round is told so from now on. It returns those that are here.
func (m *membership) close(answer assignment) []*Participant {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closedWith = &answer
	return m.presentLocked()
}

// present lists everybody who is connected and not lost.
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

// rejectionOfAll is the first of the agents' reasons not to take part, with the nodes of all that failed a check.
func rejectionOfAll(rejecting []joinRequest) *Rejection {
	first := *rejecting[0].Rejects
	first.Unfit = unfitNodes(rejecting)
	return &first
}

// maxUnfit bounds how many nodes are named; a run on so many has other troubles.
const maxUnfit = 64

// unfitNodes are those that failed a check, sorted.
func unfitNodes(rejecting []joinRequest) (nodes []string) {
	for _, j := range rejecting {
		nodes = append(nodes, j.Rejects.Unfit...)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	return nodes[:min(len(nodes), maxUnfit)]
}

// Unfit lists the nodes that are left out as they failed a check; at agent 0.
func (r *Rendezvous) Unfit() []string {
	_, rejecting := r.membership.count()
	return unfitNodes(rejecting)
}

// firstLost is the first agent that was lost before the first round; nil: none was.
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

// hosts names each agent's node: of those that have come as they said, of the others the nodes that are short of agents. layout is how many
// each node has; which are where, nothing tells.
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

// address is where this machine can be reached; fallback where nobody came.
func (m *membership) address(fallback string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Or(m.agent0Addr, fallback)
}

// waitGone waits until everybody who is here has left, but no longer than d.
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

// WhyLost is why an agent that has not reported is lost; "": it is not.
func (r *Rendezvous) WhyLost(p *Participant) string {
	r.membership.mu.Lock()
	defer r.membership.mu.Unlock()
	return p.why
}

// StoodStill tells whether this agent, agent 0, stood still just before it lost one of a round's, or about then; an older standstill, as
// when the whole job was suspended, has nothing to do with it.
func (r *Rendezvous) StoodStill(l *Layout) bool {
	r.membership.mu.Lock()
	defer r.membership.mu.Unlock()
	at := r.stoodStillAt.Load()
	return slices.ContainsFunc(l.Participants, func(p *Participant) bool {
		return !p.lostAt.IsZero() &&
			(!p.watched.IsZero() && p.lostAt.Sub(p.watched) >= Standstill || at != nil && p.lostAt.Sub(*at).Abs() <= 2*Standstill)
	})
}

// SilentHosts lists the nodes of a round, less agent 0's own, whose agents were lost without their connection's having ended.
func (r *Rendezvous) SilentHosts(l *Layout) (hosts []string) {
	r.membership.mu.Lock()
	defer r.membership.mu.Unlock()
	for _, p := range l.Participants {
		if p.isGone() && p.why == silence && p.Host != r.cfg.Host {
			hosts = append(hosts, p.Host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

package launch

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

// guest is another agent's connection, as agent 0 sees it. Its fields belong to the roster, under its lock.
type guest struct {
	nonce string // what it calls itself, unlike any other connection
	index int    // its number; 0: it has none
	join  join   // what it said of itself
	local string // the address of agent 0's machine that it reached

	looked time.Time // when agent 0 last looked whether it beats; zero: never
	lostAt time.Time // zero: it is not lost
	why    string    // it is

	gone chan struct{} // closed when it is lost
	left chan struct{} // closed when its connection has ended
}

func newGuest(nonce, local string) *guest {
	return &guest{nonce: nonce, local: local, gone: make(chan struct{}), left: make(chan struct{})}
}

// isGone tells whether it is lost.
func (g *guest) isGone() bool {
	select {
	case <-g.gone:
		return true
	default:
		return false
	}
}

// roster is agent 0's list of the other agents: who is connected, and which number each has. An agent keeps its
// number as long as its connection lives; then another may get it.
type roster struct {
	mine       join          // agent 0's own
	oneMachine bool          // nodes are pretended ones of this machine
	changed    chan struct{} // receives when somebody sat down, was lost, or declined

	mu       sync.Mutex
	guests   map[string]*guest // those that are connected, by nonce
	seats    []*guest          // those that have a number, by it
	waiting  []*guest          // those that came when no number was free, in order
	begun    bool              // the first round has
	shut     *seat             // what who is in no round is told once there will be no other
	lost     *guest            // the first that had a number and was lost before the first round
	declined []join            // of those that cannot take part, in order; agent 0 is the first
	reached  string            // the address of this machine that another agent reached
}

func newRoster(mine join) *roster {
	r := &roster{mine: mine, changed: make(chan struct{}, 1), guests: make(map[string]*guest), seats: make([]*guest, mine.Count)}
	if mine.Declines != nil {
		r.declined = []join{mine}
	}
	return r
}

// agentName names an agent's connection.
func agentName(nonce string) string { return "agent/" + nonce }

// joined notes a connection; nil where it is no agent's. local is the address of this machine that it reached.
func (r *roster) joined(name string, local net.Addr) *guest {
	nonce, ok := strings.CutPrefix(name, "agent/")
	if !ok || !isNonce(nonce) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.guests[nonce] != nil {
		return nil // nobody else can know it
	}
	// An agent beside this one may come by a loopback address, where /etc/hosts
	// gives the master's name one; that is no use to the others.
	if r.reached == "" || isLoopback(r.reached) {
		r.reached = hostOnly(local)
	}
	g := newGuest(nonce, hostOnly(local))
	r.guests[nonce] = g
	return g
}

// left notes that a connection has ended.
func (r *roster) left(name string) {
	nonce, _ := strings.CutPrefix(name, "agent/")
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.guests[nonce]; g != nil {
		r.lose(g, connectionEnded)
		delete(r.guests, nonce)
		close(g.left)
	}
}

// drop counts an agent as lost whose connection may live on; false where it is already.
func (r *roster) drop(g *guest, why string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lose(g, why)
}

// lose frees a guest's number, for the one that has waited longest. mu is held.
func (r *roster) lose(g *guest, why string) bool {
	if g.isGone() {
		return false
	}
	g.lostAt, g.why = time.Now(), why
	close(g.gone)
	r.waiting = slices.DeleteFunc(r.waiting, func(w *guest) bool { return w == g })
	if g.index != 0 {
		r.seats[g.index] = nil
		if !r.begun {
			r.lost = cmp.Or(r.lost, g)
		}
		if len(r.waiting) > 0 {
			r.sit(r.waiting[0], g.index)
			r.waiting = slices.Delete(r.waiting, 0, 1)
		}
	}
	r.tell()
	return true
}

// arrive gives who has said what it is a number. The answer is nil where it is to wait for a round, or is lost.
func (r *roster) arrive(g *guest, j join) *seat {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.isGone() {
		return nil
	}
	g.join = j
	if r.shut != nil {
		return r.shut
	}
	if j.Declines != nil {
		r.declined = append(r.without(j), j)
		r.tell()
		return &seat{Refused: j.Declines}
	}
	if err := r.admit(g, j); err != nil {
		return &seat{Refused: refusalOf(err)}
	}
	r.tell()
	return nil
}

func (r *roster) admit(g *guest, j join) error {
	if r.begun || j.Index >= len(r.seats) { // else that it does not fit is for all to hear
		if err := r.mine.alike(j); err != nil {
			return err
		}
	}
	if isLoopback(g.local) && !r.oneMachine && !sameHost(j.Host, r.mine.Host) {
		return fmt.Errorf("the agent on %s reached the one on %s by %s, where no other node could reach either of them; meet at an address that all nodes have",
			j.Host, r.mine.Host, g.local)
	}
	index := j.Index
	if index < 0 {
		index = r.free()
	}
	switch {
	case index < 0:
		r.waiting = append(r.waiting, g)
		return nil
	case index == 0 || index >= len(r.seats):
		return fmt.Errorf("two agents say that they are agent %d: on %s and on %s; give each a number of its own", index, r.mine.Host, j.Host)
	case r.seats[index] != nil:
		return fmt.Errorf("two agents say that they are agent %d: on %s and on %s; give each a number of its own", index, r.seats[index].join.Host, j.Host)
	}
	r.sit(g, index)
	return nil
}

// nodeOf is the node of a guest, as it said; "": it has not said yet.
func (r *roster) nodeOf(g *guest) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return g.join.Host
}

// free is the lowest number that nobody has; -1: there is none.
func (r *roster) free() int {
	for index := 1; index < len(r.seats); index++ {
		if r.seats[index] == nil {
			return index
		}
	}
	return -1
}

func (r *roster) sit(g *guest, index int) {
	r.declined = r.without(g.join) // what was wrong there is mended
	r.seats[index], g.index, g.join.Index = g, index, index
}

// without is declined less this agent, if it came before. mu is held.
func (r *roster) without(j join) []join {
	return slices.DeleteFunc(r.declined, j.isOf)
}

// looked notes that agent 0 looks whether a guest beats, and returns the time.
func (r *roster) looked(g *guest) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.looked = time.Now()
	return g.looked
}

func (r *roster) tell() {
	select {
	case r.changed <- struct{}{}:
	default: // who looks sees all changes at once
	}
}

// attendance is how many agents can take part, agent 0 among them, and those that have come and cannot.
func (r *roster) attendance() (able int, declined []join) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mine.Declines == nil {
		able++
	}
	for _, g := range r.seats {
		if g != nil {
			able++
		}
	}
	return able, slices.Clone(r.declined)
}

// seated lists those that have a number, in order.
func (r *roster) seated() []*guest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.seats), func(g *guest) bool { return g == nil })
}

// begin is seated, and from now on a loss is a member's.
func (r *roster) begin() []*guest {
	r.mu.Lock()
	r.begun = true
	r.mu.Unlock()
	return r.seated()
}

// close ends the admission: whoever has no part in a round is told so from now on. It returns those that are here.
func (r *roster) close(told seat) []*guest {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut = &told
	return r.here()
}

// all lists everybody who is connected and not lost.
func (r *roster) all() []*guest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.here()
}

func (r *roster) here() []*guest {
	var list []*guest
	for _, g := range r.guests {
		if !g.isGone() {
			list = append(list, g)
		}
	}
	return list
}

// firstLost is the first agent that was lost before the first round; nil: none was.
func (r *roster) firstLost() *guest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// missing lists the agents that have not come.
func (r *roster) missing() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []int
	for index := 1; index < len(r.seats); index++ {
		if r.seats[index] == nil && !slices.ContainsFunc(r.declined, func(d join) bool { return d.Index == index }) {
			list = append(list, index)
		}
	}
	return list
}

// hosts names each agent's node: of those that have come as they said, of the others the nodes that are short of agents. layout is how many
// each node has; which are where, nothing tells.
func (r *roster) hosts(layout map[string]int) []string {
	const most = 4
	r.mu.Lock()
	defer r.mu.Unlock()
	left := maps.Clone(layout)
	left[r.mine.Host]--
	names := make([]string, len(r.seats))
	names[0] = r.mine.Host
	for index, g := range r.seats {
		if g != nil {
			names[index] = g.join.Host
			left[g.join.Host]--
		}
	}
	for _, d := range r.declined {
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
func (r *roster) address(fallback string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.reached, fallback)
}

// waitGone waits until everybody who is here has left, but no longer than d.
func (r *roster) waitGone(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for _, g := range r.all() {
		select {
		case <-g.left:
		case <-timer.C:
			return
		}
	}
}

// whyLost is why an agent that has not reported is lost.
func (r *roster) whyLost(g *guest) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return g.why
}

// stood tells whether this agent stood still just before it lost one of the guests, or about then at, which may be nil.
func (r *roster) stood(guests []*guest, at *time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(guests, func(g *guest) bool {
		return !g.lostAt.IsZero() &&
			(!g.looked.IsZero() && g.lostAt.Sub(g.looked) >= stoodStill || at != nil && g.lostAt.Sub(*at).Abs() <= 2*stoodStill)
	})
}

// silent lists the nodes, less own, whose agents were lost without their connection's having ended.
func (r *roster) silent(guests []*guest, own string) (hosts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range guests {
		if g.isGone() && g.why == silence && g.join.Host != own {
			hosts = append(hosts, g.join.Host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

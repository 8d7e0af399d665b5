package launch

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// roster is agent 0's list of the other agents' connections. An agent is there
// while it has one; a second program that says it is the same agent comes and
// goes without harm.
type roster struct {
	mu      sync.Mutex
	came    []bool // by agent
	open    []int  // connections of each
	absent  int    // agents that never came
	reached string // the address of this machine that another agent reached

	complete chan struct{}   // closed when every agent has come
	gone     []chan struct{} // closed when that agent has come and gone
	lost     chan int        // the same, in order of events; each agent once
}

func newRoster(count int) *roster {
	r := &roster{
		came: make([]bool, count), open: make([]int, count), absent: count - 1,
		complete: make(chan struct{}), lost: make(chan int, count),
	}
	for range count {
		r.gone = append(r.gone, make(chan struct{}))
	}
	if count == 1 {
		close(r.complete)
	}
	return r
}

// agentName names an agent's connection.
func agentName(index int) string { return fmt.Sprintf("agent/%d", index) }

// index reads agentName's; false for other clients, such as workers.
func (r *roster) index(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "agent/")
	index, err := strconv.Atoi(digits)
	return index, ok && err == nil && index > 0 && index < len(r.came)
}

// joined and left are the store's callbacks.
func (r *roster) joined(name string, local net.Addr) {
	index, ok := r.index(name)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// An agent beside this one may come by a loopback address, where /etc/hosts
	// gives the master's name one; that is no use to the others.
	if r.reached == "" || isLoopback(r.reached) {
		r.reached = hostOnly(local)
	}
	r.open[index]++
	if r.came[index] {
		return
	}
	r.came[index] = true
	if r.absent--; r.absent == 0 {
		close(r.complete)
	}
}

func (r *roster) left(name string) {
	index, ok := r.index(name)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[index]--; r.open[index] > 0 {
		return
	}
	select {
	case <-r.gone[index]: // it came back, and has gone again
	default:
		close(r.gone[index])
		r.lost <- index
	}
}

// missing lists the agents that never came.
func (r *roster) missing() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []int
	for index := 1; index < len(r.came); index++ {
		if !r.came[index] {
			list = append(list, index)
		}
	}
	return list
}

// address is where this machine can be reached; fallback where nobody came.
func (r *roster) address(fallback string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reached == "" {
		return fallback
	}
	return r.reached
}

// waitGone waits until every agent that came has left, but no longer than d.
func (r *roster) waitGone(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for index := 1; index < len(r.gone); index++ {
		if !r.isThere(index) {
			continue
		}
		select {
		case <-r.gone[index]:
		case <-timer.C:
			return
		}
	}
}

func (r *roster) isThere(index int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open[index] > 0
}

// describe names agents and their nodes: "agent 1 (n2), agent 3 (n4)".
func (c AgentConfig) describe(agents []int) string {
	const most = 8
	var words []string
	for _, index := range agents[:min(most, len(agents))] {
		words = append(words, fmt.Sprintf("agent %d (%s)", index, c.hostOf(index)))
	}
	if more := len(agents) - most; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}

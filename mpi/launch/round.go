package launch

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/store"
)

// Keys of a round, below its number.
const (
	keyFirst   = "first"   // rundir.Verdict, of the worker that ended badly before all others, by its agent
	keyOutcome = "outcome" // rundir.Verdict, by whoever comes first
	keyEnd     = "end/%d"  // report, by agent: its workers are gone
	keyLast    = "last"    // last, by agent 0, when the verdict is on disk
)

// round is one start of all workers of the run.
type round struct {
	m       *meeting
	cfg     AgentConfig // with this round's attempt, stop file and deadline
	plan    *plan
	store   store.Store // the control store, below the round's number
	cookie  string      // in the environment of every process of this agent's in this round
	private *private    // folder of files that have no other place; nil: none
	began   time.Time
}

// last is agent 0's last word on a round.
type last struct {
	Verdict rundir.Verdict `json:"verdict"`
	Next    bool           `json:"next"` // another round follows
}

func newRound(m *meeting, p *plan) *round {
	c := m.cfg
	// A stop file belongs to its attempt, so that the next one does not find it.
	if c.RunDir != nil && c.StopFile == c.RunDir.StopPath(c.Attempt) {
		c.StopFile = c.RunDir.StopPath(p.Attempt)
	}
	c.Attempt, c.Deadline = p.Attempt, p.Deadline
	c.Restarts += p.Round
	c.MasterAddr, c.TorchStore = m.masterAddr(p), p.TorchStore
	return &round{m: m, cfg: c, plan: p, store: store.Prefix(m.store, fmt.Sprintf(keyRound, p.Round)), cookie: proc.NewCookie(), began: time.Now()}
}

// masterAddr is what workers get as MASTER_ADDR: an address by which agents have reached agent 0, where the user did not say one. A
// name may be unknown on a node, and a node may know itself by a loopback address.
func (m *meeting) masterAddr(p *plan) string {
	switch addr, _ := netip.ParseAddr(m.reached); {
	case p.MasterAddr != "":
		return p.MasterAddr
	case m.cfg.MasterGiven, m.reached == "":
		return m.cfg.MasterAddr
	case addr.Is6() && m.cfg.Exchange == nil: // they were reached by the name; many programs put MASTER_ADDR before a colon
		return m.cfg.MasterAddr
	}
	return m.reached
}

// forget removes what the agents said in a round that all of them have left.
func (m *meeting) forget(ctx context.Context, round int) error {
	keys, err := m.store.List(ctx, fmt.Sprintf(keyRound+"/", round))
	if err != nil {
		return err
	}
	for _, key := range append(keys, fmt.Sprintf(keyPlan, round)) {
		if _, err := m.store.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

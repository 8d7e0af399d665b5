package launch

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Place is the place of one worker in the world, with torchrun's meaning of
// each number.
type Place struct {
	Rank           int `json:"rank"`
	LocalRank      int `json:"local_rank"` // its index among the workers of its node
	WorldSize      int `json:"world_size"`
	LocalWorldSize int `json:"local_world_size"` // workers on its node
	NodeRank       int `json:"node_rank"`
	Nodes          int `json:"nodes"`
}

// join is what an agent says of itself when it comes.
type join struct {
	Index   int     `json:"index"` // -1: it has no number yet
	Count   int     `json:"count"`
	Host    string  `json:"host"`
	ID      string  `json:"id,omitempty"` // unlike any other agent's, and the same by whatever connection it comes
	Version string  `json:"version"`
	Nproc   int     `json:"nproc,omitempty"`
	Local   []Place `json:"local,omitempty"`

	Declines *refusal `json:"declines,omitempty"` // it cannot take part
}

// seat is what agent 0 answers: its number and its first round, or that there is no place for it.
type seat struct {
	Refused *refusal `json:"refused,omitempty"`
	Over    *last    `json:"over,omitempty"` // the run ended before there was a round for it
	Index   int      `json:"index"`
	Round   int      `json:"round"`
}

// plan is what agent 0 makes of all joins: the world of one round.
type plan struct {
	Round      int       `json:"round"`
	Attempt    int       `json:"attempt"`
	Count      int       `json:"count"`   // of agents that there may be
	Members    []member  `json:"members"` // agents of this round, by number
	World      int       `json:"world"`
	Host       string    `json:"host"`                  // of agent 0
	Listen     string    `json:"listen"`                // where workers on that host can be reached
	MasterAddr string    `json:"master_addr,omitempty"` // "": as configured
	MasterPort int       `json:"master_port"`
	TorchStore bool      `json:"torch_store,omitempty"` // agent 0 serves PyTorch's store there
	WorkerPort int       `json:"worker_port,omitempty"` // of the store for ddpbatch's own workers; 0: there is none
	Deadline   time.Time `json:"deadline,omitzero"`

	guests []*guest // at agent 0: the members but itself
}

// member is an agent that has a part in a round.
type member struct {
	Index int    `json:"index"`
	Host  string `json:"host"`
	First int    `json:"first"` // its lowest rank, in agent mode
	Nproc int    `json:"nproc"`
}

// layRound makes the plan of a round, of all agents that have a number and live, and begins its services.
func (m *meeting) layRound(round, attempt int) (*plan, error) {
	p := &plan{
		Round: round, Attempt: attempt, Count: m.cfg.Count, Host: m.cfg.Host,
		Listen: m.roster.address(cmp.Or(m.hosts(m.cfg)[0], loopback)), Deadline: m.deadline(),
	}
	m.listen, m.reached = p.Listen, m.roster.address("")
	joins := []join{m.cfg.join()}
	p.guests = m.roster.begin()
	for _, g := range p.guests {
		joins = append(joins, g.join)
	}
	if err := p.lay(joins); err != nil {
		return nil, err
	}
	if err := m.services.close(); err != nil {
		return nil, err
	}
	return p, m.serveWorkers(p)
}

// publish gives the plan to every agent that is in it.
func (m *meeting) publish(ctx context.Context, p *plan) error {
	if err := setJSON(ctx, m.store, fmt.Sprintf(keyPlan, p.Round), p); err != nil {
		return fmt.Errorf("publish the plan of the workers: %w", err)
	}
	for _, g := range p.guests {
		m.answer(g, seat{Index: g.index, Round: p.Round})
	}
	return nil
}

// planOf waits for the plan of a round.
func (m *meeting) planOf(ctx context.Context, round int) (*plan, error) {
	p, err := getJSON[plan](ctx, m.store, fmt.Sprintf(keyPlan, round))
	if err != nil {
		return nil, err
	}
	return &p, p.check(m.cfg)
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

func (c AgentConfig) join() join {
	j := join{Index: c.Index, Count: c.Count, Host: c.Host, ID: c.id, Version: c.Version, Nproc: c.Nproc, Local: c.Local}
	if c.Declines != nil {
		j.Declines = c.declined()
	}
	return j
}

// isOf tells whether another join is the same agent's: by its number on its node, or, while it has none, by its id, since a machine may have
// several.
func (j join) isOf(other join) bool {
	return j.Index == other.Index && j.Host == other.Host && (j.Index >= 0 || j.ID == other.ID)
}

// lay gives every worker its place in p. joins are those of the members, in
// the order of their numbers; the first is agent 0's own.
func (p *plan) lay(joins []join) error {
	for _, j := range joins[1:] {
		if err := joins[0].alike(j); err != nil {
			return err
		}
	}
	for _, j := range joins {
		p.Members = append(p.Members, member{Index: j.Index, Host: j.Host, Nproc: j.Nproc})
	}
	if len(joins[0].Local) > 0 {
		return p.layFixed(joins)
	}
	for i, j := range joins {
		if j.Nproc < 1 || j.Nproc > maxWorld-p.World {
			return fmt.Errorf("agent %d on %s has %d workers of its own; %d are counted before it", j.Index, j.Host, j.Nproc, p.World)
		}
		p.Members[i].First = p.World
		p.World += j.Nproc
	}
	return nil
}

// alike says why another agent cannot be in one run with agent 0.
func (first join) alike(j join) error {
	switch {
	case j.Version != first.Version:
		return fmt.Errorf("agent %d on %s runs ddpbatch %s, agent 0 on %s runs %s: use one program on every node",
			j.Index, j.Host, j.Version, first.Host, first.Version)
	case j.Count != first.Count:
		return fmt.Errorf("agent %d on %s was started as one of %d agents, agent 0 on %s as one of %d",
			j.Index, j.Host, j.Count, first.Host, first.Count)
	case (len(j.Local) > 0) != (len(first.Local) > 0):
		return fmt.Errorf("agent %d on %s and agent 0 on %s disagree on whether ranks are fixed beforehand",
			j.Index, j.Host, first.Host)
	}
	return nil
}

// layFixed checks that the places of all agents make one world.
func (p *plan) layFixed(joins []join) error {
	p.World = joins[0].Local[0].WorldSize
	owner := make(map[int]join)
	for _, j := range joins {
		for _, place := range j.Local {
			if place.WorldSize != p.World || place.Rank < 0 || place.Rank >= p.World {
				return fmt.Errorf("rank %d on %s has a world of %d, rank %d on %s one of %d",
					place.Rank, j.Host, place.WorldSize, joins[0].Local[0].Rank, joins[0].Host, p.World)
			}
			if other, taken := owner[place.Rank]; taken {
				return fmt.Errorf("rank %d is both on %s and on %s", place.Rank, other.Host, j.Host)
			}
			owner[place.Rank] = j
		}
	}
	if len(owner) != p.World {
		return fmt.Errorf("the world has %d ranks, and the agents bring %d", p.World, len(owner))
	}
	return nil
}

// check tells whether what agent 0 sent fits the agent that c is for.
func (p *plan) check(c AgentConfig) error {
	at := p.position(c.Index)
	fits := p.Count == c.Count && len(p.Members) <= c.Count && at >= 0 && isPort(p.MasterPort) &&
		(p.WorkerPort == 0 || isPort(p.WorkerPort)) && p.Round >= 0 && p.Attempt >= 0
	if fits && len(c.Local) == 0 {
		m := p.Members[at]
		fits = m.Nproc == c.Nproc && m.First >= at && p.World <= maxWorld && p.World-m.First >= c.Nproc
	}
	if !fits {
		return fmt.Errorf("agent 0 on %s counts %d agents and %d ranks, in which agent %d of %d has no place", p.Host, len(p.Members), p.World, c.Index, c.Count)
	}
	return nil
}

func isPort(n int) bool { return n > 0 && n <= 65535 }

// position is where an agent stands among the members; -1: it is none.
func (p *plan) position(index int) int {
	return slices.IndexFunc(p.Members, func(m member) bool { return m.Index == index })
}

// places are those of the workers of the agent that c is for. Nodes are counted over the members.
func (p *plan) places(c AgentConfig) []Place {
	if len(c.Local) > 0 {
		return c.Local
	}
	at := p.position(c.Index)
	var list []Place
	for local := range c.Nproc {
		list = append(list, Place{
			Rank: p.Members[at].First + local, LocalRank: local,
			WorldSize: p.World, LocalWorldSize: c.Nproc,
			NodeRank: at, Nodes: len(p.Members),
		})
	}
	return list
}

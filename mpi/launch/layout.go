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

// joinRequest is what an agent says of itself when it comes.
type joinRequest struct {
	Index   int     `json:"index"` // -1: it has no number yet
	Count   int     `json:"count"`
	Host    string  `json:"host"`
	ID      string  `json:"id,omitempty"` // unlike any other agent's, and the same by whatever connection it comes
	Version string  `json:"version"`
	Nproc   int     `json:"nproc,omitempty"`
	Local   []Place `json:"local,omitempty"`

	Rejects *rejection `json:"declines,omitempty"` // it cannot take part
}

// assignment is what agent 0 answers: its number and its first round, or that there is no place for it.
type assignment struct {
	Rejected *rejection `json:"refused,omitempty"`
	Over     *lastWord  `json:"over,omitempty"` // the run ended before there was a round for it
	Index    int        `json:"index"`
	Round    int        `json:"round"`
}

// layout is what agent 0 makes of all joins: the world of one round.
type layout struct {
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

	participants []*participant // at agent 0: the members but itself
}

// member is an agent that has a part in a round.
type member struct {
	Index int    `json:"index"`
	Host  string `json:"host"`
	First int    `json:"first"` // its lowest rank, in agent mode
	Nproc int    `json:"nproc"`
}

// newLayout makes the layout of a round, of all agents that have a number and live, and begins its services.
func (r *rendezvous) newLayout(round, attempt int) (*layout, error) {
	l := &layout{
		Round: round, Attempt: attempt, Count: r.cfg.Count, Host: r.cfg.Host,
		Listen: r.membership.address(cmp.Or(r.hosts(r.cfg)[0], loopback)), Deadline: r.deadline(),
	}
	r.workerAddr, r.agent0Addr = l.Listen, r.membership.address("")
	joins := []joinRequest{r.cfg.join()}
	l.participants = r.membership.begin()
	for _, p := range l.participants {
		joins = append(joins, p.join)
	}
	if err := l.assignRanks(joins); err != nil {
		return nil, err
	}
	if err := r.services.close(); err != nil {
		return nil, err
	}
	return l, r.serveWorkers(l)
}

// publish gives the layout to every agent that is in it.
func (r *rendezvous) publish(ctx context.Context, l *layout) error {
	if err := setJSON(ctx, r.store, fmt.Sprintf(keyLayout, l.Round), l); err != nil {
		return fmt.Errorf("publish the plan of the workers: %w", err)
	}
	for _, p := range l.participants {
		r.assign(p, assignment{Index: p.index, Round: l.Round})
	}
	return nil
}

// awaitLayout waits for the layout of a round.
func (r *rendezvous) awaitLayout(ctx context.Context, round int) (*layout, error) {
	l, err := getJSON[layout](ctx, r.store, fmt.Sprintf(keyLayout, round))
	if err != nil {
		return nil, err
	}
	return &l, l.check(r.cfg)
}

// forget removes what the agents said in a round that all of them have left.
func (r *rendezvous) forget(ctx context.Context, round int) error {
	keys, err := r.store.List(ctx, fmt.Sprintf(keyRound+"/", round))
	if err != nil {
		return err
	}
	for _, key := range append(keys, fmt.Sprintf(keyLayout, round)) {
		if _, err := r.store.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// masterAddr is what workers get as MASTER_ADDR: an address by which agents have reached agent 0, where the user did not say one. A
// name may be unknown on a node, and a node may know itself by a loopback address.
func (r *rendezvous) masterAddr(l *layout) string {
	switch addr, _ := netip.ParseAddr(r.agent0Addr); {
	case l.MasterAddr != "":
		return l.MasterAddr
	case r.cfg.MasterGiven, r.agent0Addr == "":
		return r.cfg.MasterAddr
	case addr.Is6() && r.cfg.Exchange == nil: // they were reached by the name; many programs put MASTER_ADDR before a colon
		return r.cfg.MasterAddr
	}
	return r.agent0Addr
}

func (c AgentConfig) join() joinRequest {
	j := joinRequest{Index: c.Index, Count: c.Count, Host: c.Host, ID: c.id, Version: c.Version, Nproc: c.Nproc, Local: c.Local}
	if c.Declines != nil {
		j.Rejects = c.rejection()
	}
	return j
}

// isOf tells whether another join is the same agent's: by its number on its node, or, while it has none, by its id, since a machine may have
// several.
func (j joinRequest) isOf(other joinRequest) bool {
	return j.Index == other.Index && j.Host == other.Host && (j.Index >= 0 || j.ID == other.ID)
}

// assignRanks gives every worker its place in p. joins are those of the members, in
// the order of their numbers; the first is agent 0's own.
func (l *layout) assignRanks(joins []joinRequest) error {
	for _, j := range joins[1:] {
		if err := joins[0].compatible(j); err != nil {
			return err
		}
	}
	for _, j := range joins {
		l.Members = append(l.Members, member{Index: j.Index, Host: j.Host, Nproc: j.Nproc})
	}
	if len(joins[0].Local) > 0 {
		return l.checkFixedRanks(joins)
	}
	for i, j := range joins {
		if j.Nproc < 1 || j.Nproc > maxWorld-l.World {
			return fmt.Errorf("agent %d on %s has %d workers of its own; %d are counted before it", j.Index, j.Host, j.Nproc, l.World)
		}
		l.Members[i].First = l.World
		l.World += j.Nproc
	}
	return nil
}

// compatible says why another agent cannot be in one run with agent 0.
func (first joinRequest) compatible(j joinRequest) error {
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

// checkFixedRanks checks that the places of all agents make one world.
func (l *layout) checkFixedRanks(joins []joinRequest) error {
	l.World = joins[0].Local[0].WorldSize
	owner := make(map[int]joinRequest)
	for _, j := range joins {
		for _, place := range j.Local {
			if place.WorldSize != l.World || place.Rank < 0 || place.Rank >= l.World {
				return fmt.Errorf("rank %d on %s has a world of %d, rank %d on %s one of %d",
					place.Rank, j.Host, place.WorldSize, joins[0].Local[0].Rank, joins[0].Host, l.World)
			}
			if other, taken := owner[place.Rank]; taken {
				return fmt.Errorf("rank %d is both on %s and on %s", place.Rank, other.Host, j.Host)
			}
			owner[place.Rank] = j
		}
	}
	if len(owner) != l.World {
		return fmt.Errorf("the world has %d ranks, and the agents bring %d", l.World, len(owner))
	}
	return nil
}

// check tells whether what agent 0 sent fits the agent that c is for.
func (l *layout) check(c AgentConfig) error {
	at := l.position(c.Index)
	fits := l.Count == c.Count && len(l.Members) <= c.Count && at >= 0 && isPort(l.MasterPort) &&
		(l.WorkerPort == 0 || isPort(l.WorkerPort)) && l.Round >= 0 && l.Attempt >= 0
	if fits && len(c.Local) == 0 {
		m := l.Members[at]
		fits = m.Nproc == c.Nproc && m.First >= at && l.World <= maxWorld && l.World-m.First >= c.Nproc
	}
	if !fits {
		return fmt.Errorf("agent 0 on %s counts %d agents and %d ranks, in which agent %d of %d has no place", l.Host, len(l.Members), l.World, c.Index, c.Count)
	}
	return nil
}

func isPort(n int) bool { return n > 0 && n <= 65535 }

// position is where an agent stands among the members; -1: it is none.
func (l *layout) position(index int) int {
	return slices.IndexFunc(l.Members, func(m member) bool { return m.Index == index })
}

// ranksOf are those of the workers of the agent that c is for. Nodes are counted over the members.
func (l *layout) ranksOf(c AgentConfig) []Place {
	if len(c.Local) > 0 {
		return c.Local
	}
	at := l.position(c.Index)
	var list []Place
	for local := range c.Nproc {
		list = append(list, Place{
			Rank: l.Members[at].First + local, LocalRank: local,
			WorldSize: l.World, LocalWorldSize: c.Nproc,
			NodeRank: at, Nodes: len(l.Members),
		})
	}
	return list
}

package launch

import "fmt"

// join is what an agent says of itself when it comes.
type join struct {
	Index   int     `json:"index"`
	Count   int     `json:"count"`
	Host    string  `json:"host"`
	Version string  `json:"version"`
	Nonce   string  `json:"nonce"`
	Nproc   int     `json:"nproc,omitempty"`
	Local   []Place `json:"local,omitempty"`
}

// plan is what agent 0 makes of all joins: the world, or why there is none.
type plan struct {
	Refused    *refusal `json:"refused,omitempty"`
	Count      int      `json:"count"` // of agents
	World      int      `json:"world"`
	First      []int    `json:"first,omitempty"` // the lowest rank of each agent, in agent mode
	Host       string   `json:"host"`            // of agent 0
	Listen     string   `json:"listen"`          // where workers on that host can be reached
	StorePort  int      `json:"store_port"`
	MasterPort int      `json:"master_port"`
}

func (c AgentConfig) join(nonce string) join {
	return join{Index: c.Index, Count: c.Count, Host: c.Host, Version: c.Version, Nonce: nonce, Nproc: c.Nproc, Local: c.Local}
}

// lay gives every worker its place in p. joins has one entry an agent, in
// order; the first is agent 0's own.
func (p *plan) lay(joins []join) error {
	if err := checkAlike(joins); err != nil {
		return err
	}
	if len(joins[0].Local) > 0 {
		return p.layFixed(joins)
	}
	for _, j := range joins {
		if j.Nproc < 1 || j.Nproc > maxWorld-p.World {
			return fmt.Errorf("agent %d on %s has %d workers of its own; %d are counted before it", j.Index, j.Host, j.Nproc, p.World)
		}
		p.First = append(p.First, p.World)
		p.World += j.Nproc
	}
	return nil
}

func checkAlike(joins []join) error {
	first := joins[0]
	for _, j := range joins[1:] {
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
	fits := p.Count == c.Count && isPort(p.StorePort) && isPort(p.MasterPort)
	if len(c.Local) == 0 {
		fits = fits && len(p.First) == c.Count && p.First[c.Index] >= c.Index && p.World-p.First[c.Index] >= c.Nproc
	}
	if !fits {
		return fmt.Errorf("agent 0 on %s counts %d agents and %d ranks, in which agent %d of %d has no place", p.Host, p.Count, p.World, c.Index, c.Count)
	}
	return nil
}

func isPort(n int) bool { return n > 0 && n <= 65535 }

// places are those of the workers of the agent that c is for.
func (p *plan) places(c AgentConfig) []Place {
	if len(c.Local) > 0 {
		return c.Local
	}
	var list []Place
	for local := range c.Nproc {
		list = append(list, Place{
			Rank: p.First[c.Index] + local, LocalRank: local,
			WorldSize: p.World, LocalWorldSize: c.Nproc,
			NodeRank: c.Index, Nodes: c.Count,
		})
	}
	return list
}

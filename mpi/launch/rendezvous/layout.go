package rendezvous

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"ddpbatch/internal/pause"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/store"
)

// RankNumbers are the numbers of one worker in the world. Each has torchrun's meaning.
type RankNumbers struct {
	Rank           int `json:"rank"`
	LocalRank      int `json:"local_rank"` // its index among the workers of its node
	WorldSize      int `json:"world_size"`
	LocalWorldSize int `json:"local_world_size"` // workers on its node
	NodeRank       int `json:"node_rank"`
	Nodes          int `json:"nodes"`
}

// joinRequest is an agent's description of itself when it comes.
type joinRequest struct {
	Index   int           `json:"index"` // -1: no number yet
	Count   int           `json:"count"`
	Host    string        `json:"host"`
	ID      string        `json:"id,omitempty"` // unique among agents, and the same on each of this agent's connections
	Version string        `json:"version"`
	Nproc   int           `json:"nproc,omitempty"`
	Local   []RankNumbers `json:"local,omitempty"`
	Clock   time.Time     `json:"clock,omitzero"` // of its node, when it sent this

	Rejects *Rejection `json:"declines,omitempty"` // why it cannot take part; nil: it can
}

// assignment is agent 0's answer: the agent's number and its first round, or why it cannot take part.
type assignment struct {
	Rejected *Rejection `json:"refused,omitempty"`
	Over     *LastWord  `json:"over,omitempty"` // the run ended before a round for this agent began
	Index    int        `json:"index"`
	Round    int        `json:"round"`
}

// Layout is the world of one round. Agent 0 makes it from the join requests.
type Layout struct {
	Round      int       `json:"round"`
	Attempt    int       `json:"attempt"`
	Count      int       `json:"count"`   // of agents that may take part
	Members    []Member  `json:"members"` // agents of this round, in the order of their numbers
	World      int       `json:"world"`
	Host       string    `json:"host"`                  // of agent 0
	Listen     string    `json:"listen"`                // where workers on that host can be reached
	MasterAddr string    `json:"master_addr,omitempty"` // "": as configured
	MasterPort int       `json:"master_port"`
	TorchStore bool      `json:"torch_store,omitempty"` // agent 0 serves PyTorch's store at MasterPort
	WorkerPort int       `json:"worker_port,omitempty"` // of the store for ddpbatch's own workers; 0: none
	Deadline   time.Time `json:"deadline,omitzero"`

	Participants []*Participant `json:"-"` // at agent 0 only: the other members
}

// Member is an agent that takes part in a round.
type Member struct {
	Index int    `json:"index"`
	Host  string `json:"host"`
	First int    `json:"first"` // its lowest rank, in agent mode
	Nproc int    `json:"nproc"`
}

// NewLayout makes the layout of a round from all agents that have a number and are alive, and begins the round's services.
func (r *Rendezvous) NewLayout(round, attempt int, deadline time.Time) (*Layout, error) {
	l := &Layout{
		Round: round, Attempt: attempt, Count: r.cfg.Count, Host: r.cfg.Host,
		Listen: r.membership.address(cmp.Or(r.hosts(r.cfg)[0], Loopback)), Deadline: deadline,
	}
	r.workerAddr, r.agent0Addr = l.Listen, r.membership.address("")
	joins := []joinRequest{r.cfg.join()}
	l.Participants = r.membership.begin()
	for _, p := range l.Participants {
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

// Publish publishes the layout to its members.
func (r *Rendezvous) Publish(ctx context.Context, l *Layout) error {
	if err := SetJSON(ctx, r.store, fmt.Sprintf(keyLayout, l.Round), l); err != nil {
		return fmt.Errorf("publish the layout of the workers: %w", err)
	}
	for _, p := range l.Participants {
		r.assign(p, assignment{Index: p.Index, Round: l.Round})
	}
	return nil
}

// AwaitLayout waits for the layout of a round.
func (r *Rendezvous) AwaitLayout(ctx context.Context, round int) (*Layout, error) {
	l, err := GetJSON[Layout](ctx, r.store, fmt.Sprintf(keyLayout, round))
	if err != nil {
		return nil, err
	}
	return &l, l.check(r.cfg)
}

// RoundStore is the control store below a round's number.
func (r *Rendezvous) RoundStore(round int) store.Store {
	return store.Prefix(r.store, fmt.Sprintf(keyRound, round))
}

// Forget removes the keys of a round that all agents have left.
func (r *Rendezvous) Forget(ctx context.Context, round int) error {
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

// MasterAddr is the MASTER_ADDR of the workers: the user's, or an address by which agents have reached agent 0. A name may be
// unknown on a node, and a node may resolve its own name to a loopback address.
func (r *Rendezvous) MasterAddr(l *Layout) string {
	switch addr, _ := netip.ParseAddr(r.agent0Addr); {
	case l.MasterAddr != "":
		return l.MasterAddr
	case r.cfg.MasterGiven, r.agent0Addr == "":
		return r.cfg.MasterAddr
	case addr.Is6() && r.cfg.Exchange == nil: // agents used the name; many programs append ":" and a port to MASTER_ADDR
		return r.cfg.MasterAddr
	}
	return r.agent0Addr
}

func (c Config) join() joinRequest {
	j := joinRequest{Index: c.Index, Count: c.Count, Host: c.Host, ID: c.id, Version: c.Version, Nproc: c.Nproc, Local: c.Local,
		Clock: time.Now()}
	if c.Reject != nil {
		j.Rejects = c.rejection()
	}
	return j
}

// isOf reports whether another request is from the same agent. Agents with a number are compared by number and node, and those
// without one also by id, since a machine may have several.
func (j joinRequest) isOf(other joinRequest) bool {
	return j.Index == other.Index && j.Host == other.Host && (j.Index >= 0 || j.ID == other.ID)
}

// assignRanks gives every worker its numbers. joins are the requests of the members, in the order of their numbers; the first is
// agent 0's own.
func (l *Layout) assignRanks(joins []joinRequest) error {
	for _, j := range joins[1:] {
		if err := joins[0].compatible(j); err != nil {
			return err
		}
	}
	for _, j := range joins {
		l.Members = append(l.Members, Member{Index: j.Index, Host: j.Host, Nproc: j.Nproc})
	}
	if len(joins[0].Local) > 0 {
		return l.checkFixedRanks(joins)
	}
	for i, j := range joins {
		if j.Nproc < 1 || j.Nproc > MaxWorld-l.World {
			return fmt.Errorf("agent %d on %s has %d workers, after %d of other agents: each agent needs at least one, "+
				"and all together at most %d", j.Index, j.Host, j.Nproc, l.World, MaxWorld)
		}
		l.Members[i].First = l.World
		l.World += j.Nproc
	}
	return nil
}

// compatible reports why another agent cannot be in one run with agent 0, whose request j is.
func (j joinRequest) compatible(other joinRequest) error {
	switch {
	case other.Version != j.Version:
		return fmt.Errorf("agent %d on %s runs ddpbatch %s, agent 0 on %s runs %s: use one program on every node",
			other.Index, other.Host, other.Version, j.Host, j.Version)
	case other.Count != j.Count:
		return fmt.Errorf("agent %d on %s was started as one of %d agents, agent 0 on %s as one of %d",
			other.Index, other.Host, other.Count, j.Host, j.Count)
	case (len(other.Local) > 0) != (len(j.Local) > 0):
		return fmt.Errorf("agent %d on %s and agent 0 on %s disagree on whether ranks are fixed beforehand",
			other.Index, other.Host, j.Host)
	}
	return nil
}

// checkFixedRanks checks that the numbers of all agents form one world.
func (l *Layout) checkFixedRanks(joins []joinRequest) error {
	l.World = joins[0].Local[0].WorldSize
	owner := make(map[int]joinRequest)
	for _, j := range joins {
		for _, n := range j.Local {
			if n.WorldSize != l.World || n.Rank < 0 || n.Rank >= l.World {
				return fmt.Errorf("rank %d on %s has a world of %d, rank %d on %s one of %d",
					n.Rank, j.Host, n.WorldSize, joins[0].Local[0].Rank, joins[0].Host, l.World)
			}
			if other, taken := owner[n.Rank]; taken {
				return fmt.Errorf("rank %d is both on %s and on %s", n.Rank, other.Host, j.Host)
			}
			owner[n.Rank] = j
		}
	}
	if len(owner) != l.World {
		return fmt.Errorf("the world has %d ranks, and the agents bring %d", l.World, len(owner))
	}
	return nil
}

// check checks that agent 0's layout fits the agent that c is for.
func (l *Layout) check(c Config) error {
	at := l.position(c.Index)
	fits := l.Count == c.Count && len(l.Members) <= c.Count && at >= 0 && isPort(l.MasterPort) &&
		(l.WorkerPort == 0 || isPort(l.WorkerPort)) && l.Round >= 0 && l.Attempt >= 0
	if fits && len(c.Local) == 0 {
		m := l.Members[at]
		fits = m.Nproc == c.Nproc && m.First >= at && l.World <= MaxWorld && l.World-m.First >= c.Nproc
	}
	if !fits {
		return fmt.Errorf("agent 0 on %s made a layout of %d agents and %d ranks, without a place for agent %d of %d", l.Host,
			len(l.Members), l.World, c.Index, c.Count)
	}
	return nil
}

func isPort(n int) bool { return n > 0 && n <= 65535 }

// position is an agent's index among the members, or -1 if it is not a member.
func (l *Layout) position(index int) int {
	return slices.IndexFunc(l.Members, func(m Member) bool { return m.Index == index })
}

// NumbersOf lists the numbers of each worker of an agent. Node ranks count members only.
func (l *Layout) NumbersOf(w World) []RankNumbers {
	if len(w.Local) > 0 {
		return w.Local
	}
	at := l.position(w.Index)
	var list []RankNumbers
	for local := range w.Nproc {
		list = append(list, RankNumbers{
			Rank: l.Members[at].First + local, LocalRank: local,
			WorldSize: l.World, LocalWorldSize: w.Nproc,
			NodeRank: at, Nodes: len(l.Members),
		})
	}
	return list
}

// LastWord is the end of a round, as agent 0 publishes it.
type LastWord struct {
	Verdict rundir.Verdict `json:"verdict"`
	Next    bool           `json:"next"` // another round follows
}

const (
	FindingLimit = 10 * time.Second // for one call of FindDeadline
	deadlineWait = 25 * time.Second // for FindDeadline to notice that its context has ended
)

// findDeadline begins to find out when the job ends, if that is not known. The function that it returns waits for the answer.
func (r *Rendezvous) findDeadline(ctx context.Context) func() time.Time {
	c := r.cfg
	if !c.Deadline.IsZero() || c.FindDeadline == nil {
		return func() time.Time { return c.Deadline }
	}
	found := make(chan time.Time, 1)
	r.tasks.Go(func() {
		limited, cancel := context.WithTimeout(ctx, FindingLimit)
		defer cancel()
		deadline, err := c.FindDeadline(limited)
		if err != nil && ctx.Err() == nil { // otherwise the deadline is not needed any more
			c.Log.Warn("could not find out when the job ends, so workers are not warned before", "error", err)
		}
		found <- deadline
	})
	return func() time.Time {
		deadline, _ := pause.Await(found, deadlineWait)
		return deadline
	}
}

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

// RankNumbers are the numbers of one worker in the world, with torchrun's meaning of
// each number.
type RankNumbers struct {
	Rank           int `json:"rank"`
	LocalRank      int `json:"local_rank"` // its index among the workers of its node
	WorldSize      int `json:"world_size"`
	LocalWorldSize int `json:"local_world_size"` // workers on its node
	NodeRank       int `json:"node_rank"`
	Nodes          int `json:"nodes"`
}

// joinRequest is what an agent says of itself when it comes.
type joinRequest struct {
	Index   int           `json:"index"` // -1: it has no number yet
	Count   int           `json:"count"`
	Host    string        `json:"host"`
	ID      string        `json:"id,omitempty"` // unlike any other agent's, and the same by whatever connection it comes
	Version string        `json:"version"`
	Nproc   int           `json:"nproc,omitempty"`
	Local   []RankNumbers `json:"local,omitempty"`
	Clock   time.Time     `json:"clock,omitzero"` // of its node, when it said so

	Rejects *Rejection `json:"declines,omitempty"` // it cannot take part
}

// assignment is what agent 0 answers: its number and its first round, or that there is no place for it.
type assignment struct {
	Rejected *Rejection `json:"refused,omitempty"`
	Over     *LastWord  `json:"over,omitempty"` // the run ended before there was a round for it
	Index    int        `json:"index"`
	Round    int        `json:"round"`
}

// Layout is what agent 0 makes of all joins: the world of one round.
type Layout struct {
	Round      int       `json:"round"`
	Attempt    int       `json:"attempt"`
	Count      int       `json:"count"`   // of agents that there may be
	Members    []Member  `json:"members"` // agents of this round, by number
	World      int       `json:"world"`
	Host       string    `json:"host"`                  // of agent 0
	Listen     string    `json:"listen"`                // where workers on that host can be reached
	MasterAddr string    `json:"master_addr,omitempty"` // "": as configured
	MasterPort int       `json:"master_port"`
	TorchStore bool      `json:"torch_store,omitempty"` // agent 0 serves PyTorch's store there
	WorkerPort int       `json:"worker_port,omitempty"` // of the store for ddpbatch's own workers; 0: there is none
	Deadline   time.Time `json:"deadline,omitzero"`

	Participants []*Participant `json:"-"` // at agent 0: the members but itself
}

// Member is an agent that has a part in a round.
type Member struct {
	Index int    `json:"index"`
	Host  string `json:"host"`
	First int    `json:"first"` // its lowest rank, in agent mode
	Nproc int    `json:"nproc"`
}

// NewLayout makes the layout of a round, of all agents that have a number and live, and begins its services.
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

// Publish gives the layout to every agent that is in it.
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

// Forget removes what the agents said in a round that all of them have left.
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

// MasterAddr is what workers get as MASTER_ADDR: an address by which agents have reached agent 0, where the user did not say one. A
// name may be unknown on a node, and a node may know itself by a loopback address.
func (r *Rendezvous) MasterAddr(l *Layout) string {
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

func (c Config) join() joinRequest {
	j := joinRequest{Index: c.Index, Count: c.Count, Host: c.Host, ID: c.id, Version: c.Version, Nproc: c.Nproc, Local: c.Local,
		Clock: time.Now()}
	if c.Reject != nil {
		j.Rejects = c.rejection()
	}
	return j
}

// isOf tells whether another join is the same agent's: by its number on its node, or, while it has none, by its id, since a machine may
// have several.
func (j joinRequest) isOf(other joinRequest) bool {
	return j.Index == other.Index && j.Host == other.Host && (j.Index >= 0 || j.ID == other.ID)
}

// assignRanks gives every worker its numbers. joins are those of the members, in
// the order of their numbers; the first is agent 0's own.
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
			return fmt.Errorf("agent %d on %s has %d workers of its own; %d are counted before it", j.Index, j.Host, j.Nproc, l.World)
		}
		l.Members[i].First = l.World
		l.World += j.Nproc
	}
	return nil
}

// compatible says why another agent cannot be in one run with agent 0, whose join j is.
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

// checkFixedRanks checks that the numbers that all agents bring make one world.
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

// check tells whether what agent 0 sent fits the agent that c is for.
func (l *Layout) check(c Config) error {
	at := l.position(c.Index)
	fits := l.Count == c.Count && len(l.Members) <= c.Count && at >= 0 && isPort(l.MasterPort) &&
		(l.WorkerPort == 0 || isPort(l.WorkerPort)) && l.Round >= 0 && l.Attempt >= 0
	if fits && len(c.Local) == 0 {
		m := l.Members[at]
		fits = m.Nproc == c.Nproc && m.First >= at && l.World <= MaxWorld && l.World-m.First >= c.Nproc
	}
	if !fits {
		return fmt.Errorf("agent 0 on %s counts %d agents and %d ranks, in which agent %d of %d has no place", l.Host, len(l.Members),
			l.World, c.Index, c.Count)
	}
	return nil
}

func isPort(n int) bool { return n > 0 && n <= 65535 }

// position is where an agent stands among the members; -1: it is none.
func (l *Layout) position(index int) int {
	return slices.IndexFunc(l.Members, func(m Member) bool { return m.Index == index })
}

// NumbersOf are the numbers of each worker of an agent. Nodes are counted over the members.
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

// LastWord is agent 0's last word on a round.
type LastWord struct {
	Verdict rundir.Verdict `json:"verdict"`
	Next    bool           `json:"next"` // another round follows
}

const (
	FindingLimit = 10 * time.Second // for one answer of FindDeadline
	deadlineWait = 25 * time.Second // for what finds the deadline to notice that its context has ended
)

// findDeadline begins to ask when the job ends, where it is not known; the answer is waited for by calling the result.
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
		if err != nil && ctx.Err() == nil { // else nobody needs it any more
			c.Log.Warn("when the job ends is not known, so it is not warned before", "error", err)
		}
		found <- deadline
	})
	return func() time.Time {
		deadline, _ := pause.Await(found, deadlineWait)
		return deadline
	}
}

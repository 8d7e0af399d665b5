package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/reach"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/mpi/store"
)

// link is one agent's connection to the control store, in memory. It can be cut, and it can stop moving data for a while.
type link struct {
	store.Store
	ended context.Context
	cut   context.CancelCauseFunc

	mu    sync.Mutex
	still chan struct{} // nil: the link moves data
}

func newLink(s store.Store) *link {
	l := &link{Store: s}
	l.ended, l.cut = context.WithCancelCause(context.Background())
	return l
}

// freeze stops the link until the caller calls thaw.
func (l *link) freeze() (thaw func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	still := make(chan struct{})
	l.still = still
	return func() { close(still) }
}

// pass waits while the link is frozen. The returned context also ends when the link is cut.
func (l *link) pass(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ended, func() { cancel(context.Cause(l.ended)) })
	l.mu.Lock()
	still := l.still
	l.mu.Unlock()
	if still != nil {
		select {
		case <-still:
		case <-ctx.Done():
		}
	}
	return ctx, func() { stop(); cancel(nil) }
}

// said returns err as a client of a real store would.
func (l *link) said(err error) error {
	if err != nil && l.ended.Err() != nil {
		return &store.LostError{Addr: "n1:1", Err: err}
	}
	return err
}

func (l *link) Get(ctx context.Context, key string) ([]byte, error) {
	ctx, end := l.pass(ctx)
	defer end()
	value, err := l.Store.Get(ctx, key)
	_, end = l.pass(ctx) // the link may have been frozen meanwhile
	end()
	return value, l.said(err)
}

func (l *link) Add(ctx context.Context, key string, n int64) (int64, error) {
	ctx, end := l.pass(ctx)
	defer end()
	if ctx.Err() != nil {
		return 0, l.said(ctx.Err())
	}
	value, err := l.Store.Add(ctx, key, n)
	return value, l.said(err)
}

// room is a rendezvous in memory, as agent 0 serves it.
type room struct {
	t    *testing.T
	zero *Rendezvous
}

// newRoom makes agent 0, which waits for the others. opened receives its result.
func newRoom(t *testing.T, ctx context.Context, c Config) (_ *room, opened <-chan error) {
	c = complete(c)
	r := newRendezvous(ctx, c, localNetwork{})
	r.membership = newMembership(c.join())
	r.membership.oneMachine = true
	r.store, r.closer = store.Prefix(store.NewMemory(), prefix), func() error { return nil }
	ended := make(chan error, 1)
	go func() {
		err := r.gather(ctx)
		if err == nil {
			err = r.begin(ctx, 1, time.Time{})
		}
		if err != nil {
			r.closeAdmission(assignment{Rejected: RejectionOf(err)})
		}
		ended <- err
	}()
	return &room{t, r}, ended
}

// come makes another agent join. If it is admitted, the caller closes it.
func (m *room) come(ctx context.Context, c Config) (*Rendezvous, *link, error) {
	return m.comeCounting(ctx, c, (*Rendezvous).sendHeartbeats)
}

// comeCounting is come with count in place of sendHeartbeats.
func (m *room) comeCounting(ctx context.Context, c Config, count func(*Rendezvous)) (*Rendezvous, *link, error) {
	r := newRendezvous(ctx, complete(c), localNetwork{})
	l := newLink(m.zero.store)
	name := agentName(r.nonce)
	p := m.zero.membership.connect(name, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)})
	m.zero.tasks.Go(func() { m.zero.serveParticipant(p) })
	var once sync.Once
	r.store, r.closer = l, func() error {
		once.Do(func() {
			l.cut(errors.New("EOF"))
			m.zero.membership.disconnect(name)
		})
		return nil
	}
	r.tasks.Go(func() { count(r) })
	r.tasks.Go(r.awaitDismissal)
	if err := r.join(ctx); err != nil {
		return nil, l, errors.Join(r.LostOr(err), r.Close())
	}
	return r, l, nil
}

// arrival describes how another agent joins in a test of admission.
type arrival struct {
	index int
	at    time.Duration
	leave time.Duration // time after its arrival at which it leaves without an answer; 0: it stays
	spoil func(c *Config)
}

// play makes agents join agent 0, whose configuration spoil changes. It returns agent 0's layout or error, the time that this took, and the
// others' errors.
func play(t *testing.T, c Config, spoil func(*Config), arrivals ...arrival) (l *Layout, err error, took time.Duration,
	others map[int]error) {
	t.Helper()
	ctx, begun := t.Context(), time.Now()
	own := c
	own.Host = "n1"
	if spoil != nil {
		spoil(&own)
	}
	m, opened := newRoom(t, ctx, own)
	others = make(map[int]error)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, a := range arrivals {
		all.Go(func() {
			time.Sleep(a.at)
			other := c
			other.Index, other.Host = a.index, fmt.Sprintf("n%d", a.index+1)
			if a.spoil != nil {
				a.spoil(&other)
			}
			ctx := ctx
			if a.leave > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, a.leave)
				defer cancel()
			}
			r, _, err := m.come(ctx, other)
			if err == nil {
				err = r.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			others[a.index] = err
		})
	}
	err = <-opened
	took = time.Since(begun)
	all.Wait()
	l = m.zero.First
	must(t, m.zero.Close())
	return l, err, took, others
}

// The admission policy decides which agents take part, and when.
func TestJoinPolicyDecidesWhoTakesPart(t *testing.T) {
	for name, tc := range map[string]struct {
		count, min int
		arrivals   []arrival
		members    []int // nil: the run does not begin
		err        string
		cause      recovery.Cause
		took       time.Duration
	}{
		"all come": {3, 0, []arrival{{index: 2, at: time.Second}, {index: 1, at: 90 * time.Second}}, []int{0, 1, 2},
			"", "", 90 * time.Second},
		"one is enough, late":   {2, 1, []arrival{{index: 1, at: 29 * time.Second}}, []int{0, 1}, "", "", 29 * time.Second},
		"the last call is over": {3, 2, []arrival{{index: 2, at: time.Minute}}, []int{0, 2}, "", "", 90 * time.Second},
		"two are missing": {4, 0, []arrival{{index: 2}}, nil, "2 of 4 agents came within 5m0s; missing: agent 1 (n2), agent 3 (n4)",
			recovery.Timeout,
			5 * time.Minute},
		"too few": {4, 3, []arrival{{index: 1}}, nil, "2 of 4 agents came within 5m0s; missing: agent 2 (n3), agent 3 (n4)",
			recovery.Timeout, 5 * time.Minute},
		"one is lost": {3, 0, []arrival{{index: 1, at: time.Second, leave: time.Minute}, {index: 2, at: 2 * time.Minute}}, nil,
			"agent 1 on n2 was lost: " + connectionEnded, recovery.Node, 61*time.Second + SignalDelay},
		"one of more than enough is lost": {3, 2, []arrival{{index: 1, leave: 10 * time.Second}, {index: 2, at: 20 * time.Second}},
			[]int{0, 2}, "", "",
			50 * time.Second},
		"enough when the time is over": {3, 2, []arrival{{index: 2, at: 290 * time.Second}}, []int{0, 2}, "", "", 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := Config{World: World{Count: tc.count, Nproc: 2, Hosts: []string{"n1", "n2", "n3", "n4"}[:tc.count]},
					Admission: Admission{MinCount: tc.min}}
				l, err, took, others := play(t, c, nil, tc.arrivals...)
				if took.Round(time.Millisecond) != tc.took {
					t.Errorf("it took %v, want %v", took, tc.took)
				}
				if tc.members != nil {
					must(t, err)
					for i, m := range l.Members {
						if m.First != 2*i || m.Index != tc.members[i] || m.Host != fmt.Sprintf("n%d", m.Index+1) {
							t.Errorf("member %d is %+v", i, m)
						}
					}
					if l.World != 2*len(tc.members) || len(l.Members) != len(tc.members) {
						t.Errorf("the layout is %+v", l)
					}
					return
				}
				for index, err := range others {
					left := slices.ContainsFunc(tc.arrivals,
						func(a arrival) bool { return a.index == index && (a.leave > 0 || a.at > took) })
					if r := RejectionOf(err); !left && (r.Message != tc.err+tail(err) || r.Cause != string(tc.cause)) {
						t.Errorf("agent %d gets %+v", index, r)
					}
				}
				if r := RejectionOf(err); !strings.HasPrefix(r.Message, tc.err) || r.Cause != string(tc.cause) {
					t.Errorf("agent 0 says %+v, want %q", r, tc.err)
				}
			})
		})
	}
}

// tail returns the text that follows the names of the missing agents in a message.
func tail(err error) string {
	if strings.Contains(err.Error(), ErrTimeout.Error()) {
		return ": " + ErrTimeout.Error()
	}
	return ""
}

// Agents that cannot take part report the reason. The others wait neither for them nor for agents that are no longer needed.
func TestRejectingAgentsAreNotWaitedFor(t *testing.T) {
	for _, tc := range []struct {
		min     int // 0: all of them
		rejects []int
	}{
		{0, []int{0}}, {0, []int{1}}, {0, []int{1, 2}}, {0, []int{0, 2}}, {0, []int{0, 1, 2}},
		{2, []int{0}}, {2, []int{1, 2}}, {2, []int{0, 1}}, {2, []int{0, 1, 2}},
	} {
		t.Run(fmt.Sprintf("%v of three, %d needed", tc.rejects, tc.min), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				full := func(index int) func(*Config) {
					if !slices.Contains(tc.rejects, index) {
						return nil
					}
					return func(c *Config) { c.Reject = fmt.Errorf("disk %d is full", index) }
				}
				c := Config{World: World{Count: 3, Nproc: 1}, Admission: Admission{MinCount: tc.min, JoinTimeout: time.Hour}}
				_, err, took, others := play(t, c, full(0), arrival{index: 1, spoil: full(1)}, arrival{index: 2, spoil: full(2)})
				others[0] = err
				var said []string
				for _, index := range tc.rejects {
					said = append(said, fmt.Sprintf("agent %d on n%d cannot take part: disk %d is full", index, index+1, index))
				}
				if tc.rejects[0] == 0 {
					said = said[:1]
				}
				for index, err := range others {
					own := fmt.Sprintf("agent %d on n%d cannot take part: disk %d is full", index, index+1, index)
					if err == nil || !slices.Contains(said, err.Error()) && err.Error() != own {
						t.Errorf("agent %d gets %v, want one of %q", index, err, said)
					}
				}
				if took > 0 {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// All agents get the same error if they do not fit together.
func TestAgentsThatDoNotFit(t *testing.T) {
	fixed := func(rank, world int) func(*Config) {
		return func(c *Config) {
			c.Nproc, c.Local = 0, []RankNumbers{{Rank: rank, WorldSize: world, LocalWorldSize: 1, Nodes: 1}}
		}
	}
	for name, tc := range map[string]struct {
		zero, one func(*Config)
		want      string
	}{
		"version": {nil, func(c *Config) { c.Version = "v2" },
			"agent 1 on n2 runs ddpbatch v2, agent 0 on n1 runs v1: use one program on every node"},
		"count":        {nil, func(c *Config) { c.Count = 3 }, "agent 1 on n2 was started as one of 3 agents, agent 0 on n1 as one of 2"},
		"mode":         {nil, fixed(1, 2), "agent 1 on n2 and agent 0 on n1 disagree on whether ranks are fixed beforehand"},
		"rank twice":   {fixed(1, 2), fixed(1, 2), "rank 1 is both on n1 and on n2"},
		"rank missing": {fixed(0, 3), fixed(1, 3), "the world has 3 ranks, and the agents bring 2"},
		"two worlds":   {fixed(0, 2), fixed(1, 3), "rank 1 on n2 has a world of 3, rank 0 on n1 one of 2"},
		"too many": {func(c *Config) { c.Nproc = MaxWorld }, nil,
			fmt.Sprintf("agent 1 on n2 has 1 workers, after %d of other agents: each agent needs at least one, "+
				"and all together at most %[1]d",
				MaxWorld)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := Config{Identity: Identity{Version: "v1"}, World: World{Count: 2, Nproc: 1}}
				_, err, _, others := play(t, c, tc.zero, arrival{index: 1, spoil: tc.one})
				for index, err := range []error{err, others[1]} {
					if err == nil || RejectionOf(err).Message != tc.want {
						t.Errorf("agent %d gets %v, want %q", index, err, tc.want)
					}
				}
			})
		})
	}
}

// An agent that comes late takes part in the next round. A silent agent is lost after ten seconds, and learns that when it runs again.
func TestMembershipChangesBetweenRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{World: World{Count: 3, Nproc: 1}, Admission: Admission{MinCount: 1, LastCall: time.Second}}
		agent := func(index int) Config {
			c := c
			c.Index, c.Host = index, fmt.Sprintf("n%d", index+1)
			return c
		}
		m, opened := newRoom(t, t.Context(), agent(0))
		stopped := make(chan struct{}) // stops the whole process, as SIGSTOP does: it cannot notice the silence itself
		one, link, err := m.comeCounting(t.Context(), agent(1), func(r *Rendezvous) {
			tick := time.NewTicker(heartbeatEvery)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					_, _ = r.store.Add(r.ctx, fmt.Sprintf(keyHeartbeat, r.nonce), 1)
				case <-stopped:
					return
				case <-r.ctx.Done():
					return
				}
			}
		})
		must(t, err)
		must(t, <-opened)
		if l := m.zero.First; l.World != 2 || len(l.Participants) != 1 {
			t.Errorf("the first layout is %+v", l)
		}
		met := make(chan *Rendezvous)
		go func() {
			r, _, err := m.come(t.Context(), agent(2))
			must(t, err)
			met <- r
		}()
		time.Sleep(time.Hour)
		select {
		case <-met:
			t.Error("a late agent has a part in a round that has begun")
		default:
		}
		p, begun := m.zero.First.Participants[0], time.Now()
		thaw := link.freeze()
		close(stopped)
		<-p.Gone()
		if silent := time.Since(begun); silent < 9*time.Second || silent > 11*time.Second || p.Why() != silence {
			t.Errorf("it was lost after %v: %s", silent, p.Why())
		}
		l, err := m.zero.NewLayout(1, 2, time.Time{})
		must(t, err)
		must(t, m.zero.Publish(t.Context(), l))
		two := <-met
		if got := two.First; got.Round != 1 || got.World != 2 || len(got.Members) != 2 || got.Members[1].Index != 2 ||
			got.Members[1].First != 1 {
			t.Errorf("the late agent gets %+v", got)
		}
		if one.hasGivenUp() {
			t.Error("the silent one has given agent 0 up while it was stopped")
		}
		thaw()
		<-link.ended.Done()
		if lost := one.Agent0Lost(); lost.Host != "n1" || !strings.Contains(lost.Why, "it has gone on without this agent") {
			t.Errorf("the silent one says %v", lost)
		}
		if err := one.LostOr(nil); err != nil {
			t.Errorf("what went well is said to have failed: %v", err)
		}
		for _, r := range []*Rendezvous{one, two, m.zero} {
			must(t, r.Close())
		}
	})
}

// Once the run has begun, an agent that does not fit is rejected alone, and does not spoil the next round.
func TestLateAgentThatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{
			Identity: Identity{Version: "v1"}, World: World{Count: 2, Host: "n1", Nproc: 1},
			Admission: Admission{MinCount: 1, LastCall: time.Second},
		}
		m, opened := newRoom(t, t.Context(), c)
		must(t, <-opened)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		c.Index, c.Host, c.Version = 1, "n2", "v2"
		if _, _, err := m.come(ctx, c); err == nil || !strings.Contains(err.Error(), "agent 1 on n2 runs ddpbatch v2") {
			t.Errorf("it is told %v", err)
		}
		if l, err := m.zero.NewLayout(1, 2, time.Time{}); err != nil || l.World != 1 {
			t.Errorf("the next layout is %+v, %v", l, err)
		}
		must(t, m.zero.Close())
	})
}

// If another program holds the port of this machine's endpoint, the error says so after a while, and not only that agent 0 is missing.
func TestEndpointIsTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		tries time.Duration // duration of one try
		err   error
		warns string
	}{
		"by one that says nothing": {proofLimit, fmt.Errorf("%w within 5s", store.ErrSilent),
			"the program at agent 0's port does not answer"},
		"by one of another kind": {0, auth.ErrProtocol, "the program that answers is not this run's agent 0"},
		"by one that hangs up":   {0, errors.New("EOF"), "the program at agent 0's port hangs up"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testkit.Journal
				c := complete(Config{World: World{Index: -1, Count: 2, Host: "n2"},
					Network: Network{Endpoint: "n1:29400"}, Log: log.Logger()})
				c.portTaken = true
				r := newRendezvous(t.Context(), c, localNetwork{})
				d := newDialer(r)
				d.race = reach.NewRace([]string{"n1:29400"}, 0)
				d.lookup = func(context.Context, string, string) ([]netip.Addr, error) { return addrsOf("10.0.0.1"), nil }
				d.connectTo = func(ctx context.Context, _ string, _ store.DialConfig) (*store.Client, error) {
					time.Sleep(tc.tries)
					return nil, tc.err
				}
				begun := time.Now()
				_, err := d.connect(t.Context())
				if took := time.Since(begun); err == nil ||
					!strings.Contains(err.Error(), "port 29400 of this machine is taken by another program") ||
					took < takenWait || took > takenWait+2*proofLimit {
					t.Errorf("after %v it ended with %v", took, err)
				}
				if n := strings.Count(log.String(), tc.warns); n != 1 {
					t.Errorf("%d lines report it while it goes on:\n%s", n, log.String())
				}
				r.cancel()
			})
		})
	}
}

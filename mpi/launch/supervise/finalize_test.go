package supervise

import (
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/rendezvous"
)

// If agent 0 loses most nodes at once by silence, or stood still itself, the verdict blames agent 0's node.
func TestIsolatedAgent0IsTheLostOne(t *testing.T) {
	for _, test := range []struct {
		name   string
		hosts  []string // of all agents; the first is agent 0's
		silent []int    // agents that fell silent
		ended  []int    // agents whose connection ended
		stood  bool
		cause  string
		want   []string
	}{
		{"one of four", []string{"n1", "n2", "n3", "n4"}, []int{2}, nil, false, causeNode, []string{"n3"}},
		{"half of four", []string{"n1", "n2", "n3", "n4"}, []int{2, 3}, nil, false, causeNode, []string{"n3", "n4"}},
		{"most of four", []string{"n1", "n2", "n3", "n4"}, []int{1, 2, 3}, nil, false, causeNode, []string{"n1"}},
		{"the only other one", []string{"n1", "n2"}, []int{1}, nil, false, causeNode, []string{"n2"}},
		{"most of four, killed", []string{"n1", "n2", "n3", "n4"}, nil, []int{1, 2, 3}, false, causeNode, []string{"n2", "n3", "n4"}},
		{"all, after a sleep", []string{"n1", "n2"}, nil, []int{1}, true, causeNode, []string{"n1"}},
		{"none, after a sleep", []string{"n1", "n2"}, nil, nil, true, causeCrash, nil},
		{"told to end after a sleep", []string{"n1", "n2", "n3"}, nil, []int{1, 2}, true, causeCancelled, []string{"n1"}},
		{"most tasks of one node", []string{"n1", "n2", "n2", "n2"}, []int{1, 2, 3}, nil, false, causeNode, []string{"n2"}},
		{"tasks of its own node, too", []string{"n1", "n1", "n2", "n3"}, []int{1, 2, 3}, nil, false, causeNode, []string{"n1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, m := &rendezvous.Layout{}, &met{stood: test.stood}
			v := rundir.Verdict{Cause: test.cause, Host: "nx", Message: "why"}
			for i, host := range test.hosts {
				l.Members = append(l.Members, rendezvous.Member{Index: i, Host: host})
				switch {
				case slices.Contains(test.silent, i):
					if host != test.hosts[0] && !slices.Contains(m.silent, host) {
						m.silent = append(m.silent, host)
					}
				case !slices.Contains(test.ended, i):
					continue
				}
				v.Nodes = append(v.Nodes, host)
			}
			slices.Sort(v.Nodes)
			v.Nodes = slices.Compact(v.Nodes)
			s := &Supervisor{cfg: Config{World: rendezvous.World{Host: test.hosts[0]}}, round: &round{rdzv: m, layout: l}}
			got := s.blameIsolatedAgent0(v, m.stood)
			if !slices.Equal(got.Nodes, test.want) {
				t.Errorf("blames %q, want %q", got.Nodes, test.want)
			}
			turned := test.cause == causeNode && !slices.Equal(test.want, v.Nodes)
			if turned != (got.Host == test.hosts[0]) || !strings.Contains(got.Message, "why") {
				t.Errorf("became %+v, from %+v", got, v)
			}
		})
	}
}

// If the others have given up agent 0, and it resumes only to be stopped, it adopts their verdict. If agent 0 is stopped for another
// reason, it keeps its own.
func TestOthersHaveGivenAgent0Up(t *testing.T) {
	for _, test := range []struct {
		name, cause string
		stood       bool
		said        *rundir.Verdict // the verdict of another agent
		want        string
	}{
		{"given up", causeCancelled, true, &rundir.Verdict{Cause: causeNode, Host: "n1", Nodes: []string{"n1"}, Exit: 1}, causeNode},
		{"cancelled", causeCancelled, false, &rundir.Verdict{Cause: causeNode, Host: "n1", Nodes: []string{"n1"}, Exit: 1}, causeCancelled},
		{"all were cancelled", causeCancelled, true, &rundir.Verdict{Cause: causeCancelled, Host: "n2", Signal: 15, Exit: 143},
			causeCancelled},
		{"nobody said", causeCancelled, true, nil, causeCancelled},
		{"crashed", causeCrash, true, &rundir.Verdict{Cause: causeNode, Host: "n1", Nodes: []string{"n1"}, Exit: 1}, causeCrash},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := newRunDir(t)
			if test.said != nil {
				test.said.Attempt, test.said.FirstRank = 1, -1
				must(t, dir.WriteVerdict(*test.said))
			}
			m := &met{stood: test.stood}
			l := &rendezvous.Layout{Members: []rendezvous.Member{{Host: "n1"}, {Index: 1, Host: "n2"}}}
			s := &Supervisor{cfg: Config{World: rendezvous.World{Host: "n1"}, Identity: rendezvous.Identity{RunDir: dir, Attempt: 1}},
				round: &round{rdzv: m, layout: l}}
			v := rundir.Verdict{Cause: test.cause, Host: "n1", Nodes: []string{"n2"}, Exit: 143}
			if got := s.blameIsolatedAgent0(v, m.stood); got.Cause != test.want {
				t.Errorf("the cause is %s, want %s", got.Cause, test.want)
			}
		})
	}
}

// If the others gave up agent 0, their verdict says why the run ended. Agent 0's account of its own workers' ends stays, and so does an
// exit code that forbids another attempt.
func TestGivenUpKeepsTheAccount(t *testing.T) {
	said := rundir.Verdict{
		Attempt: 1, Cause: causeNode, FirstRank: -1, Host: "n1", Nodes: []string{"n1"}, Exit: exit.Failed, Requeue: true,
		Message: "agent 0 on n1 was lost", Report: "told",
	}
	mine := rundir.Verdict{
		Attempt: 1, Cause: causeCancelled, FirstRank: 2, Host: "n1", Signal: 15, Exit: 143, Round: 3, OOM: true, Message: "mine",
		Ranks: []rundir.RankEnd{{Rank: 2, Host: "n1", Signal: 9}},
	}
	dir := newRunDir(t)
	must(t, dir.WriteVerdict(said))
	s := &Supervisor{cfg: Config{World: rendezvous.World{Host: "n1"}, Identity: rendezvous.Identity{RunDir: dir, Attempt: 1}}}

	want := mine
	want.Cause, want.Host, want.Nodes, want.Message, want.Signal, want.Report = said.Cause, said.Host, said.Nodes,
		said.Message, 0, said.Report
	want.Exit, want.Requeue = said.Exit, said.Requeue
	if got, ok := s.othersVerdict(mine); !ok || !sameVerdict(got, want) {
		t.Errorf("became %+v, want %+v", got, want)
	}

	mine.Exit, want.Exit, want.Requeue = exit.Never, exit.Never, false
	want.Message = "agent 0 on n1 was lost (mine)"
	if got, ok := s.othersVerdict(mine); !ok || !sameVerdict(got, want) {
		t.Errorf("with a rank that forbids another attempt it became %+v, want %+v", got, want)
	}
}

// A node whose workers do not end is blamed, even if agent 0 stood still before it found that out.
func TestNodeOfStuckWorkersIsBlamed(t *testing.T) {
	m := &met{slept: true}
	l := &rendezvous.Layout{
		Members: []rendezvous.Member{{Host: "n1"}, {Index: 1, Host: "n2"}}, Participants: []*rendezvous.Participant{{Index: 1, Host: "n2"}},
	}
	s := &Supervisor{cfg: one(nil), round: &round{rdzv: m, layout: l}, reports: map[int]endsReport{1: {Host: "n2", Stuck: 3}}}
	if got := s.markNodes(rundir.Verdict{Cause: causeCrash}); !slices.Equal(got.Nodes, []string{"n2"}) ||
		!slices.Equal(m.dismissed, got.Nodes) {
		t.Errorf("blames %q, and goes on without %q, want n2", got.Nodes, m.dismissed)
	}
}

// If agent 0 is lost, another agent writes the verdict to disk. That verdict does not say that the run has saved, because the agent does
// not know how the others' workers ended.
func TestAnotherAgentHasTheLastWord(t *testing.T) {
	dir := newRunDir(t)
	c := one(dir)
	c.Index = 1
	s := &Supervisor{cfg: c, outcome: &rundir.Verdict{Attempt: c.Attempt, FirstRank: 1, Cause: causeStopped, Exit: exit.Requeue,
		Requeue: true, Saved: true}}
	if v, next, err := s.ReceivedVerdict(); err != nil || next || v.Cause != causeStopped {
		t.Errorf("ended with %+v, %v, %v", v, next, err)
	}
	if v, err := dir.Verdict(c.Attempt); err != nil || v.Saved || !v.Requeue || v.Exit != exit.Requeue {
		t.Errorf("on disk is %+v, %v", v, err)
	}
}

package rendezvous

import (
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"
	"time"
)

// A request of a lost participant has no effect. A participant that comes after the last round gets the run's end as its answer.
func TestLostParticipantCannotJoin(t *testing.T) {
	r := newMembership(joinRequest{Count: 2})
	lost := newParticipant("1", "")
	r.drop(lost, silence)
	if answer := r.join(lost, joinRequest{Index: 1, Host: "n2", Count: 2}); answer != nil || lost.Host != "" || r.numbered[1] != nil {
		t.Errorf("a lost participant is told %+v, and is %+v", answer, lost.join)
	}
	late, over := newParticipant("2", ""), assignment{Over: &LastWord{}}
	r.close(over)
	if answer := r.join(late, joinRequest{Index: 1, Host: "n2", Count: 2}); answer == nil || answer.Over != over.Over {
		t.Errorf("one that comes too late is told %+v", answer)
	}
	if answer := r.join(lost, joinRequest{Index: 1, Host: "n2", Count: 2}); answer != nil {
		t.Errorf("a lost participant is told %+v", answer)
	}
}

// In task mode, the numbers of missing agents do not show their nodes. The number of tasks on each node does.
func TestMissingTasksHaveNodes(t *testing.T) {
	layout := map[string]int{"n1": 2, "n2": 2, "n3": 1}
	for _, tc := range []struct {
		came []string // nodes of agents 1 and on; "": it did not come
		want string
	}{
		{[]string{"n1", "n2", "n2", ""}, "agent 4 (n3)"},
		{[]string{"n2", "n3", "n1", ""}, "agent 4 (n2)"}, // -m cyclic
		{[]string{"n1", "", "", "n3"}, "agent 2 (n2), agent 3 (n2)"},
		{[]string{"n1", "n2", "", ""}, "agent 3 (n2 or n3), agent 4 (n2 or n3)"},
		{[]string{"n1", "n2", "n2", "n9"}, ""},
	} {
		c := Config{World: World{Count: 5, Host: "n1", AgentsPerNode: layout}}
		r := newMembership(joinRequest{Count: 5, Host: "n1"})
		for i, host := range tc.came {
			if host != "" {
				if answer := r.join(newParticipant(host, ""), joinRequest{Index: i + 1, Host: host, Count: 5}); answer != nil {
					t.Fatalf("%v: told %+v", tc.came, answer)
				}
			}
		}
		m := &Rendezvous{cfg: c, membership: r}
		if got := m.missing(); got != tc.want {
			t.Errorf("%v: missing is %q, want %q", tc.came, got, tc.want)
		}
	}
	many := map[string]int{}
	for _, host := range strings.Split("a b c d e f g h i j", " ") {
		many[host] = 2
	}
	m := &Rendezvous{cfg: Config{World: World{Count: 20, Host: "a", AgentsPerNode: many}},
		membership: newMembership(joinRequest{Count: 20, Host: "a"})}
	if got := m.missing(); !strings.HasPrefix(got, "agent 1 (an unnamed node)") {
		t.Errorf("missing is %q, where it may be any of ten nodes", got)
	}
}

// The text that says what an agent waits for depends on whether the run may begin without it.
func TestWhatAnAgentWaitsFor(t *testing.T) {
	fixed := Config{World: World{Index: 1, Count: 3}, Admission: Admission{MinCount: 3}}
	elastic, unnumbered := fixed, fixed
	elastic.MinCount, unnumbered.Index = 2, -1
	for _, tc := range []struct {
		c     Config
		again bool
	}{{fixed, false}, {elastic, true}, {unnumbered, true}} {
		if got := tc.c.waitsFor(); strings.Contains(got, "next restart") != tc.again {
			t.Errorf("agent %d of %d to %d: %q", tc.c.Index, tc.c.MinCount, tc.c.Count, got)
		}
	}
}

func TestEachNumberIsOneAgents(t *testing.T) {
	addr := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7} }
	r := newMembership(joinRequest{Host: "n1", Count: 4})
	for _, name := range []string{"rank 0", "agent/", "agent/1", "agent/zz00000000000000", "agent/00"} { // a worker, or hostile
		if r.connect(name, addr("10.0.0.9")) != nil {
			t.Errorf("%q is taken for an agent", name)
		}
	}
	r.disconnect("agent/0")
	if got := r.address("fallback"); got != "fallback" {
		t.Errorf("address before anybody came is %s", got)
	}
	come := func(ip string, index int, host string) *Participant {
		p := r.connect(agentName(newNonce()), addr(ip))
		if answer := r.join(p, joinRequest{Index: index, Count: 4, Host: host}); answer != nil {
			t.Errorf("agent %d on %s is told %v", index, host, answer.Rejected)
		}
		return p
	}
	first := come("127.0.1.1", 1, "n1.cluster") // on the node of agent 0
	second := come("10.0.0.1", 2, "n3")
	double := r.connect(agentName(newNonce()), addr("10.0.0.2"))
	if r.connect(agentName(double.nonce), addr("10.0.0.2")) != nil {
		t.Error("a nonce is taken twice")
	}
	if answer := r.join(double, joinRequest{Index: 2, Count: 4, Host: "n9"}); answer == nil || answer.Rejected == nil ||
		answer.Rejected.Message != "two agents have the number 2: on n3 and on n9; give each agent its own" {
		t.Errorf("a second agent 2 is told %+v", answer)
	}
	if got := r.address(""); got != "10.0.0.1" {
		t.Errorf("address is %s, want the first that is not a loopback address", got)
	}
	if got := fmt.Sprint(r.missing()); got != "[3]" {
		t.Errorf("missing are %s", got)
	}
	astray := r.connect(agentName(newNonce()), addr("127.0.0.1"))
	if answer := r.join(astray, joinRequest{Index: 3, Count: 4, Host: "n7"}); answer == nil || answer.Rejected == nil ||
		!strings.Contains(answer.Rejected.Message,
			"the agent on n7 reached the one on n1 at 127.0.0.1, where other nodes can reach neither") {
		t.Errorf("an agent of another node that came by a loopback address is told %+v", answer)
	}
	r.disconnect(agentName(double.nonce))
	if second.isGone() {
		t.Error("agent 2 is gone with its double")
	}
	third := come("10.0.0.1", -1, "n4")
	spare := come("10.0.0.1", -1, "n5") // no number is free
	if third.Index != 3 || spare.Index != 0 || len(r.withNumbers()) != 3 {
		t.Errorf("numbers are %d and %d, and %d have one", third.Index, spare.Index, len(r.withNumbers()))
	}
	r.disconnect(agentName(second.nonce))
	if !second.isGone() || second.why != connectionEnded || spare.Index != 2 || r.firstLost() != second {
		t.Errorf("agent 2 left (%q), and the one who waited has number %d", second.why, spare.Index)
	}
	r.begin()
	if !r.drop(first, "silent") || r.drop(first, "again") || first.why != "silent" || len(r.withNumbers()) != 2 {
		t.Errorf("agent 1 was dropped: %q", first.why)
	}
	back := come("10.0.0.1", 1, "n2")
	if back.Index != 1 {
		t.Error("who comes back does not get its number")
	}
	r.close(assignment{Index: 77})
	if answer := r.join(r.connect(agentName(newNonce()), addr("10.0.0.1")), joinRequest{Index: -1, Count: 4}); answer == nil ||
		answer.Index != 77 {
		t.Errorf("who comes too late is told %+v", answer)
	}
	for nonce := range maps.Clone(r.connected) {
		r.disconnect(agentName(nonce))
	}
	r.waitGone(time.Hour) // all that came have left
}

// StoodStill reports whether agent 0 lost the others because it stood still itself. SilentHosts lists only those lost by silence, not those
// whose connection ended.
func TestAgent0ThatStoodStillLostTheOthers(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		watched time.Time  // the lost participants' watched
		stoodAt *time.Time // nil: never
		why     string
		want    bool
		silent  int
	}{
		"a loss":                      {now, nil, connectionEnded, false, 0},
		"silence":                     {now, nil, silence, false, 1},
		"not watched for long":        {now.Add(-Standstill), nil, connectionEnded, true, 0},
		"stood still about then":      {now, &now, connectionEnded, true, 0},
		"stood still an hour ago":     {now, ptr(now.Add(-time.Hour)), connectionEnded, false, 0},
		"stood still a moment before": {now, ptr(now.Add(-Standstill)), silence, true, 1},
	} {
		r := &Rendezvous{cfg: Config{World: World{Host: "n1"}}, membership: newMembership(joinRequest{Count: 3})}
		r.stoodStillAt.Store(tc.stoodAt)
		var l Layout
		for _, host := range []string{"n1", "n2", "n3"} {
			p := newParticipant(host, "")
			p.Host, p.watched = host, tc.watched
			l.Participants = append(l.Participants, p)
		}
		for _, p := range l.Participants[:2] {
			r.membership.drop(p, tc.why)
		}
		if got := r.StoodStill(&l); got != tc.want {
			t.Errorf("%s: stood still %t, want %t", name, got, tc.want)
		}
		if got := r.SilentHosts(&l); len(got) != tc.silent || tc.silent > 0 && got[0] != "n2" {
			t.Errorf("%s: silent are %q", name, got)
		}
	}
}

func ptr(t time.Time) *time.Time { return &t }

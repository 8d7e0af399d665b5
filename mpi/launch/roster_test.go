package launch

import (
	"strings"
	"testing"
)

// What a lost guest says counts no more, and changes nothing. One that comes when there is no other round is told so.
func TestArriveTooLate(t *testing.T) {
	r := newRoster(join{Count: 2})
	lost := newGuest("1", "")
	r.drop(lost, silence)
	if told := r.arrive(lost, join{Index: 1, Host: "n2", Count: 2}); told != nil || lost.join.Host != "" || r.seats[1] != nil {
		t.Errorf("a lost guest is told %+v, and is %+v", told, lost.join)
	}
	late, over := newGuest("2", ""), seat{Over: &last{}}
	r.close(over)
	if told := r.arrive(late, join{Index: 1, Host: "n2", Count: 2}); told == nil || told.Over != over.Over {
		t.Errorf("one that comes too late is told %+v", told)
	}
	if told := r.arrive(lost, join{Index: 1, Host: "n2", Count: 2}); told != nil {
		t.Errorf("a lost guest is told %+v", told)
	}
}

// In task mode numbers say nothing of nodes, but how many tasks each node has does.
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
		c := AgentConfig{Count: 5, Host: "n1", Layout: layout}
		r := newRoster(join{Count: 5, Host: "n1"})
		for i, host := range tc.came {
			if host != "" {
				if told := r.arrive(newGuest(host, ""), join{Index: i + 1, Host: host, Count: 5}); told != nil {
					t.Fatalf("%v: told %+v", tc.came, told)
				}
			}
		}
		m := &meeting{cfg: c, roster: r}
		if got := m.missing(); got != tc.want {
			t.Errorf("%v: missing is %q, want %q", tc.came, got, tc.want)
		}
	}
	many := map[string]int{}
	for _, host := range strings.Split("a b c d e f g h i j", " ") {
		many[host] = 2
	}
	m := &meeting{cfg: AgentConfig{Count: 20, Host: "a", Layout: many}, roster: newRoster(join{Count: 20, Host: "a"})}
	if got := m.missing(); !strings.HasPrefix(got, "agent 1 (an unnamed node)") {
		t.Errorf("missing is %q, where it may be any of ten nodes", got)
	}
}

// What an agent waits for depends on whether the run may begin without it.
func TestWhatAnAgentWaitsFor(t *testing.T) {
	fixed := AgentConfig{Index: 1, Count: 3, MinCount: 3}
	elastic, unnumbered := fixed, fixed
	elastic.MinCount, unnumbered.Index = 2, -1
	for _, tc := range []struct {
		c     AgentConfig
		again bool
	}{{fixed, false}, {elastic, true}, {unnumbered, true}} {
		if got := tc.c.awaits(); strings.Contains(got, "started again") != tc.again {
			t.Errorf("agent %d of %d to %d: %q", tc.c.Index, tc.c.MinCount, tc.c.Count, got)
		}
	}
}

package launch

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/reach"
)

// Agent 0 may come later than the others by seconds. What they left word of meanwhile is taken back.
func TestAgent0IsLate(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	other := w.begin(t.Context(), 1)
	var rows []reach.Row
	testkit.Eventually(t, "the word of agent 1, which by then has tried all ports", func() bool {
		rows = AgentConfig{RunDir: w.dir, Attempt: 1}.rowsOf([]int{1})
		return len(rows) == 1 && len(rows[0].Tries) == 1 && rows[0].Tries[0].Count >= 16
	})
	if rows[0].From != "n2" ||
		!strings.HasSuffix(rows[0].Tries[0].Addr, " and 15 more ports") || rows[0].Tries[0].Err != "connect: connection refused" {
		t.Errorf("it left word of %+v", rows)
	}
	first := w.begin(t.Context(), 0)
	if v := w.agree([]result{<-first, <-other}); v.Cause != "done" {
		t.Errorf("verdict is %+v", v)
	}
	if _, err := w.dir.Reach(1, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its word is still there: %v", err)
	}
}

// Two jobs that try the same ports find their own.
func TestTwoJobsOnTheSamePorts(t *testing.T) {
	one, two := newWorld(t, []int{1, 1, 1}, "say", "one"), newWorld(t, []int{1, 1, 1}, "say", "two")
	for i := range two.agents {
		two.agents[i].Ports = one.agents[i].Ports
	}
	var wg sync.WaitGroup
	for _, w := range []*world{one, two} {
		wg.Go(func() {
			if v := w.agree(w.run()); v.Cause != "done" {
				t.Errorf("verdict is %+v", v)
			}
		})
	}
	wg.Wait()
	for _, w := range []*world{one, two} {
		if out := w.out.String(); strings.Count(out, "\n") != 3 {
			t.Errorf("the ranks said %q", out)
		}
	}
}

// A name that cannot lead to agent 0 is found out.
func TestDoubt(t *testing.T) {
	for _, tc := range []struct {
		name     string
		c        AgentConfig
		resolves []string // nil: it does not
		want     string   // "": no doubt
	}{
		{"another node", AgentConfig{MasterAddr: "n1"}, []string{"10.1.0.5"}, ""},
		{"unknown", AgentConfig{MasterAddr: "n1"}, nil, ""}, // as the tries say
		{"itself", AgentConfig{MasterAddr: "n1"}, []string{"::ffff:127.0.1.1"},
			"n1 resolves to 127.0.1.1 on n2, which is n2 itself and no other node; correct the name there (/etc/hosts), use an address, or start with srun --mpi=pmi2"},
		{"itself, named by Slurm", AgentConfig{MasterAddr: "alias", Hosts: []string{"n1", "n2"}}, []string{"127.0.1.1", "::1"}, "alias resolves to 127.0.1.1 on n2"},
		{"beside agent 0", AgentConfig{MasterAddr: "n2.cluster"}, []string{"127.0.1.1"}, ""},
		{"beside agent 0, named by Slurm", AgentConfig{MasterAddr: "alias", Hosts: []string{"n2", "n2"}}, []string{"127.0.1.1"}, ""},
		{"itself and another", AgentConfig{MasterAddr: "n1"}, []string{"127.0.1.1", "10.1.0.5"}, ""},
		{"on one machine", AgentConfig{MasterAddr: "127.0.0.1"}, []string{"127.0.0.1"}, ""},
		{"pretended", AgentConfig{MasterAddr: "n1", OneMachine: true}, []string{"127.0.0.2"}, ""},
		{"told", AgentConfig{MasterAddr: "n1", Exchange: step(1)[0]}, []string{"127.0.0.2"}, ""},
		{"in the network", AgentConfig{MasterAddr: "n1", Interface: "10.1.0.0/16"}, []string{"192.168.7.5", "10.1.0.5"}, ""},
		{"in another network", AgentConfig{MasterAddr: "n1", Interface: "192.168.7.0/24"}, []string{"::ffff:10.1.0.5"},
			`n1 resolves to 10.1.0.5 on n2, which is not in "192.168.7.0/24" (interface), where alone agent 0 listens`},
		{"by a name", AgentConfig{MasterAddr: "n1", Interface: "ib0"}, []string{"10.1.0.5"}, ""},
	} {
		tc.c.Index, tc.c.Count, tc.c.Host = 1, 2, "n2"
		choice, err := reach.ParseInterface(tc.c.Interface)
		must(t, err)
		a := newApproach(&meeting{cfg: tc.c, network: network{choice: choice}})
		a.lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) {
			if host != tc.c.MasterAddr {
				t.Errorf("%s: looks for %s", tc.name, host)
			}
			if tc.resolves == nil {
				return nil, &net.DNSError{Err: "no such host", Name: host}
			}
			return addrsOf(tc.resolves...), nil
		}
		switch err := a.doubt(t.Context()); {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
}

// A name that resolves to this machine ends the wait, long before its time is over.
func TestMisnamedAgent0(t *testing.T) {
	secret, err := auth.NewSecret()
	must(t, err)
	c := AgentConfig{Index: 1, Count: 2, Host: "n2", MasterAddr: "n1", Ports: []int{1}, Secret: secret, Nproc: 1, Command: []string{"x"}, JoinTimeout: time.Hour}
	c, err = c.withDefaults()
	must(t, err)
	a := newApproach(newMeeting(t.Context(), c, network{}))
	a.race = reach.NewRace([]string{"127.0.1.1:1"}, 0) // where nobody listens
	a.lookup = func(context.Context, string, string) ([]netip.Addr, error) { return addrsOf("127.0.1.1"), nil }
	_, err = a.connect(t.Context())
	var unmet *unmetError
	if !errors.As(err, &unmet) || !strings.Contains(unmet.err.Error(), "agent 1 on n2 did not get through to agent 0 at n1: n1 resolves to 127.0.1.1 on n2") ||
		!strings.Contains(err.Error(), "127.0.1.1:1") {
		t.Errorf("error is %v", err)
	}
}

// What an agent left may have been written by anybody.
func TestHostileRows(t *testing.T) {
	w := newWorld(t, []int{1}, "say", "x")
	c := w.agents[0]
	c.Hosts = []string{"n1", "n2", "n3", "n4", "n5"}
	tries := make([]reach.Try, 200)
	for i := range tries {
		tries[i] = reach.Try{Addr: "a\x1b[2J", Count: -1, Took: -1 << 62, Err: strings.Repeat("e\n", 5)}
	}
	many, err := json.Marshal(reach.Row{From: "root@elsewhere", Tries: tries})
	must(t, err)
	for agent, text := range []string{1: "\x00", 2: string(many[:len(many)/2]), 3: string(many)} {
		if agent > 0 {
			must(t, c.RunDir.WriteReach(1, agent, []byte(text)))
		}
	}
	folder := filepath.Join(c.RunDir.Path(), "attempts", "1", "reach")
	must(t, syscall.Mkfifo(filepath.Join(folder, "4.json"), 0o600)) // whoever opens it waits for ever
	rows := c.rowsOf([]int{1, 2, 3, 4})
	text := (&unmetError{errors.New("two of five"), rows}).Error()
	if len(rows) != 4 || len(rows[2].Tries) != maxTries || strings.ContainsAny(text, "\x1b\x00") || strings.Contains(text, "elsewhere") ||
		strings.Count(text, "\n") != 1+3+maxTries || strings.Count(text, "nothing is known of it") != 3 {
		t.Errorf("%d rows:\n%s", len(rows), text)
	}
	must(t, os.RemoveAll(folder))
	if rows := c.rowsOf(make([]int, 1000)); len(rows) != maxRows {
		t.Errorf("%d rows of a thousand", len(rows))
	}
	c.RunDir = nil
	if rows := c.rowsOf([]int{1}); rows != nil {
		t.Errorf("without a run directory: %+v", rows)
	}
}

package launch

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"ddpbatch/internal/auth"
)

func TestMissingAgentsAreNamed(t *testing.T) {
	w := newWorld(t, []int{1, 1, 1, 1}, "say", "x")
	for i := range w.agents {
		w.agents[i].Hosts = []string{"n1", "n2", "n3", "n4"}
	}
	w.agents[0].JoinTimeout = 500 * time.Millisecond
	w.agents = []AgentConfig{w.agents[0], w.agents[2]} // 1 and 3 never come
	for i, r := range w.run() {
		if r.err == nil || r.Cause != "timeout" || r.Exit != 124 ||
			!strings.Contains(r.Message, "2 of 4 agents came within 500ms; missing: agent 1 (n2), agent 3 (n4)") {
			t.Errorf("agent %d ended with %+v", i, r)
		}
	}
	if v, err := w.dir.Verdict(1); err != nil || v.Cause != "timeout" {
		t.Errorf("on disk is %+v, %v", v, err)
	}
}

func TestAgent0NeverCame(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	w.agents[1].JoinTimeout = 200 * time.Millisecond
	v, err := Run(t.Context(), w.agents[1])
	if err == nil || v.Cause != "timeout" || v.Exit != 124 || !strings.Contains(v.Message, "agent 1 on n2 did not get through to agent 0 at 127.0.0.1") {
		t.Errorf("ended with %+v, %v", v, err)
	}
}

func TestWrongSecret(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	var err error
	w.agents[1].Secret, err = auth.NewSecret()
	must(t, err)
	for i := range w.agents {
		w.agents[i].JoinTimeout = time.Second
	}
	results := w.run()
	if m := results[1].Message; results[1].err == nil || !strings.Contains(m, "refused this run's secret") {
		t.Errorf("the refused agent says %q", m)
	}
	if m := results[0].Message; !strings.Contains(m, "missing: agent 1") {
		t.Errorf("agent 0 says %q", m)
	}
	if log := w.log.String(); !strings.Contains(log, "refused") {
		t.Errorf("agent 0 logged %s", log)
	}
}

// All agents get the same sentence.
func TestAgentsThatDoNotFit(t *testing.T) {
	fixed := func(rank, world int) []Place {
		return []Place{{Rank: rank, WorldSize: world, LocalWorldSize: 1, Nodes: 1}}
	}
	for name, tc := range map[string]struct {
		spoil func(agents []AgentConfig)
		want  string
	}{
		"version": {func(a []AgentConfig) { a[1].Version = "v2" },
			"agent 1 on n2 runs ddpbatch v2, agent 0 on n1 runs v1: use one program on every node"},
		"count": {func(a []AgentConfig) { a[1].Count = 3 },
			"agent 1 on n2 was started as one of 3 agents, agent 0 on n1 as one of 2"},
		"mode": {func(a []AgentConfig) { a[1].Nproc, a[1].Local = 0, fixed(1, 2) },
			"agent 1 on n2 and agent 0 on n1 disagree on whether ranks are fixed beforehand"},
		"rank twice": {func(a []AgentConfig) { a[0].Nproc, a[0].Local, a[1].Nproc, a[1].Local = 0, fixed(1, 2), 0, fixed(1, 2) },
			"rank 1 is both on n1 and on n2"},
		"rank missing": {func(a []AgentConfig) { a[0].Nproc, a[0].Local, a[1].Nproc, a[1].Local = 0, fixed(0, 3), 0, fixed(1, 3) },
			"the world has 3 ranks, and the agents bring 2"},
		"two worlds": {func(a []AgentConfig) { a[0].Nproc, a[0].Local, a[1].Nproc, a[1].Local = 0, fixed(0, 2), 0, fixed(1, 3) },
			"rank 1 on n2 has a world of 3, rank 0 on n1 one of 2"},
		"too many": {func(a []AgentConfig) { a[0].Nproc, a[1].Nproc = maxWorld, 1 },
			fmt.Sprintf("agent 1 on n2 has 1 workers of its own; %d are counted before it", maxWorld)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []int{1, 1}, "say", "x")
			tc.spoil(w.agents)
			for i, r := range w.run() {
				if r.err == nil || r.Cause != "start" || r.Exit != 1 || r.Message != tc.want {
					t.Errorf("agent %d ended with %+v; want %q", i, r, tc.want)
				}
			}
			if out := w.out.String(); out != "" {
				t.Errorf("a worker ran: %q", out)
			}
		})
	}
}

// A second agent 1 is sent away, early or late, and the run goes on.
func TestTwoAgentsWithOneNumber(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "wait", "0")
	ctx, cancel := context.WithCancelCause(t.Context())
	var results []result
	var wg sync.WaitGroup
	wg.Go(func() { results = w.runUntil(ctx) })
	w.awaitMarks("0", "1")
	second := w.agents[1]
	second.Host = "n9"
	v, err := Run(t.Context(), second)
	if err == nil || v.Exit != 1 || v.Message != "two agents say that they are agent 1: on n2 and on n9; give each a number of its own" {
		t.Errorf("the second ended with %+v, %v", v, err)
	}
	cancel(SignalError{15})
	wg.Wait()
	if v := w.agree(results); v.Cause != "cancelled" {
		t.Errorf("the run ended with %+v", v)
	}
}

func TestPortsThatAreTaken(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "environ")
	taken := w.agents[0].Ports[0]
	l, err := net.Listen("tcp", joinPort(loopback, taken))
	must(t, err)
	defer l.Close()
	go func() { // another program, which hangs up on strangers
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			conn.Close()
		}
	}()
	w.agree(w.run())
	if got := w.environOf("n1", 0)["MASTER_PORT"]; got != fmt.Sprint(w.agents[0].Ports[2]) {
		t.Errorf("MASTER_PORT is %s, want %d: the first is taken, the second agent 0's own", got, w.agents[0].Ports[2])
	}

	w = newWorld(t, []int{1, 1}, "say", "x")
	w.agents[0].Ports = []int{taken}
	v, err := Run(t.Context(), w.agents[0])
	if err == nil || v.Cause != "start" || !strings.Contains(v.Message, "none of 1 ports to meet at can be used") {
		t.Errorf("ended with %+v, %v", v, err)
	}
}

func TestMasterPortAsGiven(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "environ")
	for i := range w.agents {
		w.agents[i].MasterPort = 29500
	}
	w.agree(w.run())
	if got := w.environOf("n2", 1)["MASTER_PORT"]; got != "29500" {
		t.Errorf("MASTER_PORT is %s", got)
	}
}

// Elsewhere than in simulate, agent 0 listens on every interface.
func TestBindHost(t *testing.T) {
	for _, tc := range []struct {
		addr  string
		count int
		want  string
	}{
		{"127.0.0.1", 2, "127.0.0.1"}, {"127.0.0.3", 2, "127.0.0.3"}, {"::1", 2, "::1"}, {"localhost", 2, "localhost"},
		{"n1", 2, ""}, {"10.77.0.11", 2, ""}, {"fe80::1", 2, ""}, {"n1", 1, ""},
	} {
		if got := (AgentConfig{MasterAddr: tc.addr, Count: tc.count}).bindHost(); got != tc.want {
			t.Errorf("%s with %d agents is listened for on %q, want %q", tc.addr, tc.count, got, tc.want)
		}
	}
}

func TestRoster(t *testing.T) {
	addr := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7} }
	r := newRoster(4)
	r.joined("rank 0", addr("10.0.0.9")) // a worker, not an agent
	r.joined("agent/9", addr("10.0.0.9"))
	r.joined("agent/x", addr("10.0.0.9"))
	r.left("agent/0")
	if got := r.address("fallback"); got != "fallback" {
		t.Errorf("address before anybody came is %s", got)
	}
	r.joined("agent/1", addr("127.0.1.1"))
	r.joined("agent/2", addr("10.0.0.1"))
	r.joined("agent/2", addr("10.0.0.2")) // a second one
	if got := r.address(""); got != "10.0.0.1" {
		t.Errorf("address is %s, want the first that is no loopback", got)
	}
	if got := fmt.Sprint(r.missing()); got != "[3]" {
		t.Errorf("missing are %s", got)
	}
	r.left("agent/2")
	select {
	case <-r.gone[2]:
		t.Error("agent 2 is gone with its double")
	case <-r.complete:
		t.Error("complete without agent 3")
	default:
	}
	r.joined("agent/3", addr("10.0.0.1"))
	<-r.complete
	r.left("agent/2")
	r.left("agent/1")
	r.joined("agent/1", addr("10.0.0.1"))
	r.left("agent/1")
	if first, second := <-r.lost, <-r.lost; first != 2 || second != 1 || len(r.lost) != 0 {
		t.Errorf("lost are %d, %d and %d more", first, second, len(r.lost))
	}
	r.left("agent/3")
	r.waitGone(time.Hour) // all that came have left
}

package launch

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
)

func TestMissingAgentsAreNamed(t *testing.T) {
	w := newWorld(t, []int{1, 1, 1, 1}, "say", "x")
	for i := range w.agents {
		w.agents[i].Hosts = []string{"n1", "n2", "n3", "n4"}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	first, third := w.begin(ctx, 0), w.begin(t.Context(), 2) // 1 and 3 never come
	w.awaitLog("an agent came")
	cancel(context.DeadlineExceeded) // as when the time is over
	for i, r := range []result{<-first, <-third} {
		if r.err == nil || r.Cause != "timeout" || r.Exit != 124 ||
			!strings.Contains(r.Message, "2 of 4 agents came within 45s; missing: agent 1 (n2), agent 3 (n4)") {
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
	w.agents[0].JoinTimeout = bound
	ctx, cancel := context.WithCancelCause(t.Context())
	first := w.begin(ctx, 0)
	var second result
	// Half of the time is for another port to answer. Where a busy machine needs all of it to hear agent 0, there is more.
	for limit := 5 * time.Second; second.Cause != "start" && limit < testkit.Patience; limit *= 4 {
		w.agents[1].JoinTimeout = limit
		second = <-w.begin(t.Context(), 1)
	}
	cancel(context.DeadlineExceeded) // as when the time is over
	results := []result{<-first, second}
	refused := regexp.MustCompile(`n2    127\.0\.0\.1:\d+ +\d  +this very run refused this side's secret`)
	if r := results[1]; r.err == nil || !strings.Contains(r.Message, ": this very run refused") || r.Exit != 1 || strings.Contains(r.Message, "\n") || !refused.MatchString(r.err.Error()) {
		t.Errorf("the refused agent says %q: %v", r.Message, r.err)
	}
	if r := results[0]; r.err == nil || !strings.Contains(r.Message, "missing: agent 1") || strings.Contains(r.Message, "\n") || !refused.MatchString(r.err.Error()) {
		t.Errorf("agent 0 says %q: %v", r.Message, r.err)
	}
	if v, err := w.dir.Verdict(1); err != nil || !refused.MatchString(v.Report) {
		t.Errorf("on disk is %+v, %v", v, err)
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
	if v := w.agree(results); v.Cause != "done" {
		t.Errorf("the run ended with %+v", v)
	}
}

func TestPortsThatAreTaken(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "environ")
	isTaken := func(port int) bool { _, err := freePort([]int{port}); return err != nil }
	for slices.ContainsFunc(w.agents[0].Ports[:3], isTaken) { // another run may have one of those that matter here
		w = newWorld(t, []int{1, 1}, "environ")
	}
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
}

// heldPorts are some that another program holds, which hangs up on everybody, until the test ends.
func heldPorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := listenFirst([]string{loopback}, Ports(crand.Text(), 16))
		must(t, err)
		t.Cleanup(func() { l.Close() })
		go func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				conn.Close()
			}
		}()
		ports = append(ports, portOf(l))
	}
	return ports
}

// Anybody can hold the few ports that all agents know. They meet elsewhere, where the run directory can tell the others.
func TestAllPortsAreHeld(t *testing.T) {
	held := heldPorts(t, 8)
	w := newWorld(t, []int{1, 1, 1}, "environ")
	for i := range w.agents {
		w.agents[i].Ports = held
	}
	if v := w.agree(w.run()); v.Cause != "done" {
		t.Errorf("ended with %+v", v)
	}
	if log := w.log.String(); !strings.Contains(log, "listens at another port, which the run directory tells the others") {
		t.Errorf("agent 0 said nothing of it:\n%s", log)
	}
	// whatever is in the place of the port leads nowhere
	c := w.agents[1]
	for text, says := range map[string]string{
		`{"port":0}`: "0 is not a port", `{"port":70000}`: "70000 is not a port", "x": "invalid character", "{}": "0 is not a port",
	} {
		must(t, w.dir.WriteReach(c.Attempt, 0, []byte(text)))
		if port, err := c.portLeft(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %d, %v", text, port, err)
		}
	}
	must(t, w.dir.RemoveReach(c.Attempt, 0))
	if port, err := c.portLeft(); !errors.Is(err, errNoPortLeft) {
		t.Errorf("no file: %d, %v", port, err)
	}
}

// A port that nobody has told of is none of those that were tried.
func TestNoPortIsLeft(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	c := w.agents[1]
	c.Ports, c.JoinTimeout = []int{givenPort(t)}, 2*firstLook
	_, err := Run(t.Context(), c)
	var unmet *unmetError
	if !errors.As(err, &unmet) || len(unmet.rows) != 1 || len(unmet.rows[0].Tries) != 1 ||
		unmet.rows[0].Tries[0].Addr != joinPort(loopback, c.Ports[0]) {
		t.Errorf("it has tried %+v: %v", unmet, err)
	}
}

// Without a run directory, a person has to do something.
func TestAllPortsAreHeldByHand(t *testing.T) {
	held := heldPorts(t, 2)
	w := newWorld(t, []int{1, 1}, "say", "x")
	c := w.agents[0]
	c.Ports, c.RunDir, c.Attempt = held, nil, 0
	v, err := Run(t.Context(), c)
	if err == nil || v.Cause != "start" {
		t.Fatalf("ended with %+v, %v", v, err)
	}
	for _, says := range []string{
		"listen for the other agents: none of 2 ports can be used",
		fmt.Sprintf("%d: of user %d, %d: of user %d", held[0], os.Getuid(), held[1], os.Getuid()),
		"give another --master-port", "srun --mpi=pmi2",
	} {
		if !strings.Contains(v.Message, says) {
			t.Errorf("%q is not in %s", says, v.Message)
		}
	}
}

func TestRoster(t *testing.T) {
	addr := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7} }
	r := newRoster(join{Host: "n1", Count: 4})
	for _, name := range []string{"rank 0", "agent/", "agent/1", "agent/zz00000000000000", "agent/00"} { // a worker, or hostile
		if r.joined(name, addr("10.0.0.9")) != nil {
			t.Errorf("%q is taken for an agent", name)
		}
	}
	r.left("agent/0")
	if got := r.address("fallback"); got != "fallback" {
		t.Errorf("address before anybody came is %s", got)
	}
	come := func(ip string, index int, host string) *guest {
		g := r.joined(agentName(newNonce()), addr(ip))
		if told := r.arrive(g, join{Index: index, Count: 4, Host: host}); told != nil {
			t.Errorf("agent %d on %s is told %v", index, host, told.Refused)
		}
		return g
	}
	first := come("127.0.1.1", 1, "n1.cluster") // beside agent 0
	second := come("10.0.0.1", 2, "n3")
	double := r.joined(agentName(newNonce()), addr("10.0.0.2"))
	if r.joined(agentName(double.nonce), addr("10.0.0.2")) != nil {
		t.Error("a nonce is taken twice")
	}
	if told := r.arrive(double, join{Index: 2, Count: 4, Host: "n9"}); told == nil || told.Refused == nil ||
		told.Refused.Message != "two agents say that they are agent 2: on n3 and on n9; give each a number of its own" {
		t.Errorf("a second agent 2 is told %+v", told)
	}
	if got := r.address(""); got != "10.0.0.1" {
		t.Errorf("address is %s, want the first that is no loopback", got)
	}
	if got := fmt.Sprint(r.missing()); got != "[3]" {
		t.Errorf("missing are %s", got)
	}
	astray := r.joined(agentName(newNonce()), addr("127.0.0.1"))
	if told := r.arrive(astray, join{Index: 3, Count: 4, Host: "n7"}); told == nil || told.Refused == nil ||
		!strings.Contains(told.Refused.Message, "the agent on n7 reached the one on n1 by 127.0.0.1, where no other node could reach either") {
		t.Errorf("an agent of another node that came by a loopback address is told %+v", told)
	}
	r.left(agentName(double.nonce))
	if second.isGone() {
		t.Error("agent 2 is gone with its double")
	}
	third := come("10.0.0.1", -1, "n4")
	spare := come("10.0.0.1", -1, "n5") // no number is free
	if third.index != 3 || spare.index != 0 || len(r.seated()) != 3 {
		t.Errorf("numbers are %d and %d, and %d have one", third.index, spare.index, len(r.seated()))
	}
	r.left(agentName(second.nonce))
	if !second.isGone() || second.why != connectionEnded || spare.index != 2 || r.firstLost() != second {
		t.Errorf("agent 2 left (%q), and the one who waited has number %d", second.why, spare.index)
	}
	r.begin()
	if !r.drop(first, "silent") || r.drop(first, "again") || first.why != "silent" || len(r.seated()) != 2 {
		t.Errorf("agent 1 was dropped: %q", first.why)
	}
	back := come("10.0.0.1", 1, "n2")
	if back.index != 1 {
		t.Error("who comes back does not get its number")
	}
	r.close(seat{Index: 77})
	if told := r.arrive(r.joined(agentName(newNonce()), addr("10.0.0.1")), join{Index: -1, Count: 4}); told == nil || told.Index != 77 {
		t.Errorf("who comes too late is told %+v", told)
	}
	for nonce := range maps.Clone(r.guests) {
		r.left(agentName(nonce))
	}
	r.waitGone(time.Hour) // all that came have left
}

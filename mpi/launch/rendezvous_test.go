package launch

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/rendezvous"
)

func TestAgent0NeverCame(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	w.agents[1].JoinTimeout = 200 * time.Millisecond
	v, err := Run(t.Context(), w.agents[1])
	if err == nil || v.Cause != "timeout" || v.Exit != 124 ||
		!strings.Contains(v.Message, "agent 1 on n2 did not get through to agent 0 at 127.0.0.1") {
		t.Errorf("ended with %+v, %v", v, err)
	}
}

func TestAgentWithAWrongSecretIsRefused(t *testing.T) {
	t.Parallel() // the test mostly waits
	w := newWorld(t, []int{1, 1}, "say", "x")
	w.agents[1].Secret = auth.NewSecret()
	w.agents[0].JoinTimeout = bound
	ctx, cancel := context.WithCancelCause(t.Context())
	first := w.begin(ctx, 0)
	var second result
	// For half of the limit, another port may answer. A busy machine may need all of it to hear agent 0, so the limit grows.
	for limit := 5 * time.Second; second.Cause != "start" && limit < testkit.Patience; limit *= 4 {
		w.agents[1].JoinTimeout = limit
		second = <-w.begin(t.Context(), 1)
	}
	cancel(context.DeadlineExceeded) // as when the time is over
	results := []result{<-first, second}
	refused := regexp.MustCompile(`n2    127\.0\.0\.1:\d+ +\d  +this very run refused this side's secret`)
	if r := results[1]; r.err == nil || !strings.Contains(r.Message, ": this very run refused") || r.Exit != 1 ||
		strings.Contains(r.Message, "\n") || !refused.MatchString(r.err.Error()) {
		t.Errorf("the refused agent says %q: %v", r.Message, r.err)
	}
	if r := results[0]; r.err == nil || !strings.Contains(r.Message, "missing: agent 1") || strings.Contains(r.Message, "\n") ||
		!refused.MatchString(r.err.Error()) {
		t.Errorf("agent 0 says %q: %v", r.Message, r.err)
	}
	if v, err := w.dir.Verdict(1); err != nil || !refused.MatchString(v.Report) {
		t.Errorf("on disk is %+v, %v", v, err)
	}
	if log := w.log.String(); !strings.Contains(log, "refused") {
		t.Errorf("agent 0 logged %s", log)
	}
}

// If agents do not fit together, all of them report the same sentence.
func TestAgentsThatDoNotFit(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(agents []AgentConfig)
		want  string
	}{
		"version": {func(a []AgentConfig) { a[1].Version = "v2" },
			"agent 1 on n2 runs ddpbatch v2, agent 0 on n1 runs v1: use one program on every node"},
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

// If a second agent 1 comes after the run has begun, it is rejected, and the run goes on.
func TestSecondAgentWithANumberIsSentAway(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "wait", "0")
	ctx, cancel := context.WithCancelCause(t.Context())
	var results []result
	var wg sync.WaitGroup
	wg.Go(func() { results = w.runUntil(ctx) })
	w.awaitMarks("0", "1")
	second := w.agents[1]
	second.Host = "n9"
	v, err := Run(t.Context(), second)
	if err == nil || v.Exit != 1 || v.Message != "two agents have the number 1: on n2 and on n9; give each agent its own" {
		t.Errorf("the second ended with %+v, %v", v, err)
	}
	cancel(SignalError{Sig: 15})
	wg.Wait()
	if v := w.agree(results); v.Cause != "done" {
		t.Errorf("the run ended with %+v", v)
	}
}

func TestPortsThatAreTaken(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "environ")
	ports := []int{givenPort(t), givenPort(t), givenPort(t)}
	for i := range w.agents {
		w.agents[i].Ports = ports
	}
	taken := ports[0]
	l, err := net.Listen("tcp", joinPort(rendezvous.Loopback, taken))
	must(t, err)
	defer l.Close()
	go func() { // another program, which closes every connection
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			conn.Close()
		}
	}()
	w.agree(w.run())
	if got := w.environOf("n1", 0)["MASTER_PORT"]; got != fmt.Sprint(ports[2]) {
		t.Errorf("MASTER_PORT is %s, want %d: the first is taken, the second agent 0's own", got, ports[2])
	}
}

// heldPorts are ports that another program holds until the test ends. It closes every connection.
func heldPorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := listenFirst(Ports(crand.Text(), 16))
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

// If other programs hold the few ports that all agents know, agents meet at a port that the run directory names.
func TestAllPortsAreHeld(t *testing.T) {
	held := heldPorts(t, 8)
	w := newWorld(t, []int{1, 1, 1}, "environ")
	for i := range w.agents {
		w.agents[i].Ports = held
	}
	if v := w.agree(w.run()); v.Cause != "done" {
		t.Errorf("ended with %+v", v)
	}
	if log := w.log.String(); !strings.Contains(log, "listens at another port, which the others find in the run directory") {
		t.Errorf("agent 0 said nothing of it:\n%s", log)
	}
}

// If agent 0 has not saved a port, the error lists only the ports that all agents know.
func TestNoPortIsLeft(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	c := w.agents[1]
	c.Ports, c.JoinTimeout = []int{givenPort(t)}, 2*time.Second
	_, err := Run(t.Context(), c)
	var unmet *rendezvous.NotMetError
	if !errors.As(err, &unmet) || len(unmet.Rows) != 1 || len(unmet.Rows[0].Tries) != 1 ||
		unmet.Rows[0].Tries[0].Addr != joinPort(rendezvous.Loopback, c.Ports[0]) {
		t.Errorf("it has tried %+v: %v", unmet, err)
	}
}

// If other programs hold all ports and there is no run directory, agents cannot meet, and the error says what to do.
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

// relay holds the first of a run's ports. It passes agent 1's data on to agent 0, which listens at a later port, and the answers back.
type relay struct {
	mu     sync.Mutex
	change func(part []byte) []byte // changes agent 0's answers
	passed bytes.Buffer             // the data of both directions
}

// relayed puts a relay between agent 1 and agent 0.
func relayed(t *testing.T, w *world) *relay {
	t.Helper()
	ports := []int{givenPort(t), givenPort(t)}
	for i := range w.agents {
		w.agents[i].Ports = ports
	}
	l, err := listenFirst(ports)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	w.agents[1].Ports = []int{portOf(l)}
	r := &relay{change: func(part []byte) []byte { return part }}
	go func() {
		for near, err := l.Accept(); err == nil; near, err = l.Accept() {
			go r.serve(near, ports, portOf(l))
		}
	}()
	return r
}

func (r *relay) serve(near net.Conn, ports []int, own int) {
	defer near.Close()
	for _, port := range ports {
		if port == own {
			continue
		}
		far, err := net.Dial("tcp", joinPort(rendezvous.Loopback, port))
		if err != nil {
			continue
		}
		defer far.Close()
		go r.pass(far, near, false)
		r.pass(near, far, true)
		return
	}
}

func (r *relay) pass(to, from net.Conn, answers bool) {
	defer to.(*net.TCPConn).CloseWrite()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		part := buf[:n]
		r.mu.Lock()
		r.passed.Write(part)
		if answers && n > 0 {
			part = r.change(part)
		}
		r.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(part); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// TestRelayBetweenAgents lets agent 1 reach agent 0 only through a relay. The run begins, because the relay passes on what it cannot
// read: neither MASTER_PORT nor the run's ID, for example.
func TestRelayBetweenAgents(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "environ")
	r := relayed(t, w)
	if v := w.agree(w.run()); v.Cause != "done" {
		t.Fatalf("ended with %+v", v)
	}
	port := w.environOf("n1", 0)["MASTER_PORT"]
	if other := w.environOf("n2", 1)["MASTER_PORT"]; port == "" || other != port {
		t.Errorf("MASTER_PORT is %q on n1 and %q on n2", port, other)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.passed.Len() == 0 {
		t.Fatal("nothing went through the relay")
	}
	for _, text := range []string{port, "MASTER", "environ", w.agents[0].RunID, "MasterPort"} {
		if strings.Contains(r.passed.String(), text) {
			t.Errorf("the relay could read %q", text)
		}
	}
}

// TestRelayChangesTheLayout has the relay change the last byte of each answer after agent 1 has proved itself, but before agent 0 sends the
// layout. Agent 1 then does not start a worker.
func TestRelayChangesTheLayout(t *testing.T) {
	w := newWorld(t, []int{1, 1, 1}, "environ")
	for i := range w.agents {
		w.agents[i].JoinTimeout = 10 * time.Second
	}
	r := relayed(t, w)
	changed := 0
	first, second := w.begin(t.Context(), 0), w.begin(t.Context(), 1)
	w.awaitLog("an agent came")
	r.mu.Lock()
	r.change = func(part []byte) []byte { changed++; part[len(part)-1] ^= 1; return part }
	r.mu.Unlock()
	third := w.begin(t.Context(), 2)
	for i, end := range []result{<-first, <-second, <-third} {
		if end.Cause == "done" {
			t.Errorf("agent %d ended with %+v", i, end)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if changed == 0 {
		t.Error("the relay had nothing to change")
	}
	if text, err := os.ReadFile(w.dir.LogPath(1, "n2", 1, "out")); err == nil && len(text) > 0 {
		t.Errorf("agent 1 has started a worker:\n%s", text)
	}
}

// BenchmarkRendezvous measures the time from the start of two agents to the end of their workers. The workers do nothing, so nearly all of
// it is the rendezvous.
func BenchmarkRendezvous(b *testing.B) {
	w := newWorld(b, []int{1, 1}, "")
	for i := range w.agents {
		w.agents[i].Command, w.agents[i].RunDir = []string{"true"}, nil
	}
	for b.Loop() {
		for i, r := range w.run() {
			if r.err != nil || r.Exit != 0 {
				b.Fatalf("agent %d ended with %+v", i, r)
			}
		}
	}
}

package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/reach"
	"ddpbatch/mpi/launch/rendezvous"
)

// Agent 0 may start seconds after the others. Until then they save their tries in the run directory. They remove them once all have met.
func TestAgent0IsLate(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	other := w.begin(t.Context(), 1)
	var rows []reach.AgentTries
	testkit.Eventually(t, "the word of agent 1, which by then has tried all ports", func() bool {
		text, err := w.dir.Reach(1, 1)
		var row reach.AgentTries
		if err != nil || json.Unmarshal(text, &row) != nil {
			return false
		}
		rows = []reach.AgentTries{row}
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

func TestTwoJobsOnTheSamePortsFindTheirOwn(t *testing.T) {
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

// Agent 0 refuses an agent whose secret is not the run's, and logs that once. The refused agent ends.
func TestAgentWithAnotherSecretEnds(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]*world{"ports": newWorld(t, []int{1, 1}, "say", "x"), "told": newStep(t, 2, "say", "x"),
		"endpoint": newEndpointWorld(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // with several ports, the test mostly waits
			secret := auth.NewSecret()
			for i := range w.agents {
				w.agents[i].Secret, w.agents[i].JoinTimeout = secret, 16*time.Second
			}
			w.agents[1].Secret[0]++
			ctx, cancel := context.WithCancel(t.Context())
			first := w.begin(ctx, 0)
			if addr := w.agents[1].Endpoint; addr != "" {
				awaitListener(t, addr) // the first to listen is agent 0
			}
			r := <-w.begin(t.Context(), 1)
			if r.err == nil || r.Exit != 1 || r.Cause != "start" ||
				!strings.Contains(r.Message, "this very run refused this side's secret") ||
				!strings.Contains(r.Message, "DDPBATCH_SECRET") {
				t.Errorf("the agent with another secret ended with %+v", r)
			}
			testkit.Eventually(t, "agent 0's warning", func() bool { return strings.Contains(w.log.String(), auth.ErrUnproved.Error()) })
			cancel()
			<-first
			if n := strings.Count(w.log.String(), auth.ErrUnproved.Error()); n != 1 ||
				!strings.Contains(w.log.String(), "remote=127.0.0.1:") {
				t.Errorf("agent 0 tells %d times of one host:\n%s", n, w.log.String())
			}
		})
	}
}

// If another run with the same ID holds one of the ports, agent 1 does not join that run. It waits for its own agent 0, which comes later,
// to the next port.
func TestAnotherRunOfTheSameIDIsNotJoined(t *testing.T) {
	one, two := newWorld(t, []int{1, 1}, "say", "x"), newWorld(t, []int{1, 1}, "say", "x")
	ports := []int{givenPort(t), givenPort(t)}
	for i := range 2 {
		one.agents[i].RunID, two.agents[i].RunID = "100", "100" // torchrun's own example of --rdzv-id
		one.agents[i].Ports, two.agents[i].Ports = ports[:1], ports
	}
	var log testkit.Journal
	two.agents[1].Log = log.Logger()
	ctx, cancel := context.WithCancel(t.Context())
	first := one.begin(ctx, 0)
	awaitListener(t, fmt.Sprintf("%s:%d", rendezvous.Loopback, ports[0]))
	late := two.begin(ctx, 1)
	testkit.Eventually(t, "agent 1 hears that it is refused",
		func() bool { return strings.Contains(log.String(), "refused this side's secret") })
	if v := two.agree([]result{<-two.begin(ctx, 0), <-late}); v.Cause != "done" {
		t.Errorf("verdict is %+v", v)
	}
	cancel()
	<-first
}

// awaitListener waits until a process listens at addr.
func awaitListener(t *testing.T, addr string) {
	t.Helper()
	testkit.Eventually(t, "somebody listens at "+addr, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// newEndpointWorld makes two agents that meet at an endpoint.
func newEndpointWorld(t *testing.T) *world {
	w := newWorld(t, []int{1, 1}, "say", "x")
	port := givenPort(t)
	for i := range w.agents {
		w.agents[i].Ports = []int{port}
	}
	w.agents[1].Endpoint = fmt.Sprintf("%s:%d", rendezvous.Loopback, w.agents[1].Ports[0])
	w.agents[1].Index = -1
	w.agents[1].RunDir, w.agents[0].RunDir = nil, nil
	return w
}

// If another run's agent 0 holds the only port that an agent knows, the agent ends with an error long before JoinTimeout.
func TestAnotherRunHasTheEndpoint(t *testing.T) {
	t.Parallel() // the test mostly waits
	one, two := newEndpointWorld(t), newEndpointWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	first := one.begin(ctx, 0)
	c := two.agents[1]
	c.Endpoint, c.JoinTimeout = one.agents[1].Endpoint, time.Hour
	two.agents = []AgentConfig{c}
	awaitListener(t, c.Endpoint)
	r := <-two.begin(t.Context(), 0)
	if r.err == nil || r.Exit != 1 || r.Cause != "start" ||
		!strings.Contains(r.Message, c.Endpoint+": handshake: the server refused this run's secret") {
		t.Errorf("the agent ended with %+v", r)
	}
	cancel()
	<-first
}

// foreign listens at a free port in place of an agent. It accepts every connection and calls answer with it.
func foreign(t *testing.T, answer func(net.Conn)) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", rendezvous.Loopback+":0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			answer(conn)
		}
	}()
	return l
}

func saysNothing(net.Conn) {}

// hangsUp closes the connection without reading. The other side gets a reset, or EOF if it has not sent anything yet.
func hangsUp(conn net.Conn) { conn.Close() }

// If another program holds the endpoint's port on agent 0's machine, the error says so, and not only that agent 0 is missing.
func TestEndpointIsTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(net.Conn)
		warns  string
	}{
		"by one that hangs up": {hangsUp, "the program at agent 0's port hangs up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the test mostly waits
			l := foreign(t, tc.answer)
			var c AgentConfig
			var log *testkit.Journal
			var r result
			// Agent 0 has half of the limit to answer, and each try a quarter.
			// A busy machine may need more time, so the limit grows.
			for limit := 12 * time.Second; r.Cause != "start" && limit < bound; limit *= 3 {
				w := newEndpointWorld(t)
				c, log = w.agents[1], new(testkit.Journal)
				c.Endpoint, c.JoinTimeout, c.Log = l.Addr().String(), limit, log.Logger()
				w.agents = []AgentConfig{c}
				r = <-w.begin(t.Context(), 0)
			}
			want := fmt.Sprintf("port %d of this machine is taken by another program", portOf(l))
			if r.err == nil || r.Exit != 1 || r.Cause != "start" || !strings.Contains(r.Message, want) ||
				!strings.Contains(r.Message, "ss -tanp") {
				t.Errorf("the agent ended with %+v, want %q", r, want)
			}
			if r.took >= c.JoinTimeout {
				t.Errorf("it took %v", r.took)
			}
			if n := strings.Count(log.String(), tc.warns); n != 1 {
				t.Errorf("%d lines report it while it goes on:\n%s", n, log.String())
			}
		})
	}
}

// isOfAnotherVersion answers as an agent 0 with another version of the protocol does.
func isOfAnotherVersion(conn net.Conn) {
	if _, err := auth.ReadPreface(conn); err == nil {
		conn.Write(auth.AppendPreface(nil, auth.Version+1))
	}
	conn.Close()
}

// An agent that finds an agent 0 of another version names both versions in one sentence and says what to do. If agent 0 may still come to
// another port, that sentence is in the log at once, and in the error at the end.
func TestAgentsOfDifferentVersionsSaySo(t *testing.T) {
	versions := fmt.Sprintf("the peer speaks version %d of ddpbatch's protocol, this side version %d: run the same build on every node",
		auth.Version+1, auth.Version)
	for name, tc := range map[string]struct {
		ports       int
		cause, says string
		exit        int
	}{
		"one port": {1, "start", "did not get through to agent 0 at 127.0.0.1: ADDR: ", 1},
		"two ports": {
			2, "timeout", "did not get through to agent 0 at 127.0.0.1: within LIMIT: the time for all agents to meet " +
				"is over, and at ADDR ", 124,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the test mostly waits
			l := foreign(t, isOfAnotherVersion)
			var log *testkit.Journal
			var r result
			var limit time.Duration
			// Each try has a quarter of the limit. A busy machine may need more time for it, so the limit grows.
			for limit = time.Second; limit == time.Second || limit < testkit.Patience && log.String() == ""; limit *= 4 {
				w := newEndpointWorld(t)
				c := w.agents[1]
				log = new(testkit.Journal)
				c.Log = log.Logger()
				if tc.ports == 1 {
					c.Endpoint = l.Addr().String()
				} else {
					c.Endpoint, c.Index, c.Ports, c.JoinTimeout = "", 1, append(Ports(w.cookie, 1), portOf(l)), limit
				}
				w.agents = []AgentConfig{c}
				r = <-w.begin(t.Context(), 0)
			}
			want := strings.NewReplacer("ADDR", l.Addr().String(), "LIMIT", (limit / 4).String()).Replace(tc.says)
			if r.err == nil || r.Cause != tc.cause || r.Exit != tc.exit || !strings.Contains(r.Message, want) ||
				!strings.HasSuffix(r.Message, versions) || strings.Contains(r.Message, "\n") {
				t.Errorf("the agent ended with %+v; want %q and %q", r, want, versions)
			}
			if got := log.String(); strings.Count(got, "a ddpbatch of another version has agent 0's port") != 1 ||
				!strings.Contains(got, versions) {
				t.Errorf("the log is\n%s", got)
			}
		})
	}
}

func TestAgent0ReportsAnotherVersionAtOnce(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	ctx, cancel := context.WithCancel(t.Context())
	first := w.begin(ctx, 0)
	testkit.Eventually(t, "agent 0 tells its version", func() bool {
		conn, err := net.Dial("tcp", joinPort(rendezvous.Loopback, w.agents[0].Ports[0])) // no other test gets this port
		if err != nil {
			return false
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(testkit.Patience))
		conn.Write(auth.AppendPreface(nil, auth.Version-1))
		theirs, err := auth.ReadPreface(conn)
		return err == nil && theirs == auth.Version
	})
	w.awaitLog(fmt.Sprintf("the peer speaks version %d of ddpbatch's protocol, this side version %d: run the same build on every node",
		auth.Version-1, auth.Version))
	cancel()
	<-first
}

// If a program at an endpoint on another machine is silent, the agent tries again until JoinTimeout, because agent 0 may still come there.
// Each try has its own limit.
func TestSilentAddressElsewhereIsTriedAgain(t *testing.T) {
	t.Parallel() // the test mostly waits
	l := foreign(t, saysNothing)
	var log *testkit.Journal
	var try reach.Try
	// Each try has a quarter of the limit. A busy machine may need more time for two tries, so the limit grows.
	for limit := 3 * time.Second; try.Count < 2 && limit < testkit.Patience; limit *= 4 {
		w := newEndpointWorld(t)
		c := w.agents[1]
		log = new(testkit.Journal)
		c.Endpoint, c.JoinTimeout, c.Log, c.DialOnly = l.Addr().String(), limit, log.Logger(), true
		w.agents = []AgentConfig{c}
		r := <-w.begin(t.Context(), 0)
		var unmet *rendezvous.NotMetError
		if !errors.Is(r.err, rendezvous.ErrTimeout) || !errors.As(r.err, &unmet) || len(unmet.Rows) != 1 || len(unmet.Rows[0].Tries) != 1 {
			t.Fatalf("the agent ended with %+v", r)
		}
		try = unmet.Rows[0].Tries[0]
	}
	if try.Count < 2 || !strings.Contains(try.Err, "nothing was proved within") {
		t.Errorf("it tried %+v", try)
	}
	if n := strings.Count(log.String(), "nothing was proved within"); n != 1 || !strings.Contains(log.String(), l.Addr().String()) {
		t.Errorf("%d lines report it:\n%s", n, log.String())
	}
}

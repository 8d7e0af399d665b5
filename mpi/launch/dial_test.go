package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/reach"
	"ddpbatch/mpi/store"
)

// Agent 0 may come later than the others by seconds. What they left word of meanwhile is taken back.
func TestAgent0IsLate(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	other := w.begin(t.Context(), 1)
	var rows []reach.AgentTries
	testkit.Eventually(t, "the word of agent 1, which by then has tried all ports", func() bool {
		rows = AgentConfig{Identity: Identity{RunDir: w.dir, Attempt: 1}}.savedTries([]int{1})
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
func TestNameThatCannotLeadThere(t *testing.T) {
	for _, tc := range []struct {
		name     string
		c        AgentConfig
		resolves []string // nil: it does not
		want     string   // "": no doubt
	}{
		{"another node", AgentConfig{Network: Network{MasterAddr: "n1"}}, []string{"10.1.0.5"}, ""},
		{"unknown", AgentConfig{Network: Network{MasterAddr: "n1"}}, nil, ""}, // as the tries say
		{"itself", AgentConfig{Network: Network{MasterAddr: "n1"}}, []string{"::ffff:127.0.1.1"},
			"n1 resolves to 127.0.1.1 on n2, which is n2 itself and no other node; correct the name there (/etc/hosts), use an address, or start with srun --mpi=pmi2"},
		{"itself, named by Slurm", AgentConfig{Network: Network{MasterAddr: "alias"}, World: World{Hosts: []string{"n1", "n2"}}}, []string{"127.0.1.1", "::1"}, "alias resolves to 127.0.1.1 on n2"},
		{"beside agent 0", AgentConfig{Network: Network{MasterAddr: "n2.cluster"}}, []string{"127.0.1.1"}, ""},
		{"beside agent 0, named by Slurm", AgentConfig{Network: Network{MasterAddr: "alias"}, World: World{Hosts: []string{"n2", "n2"}}}, []string{"127.0.1.1"}, ""},
		{"itself and another", AgentConfig{Network: Network{MasterAddr: "n1"}}, []string{"127.0.1.1", "10.1.0.5"}, ""},
		{"on one machine", AgentConfig{Network: Network{MasterAddr: "127.0.0.1"}}, []string{"127.0.0.1"}, ""},
		{"pretended", AgentConfig{Network: Network{MasterAddr: "n1", OneMachine: true}}, []string{"127.0.0.2"}, ""},
		{"told", AgentConfig{Network: Network{MasterAddr: "n1", Exchange: step(1)[0]}}, []string{"127.0.0.2"}, ""},
		{"in the network", AgentConfig{Network: Network{MasterAddr: "n1", Interface: "10.1.0.0/16"}}, []string{"192.168.7.5", "10.1.0.5"}, ""},
		{"in another network", AgentConfig{Network: Network{MasterAddr: "n1", Interface: "192.168.7.0/24"}}, []string{"::ffff:10.1.0.5"},
			`n1 resolves to 10.1.0.5 on n2, which is not in "192.168.7.0/24" (interface), where alone agent 0 listens`},
		{"by a name", AgentConfig{Network: Network{MasterAddr: "n1", Interface: "ib0"}}, []string{"10.1.0.5"}, ""},
	} {
		tc.c.Index, tc.c.Count, tc.c.Host = 1, 2, "n2"
		choice, err := reach.ParseInterface(tc.c.Interface)
		must(t, err)
		d := newDialer(&rendezvous{cfg: tc.c, network: network{choice: choice}})
		d.lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) {
			if host != tc.c.MasterAddr {
				t.Errorf("%s: looks for %s", tc.name, host)
			}
			if tc.resolves == nil {
				return nil, &net.DNSError{Err: "no such host", Name: host}
			}
			return addrsOf(tc.resolves...), nil
		}
		switch err := d.whyUnreachable(t.Context()); {
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
	c := AgentConfig{
		World:     World{Index: 1, Count: 2, Host: "n2", Nproc: 1},
		Network:   Network{MasterAddr: "n1", Ports: []int{1}},
		Identity:  Identity{Secret: secret},
		Workers:   Workers{Command: []string{"x"}},
		Admission: Admission{JoinTimeout: time.Hour},
	}
	c, err = c.withDefaults()
	must(t, err)
	d := newDialer(newRendezvous(t.Context(), c, network{}))
	d.race = reach.NewRace([]string{"127.0.1.1:1"}, 0) // where nobody listens
	d.lookup = func(context.Context, string, string) ([]netip.Addr, error) { return addrsOf("127.0.1.1"), nil }
	_, err = d.connect(t.Context())
	var unmet *notMetError
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
	many, err := json.Marshal(reach.AgentTries{From: "root@elsewhere", Tries: tries})
	must(t, err)
	for agent, text := range []string{1: "\x00", 2: string(many[:len(many)/2]), 3: string(many)} {
		if agent > 0 {
			must(t, c.RunDir.WriteReach(1, agent, []byte(text)))
		}
	}
	folder := filepath.Join(c.RunDir.Path(), "attempts", "1", "reach")
	must(t, syscall.Mkfifo(filepath.Join(folder, "4.json"), 0o600)) // whoever opens it waits for ever
	rows := c.savedTries([]int{1, 2, 3, 4})
	text := (&notMetError{errors.New("two of five"), rows}).Error()
	if len(rows) != 4 || len(rows[2].Tries) != maxTries || strings.ContainsAny(text, "\x1b\x00") || strings.Contains(text, "elsewhere") ||
		strings.Count(text, "\n") != 1+3+maxTries || strings.Count(text, "nothing is known of it") != 3 {
		t.Errorf("%d rows:\n%s", len(rows), text)
	}
	must(t, os.RemoveAll(folder))
	if rows := c.savedTries(make([]int, 1000)); len(rows) != maxRows {
		t.Errorf("%d rows of a thousand", len(rows))
	}
	c.RunDir = nil
	if rows := c.savedTries([]int{1}); rows != nil {
		t.Errorf("without a run directory: %+v", rows)
	}
}

// An agent with another secret than its run's hears so from agent 0, and ends; agent 0 tells once that it came.
func TestOtherSecret(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]*world{"ports": newWorld(t, []int{1, 1}, "say", "x"), "told": newStep(t, 2, "say", "x"), "endpoint": newEndpointWorld(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is a pause, where there are several ports
			secret, err := auth.NewSecret()
			must(t, err)
			for i := range w.agents {
				w.agents[i].Secret, w.agents[i].JoinTimeout = secret, 16*time.Second
			}
			w.agents[1].Secret[0]++
			ctx, cancel := context.WithCancel(t.Context())
			first := w.begin(ctx, 0)
			if addr := w.agents[1].Endpoint; addr != "" {
				awaitListener(t, addr) // who comes first is agent 0
			}
			r := <-w.begin(t.Context(), 1)
			if r.err == nil || r.Exit != 1 || r.Cause != "start" || !strings.Contains(r.Message, "this very run refused this side's secret") ||
				!strings.Contains(r.Message, "DDPBATCH_SECRET") {
				t.Errorf("the agent with another secret ended with %+v", r)
			}
			testkit.Eventually(t, "agent 0 tells of it", func() bool { return strings.Contains(w.log.String(), auth.ErrUnproved.Error()) })
			cancel()
			<-first
			if n := strings.Count(w.log.String(), auth.ErrUnproved.Error()); n != 1 || !strings.Contains(w.log.String(), "remote=127.0.0.1:") {
				t.Errorf("agent 0 tells %d times of one host:\n%s", n, w.log.String())
			}
		})
	}
}

// Another user's run of the same id has one of the ports; the own agent 0 comes later, to the next one.
func TestAnotherRunOfTheSameID(t *testing.T) {
	one, two := newWorld(t, []int{1, 1}, "say", "x"), newWorld(t, []int{1, 1}, "say", "x")
	ports := Ports(one.cookie, 2)
	for i := range 2 {
		one.agents[i].RunID, two.agents[i].RunID = "100", "100" // torchrun's own example of --rdzv-id
		one.agents[i].Ports, two.agents[i].Ports = ports[:1], ports
	}
	var log testkit.Journal
	two.agents[1].Log = log.Logger()
	ctx, cancel := context.WithCancel(t.Context())
	first := one.begin(ctx, 0)
	awaitListener(t, fmt.Sprintf("%s:%d", loopback, ports[0]))
	late := two.begin(ctx, 1)
	testkit.Eventually(t, "agent 1 hears that it is refused", func() bool { return strings.Contains(log.String(), "refused this side's secret") })
	if v := two.agree([]result{<-two.begin(ctx, 0), <-late}); v.Cause != "done" {
		t.Errorf("verdict is %+v", v)
	}
	cancel()
	<-first
}

// A refusal of the secret is the last word of all addresses together, or of some for a while.
func TestRefusalIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		addrs := []string{"n1:1", "n1:2"}
		patient := AgentConfig{Admission: Admission{JoinTimeout: time.Hour}}
		alone := &dialer{cfg: patient, race: reach.NewRace(addrs[:1], 0), refusedAt: make(map[string]time.Time)}
		if !alone.isFinal(addrs[0], store.ErrOtherSecret) {
			t.Error("nobody else can be agent 0, and it goes on")
		}
		d := &dialer{cfg: patient, race: reach.NewRace(addrs, 0), refusedAt: make(map[string]time.Time)}
		for range 3 { // it is taken back where another answer comes
			if d.isFinal(addrs[0], store.ErrOtherSecret) || d.isFinal(addrs[1], none) {
				t.Error("agent 0 may come to the other address, and it ends")
			}
			time.Sleep(refusalWait - time.Second)
			if d.isFinal(addrs[0], store.ErrOtherSecret) || d.isFinal(addrs[0], none) {
				t.Error("it ends too soon")
			}
		}
		d.isFinal(addrs[0], store.ErrOtherSecret)
		time.Sleep(refusalWait)
		if d.isFinal(addrs[1], none) || !d.isFinal(addrs[0], store.ErrOtherSecret) {
			t.Errorf("it does not end with what was said for %v", refusalWait)
		}
		d.isFinal(addrs[0], none)
		if d.isFinal(addrs[0], store.ErrOtherSecret) || !d.isFinal(addrs[1], store.ErrOtherSecret) {
			t.Error("it does not end when all have said it")
		}
	})
}

// awaitListener waits until somebody listens there.
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

// newEndpointWorld is two agents that meet at an endpoint.
func newEndpointWorld(t *testing.T) *world {
	w := newWorld(t, []int{1, 1}, "say", "x")
	for i := range w.agents {
		w.agents[i].Ports = Ports(w.cookie, 1)
	}
	w.agents[1].Endpoint = fmt.Sprintf("%s:%d", loopback, w.agents[1].Ports[0])
	w.agents[1].Index = -1
	w.agents[1].RunDir, w.agents[0].RunDir = nil, nil
	return w
}

// Another run's agent 0 has the only port that the agents know of, and keeps it.
func TestAnotherRunHasTheEndpoint(t *testing.T) {
	t.Parallel() // most of it is a pause
	one, two := newEndpointWorld(t), newEndpointWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	first := one.begin(ctx, 0)
	c := two.agents[1]
	c.Endpoint, c.JoinTimeout = one.agents[1].Endpoint, time.Hour
	two.agents = []AgentConfig{c}
	awaitListener(t, c.Endpoint)
	r := <-two.begin(t.Context(), 0)
	if r.err == nil || r.Exit != 1 || r.Cause != "start" || !strings.Contains(r.Message, c.Endpoint+": handshake: the server refused this run's secret") {
		t.Errorf("the agent ended with %+v", r)
	}
	cancel()
	<-first
}

// foreign is a program that has the endpoint's port and is no agent: it takes every connection, and answers so.
func foreign(t *testing.T, answer func(net.Conn)) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", loopback+":0")
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

func sendsMail(conn net.Conn) { io.WriteString(conn, "220 mail.example.org ESMTP") } // who does not hear it has hung up

// hangsUp leaves what was sent unread, which the other side finds as a reset, or before anything was sent, as an end.
func hangsUp(conn net.Conn) { conn.Close() }

// Another program has the endpoint's port on the machine that is to have agent 0: a person hears so, and not only that nobody is there.
func TestEndpointIsTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(net.Conn)
		warns  string
	}{
		"by one that says nothing": {saysNothing, "somebody has agent 0's port and does not answer"},
		"by one of another kind":   {sendsMail, "the peer is not a ddpbatch"},
		"by one that hangs up":     {hangsUp, "somebody has agent 0's port and hangs up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is a pause
			l := foreign(t, tc.answer)
			var c AgentConfig
			var log *testkit.Journal
			var r result
			// Half of the time is for agent 0 to answer, and a try has a quarter. Where a busy machine needs more between them, there is more.
			for limit := 12 * time.Second; r.Cause != "start" && limit < bound; limit *= 3 {
				w := newEndpointWorld(t)
				c, log = w.agents[1], new(testkit.Journal)
				c.Endpoint, c.JoinTimeout, c.Log = l.Addr().String(), limit, log.Logger()
				w.agents = []AgentConfig{c}
				r = <-w.begin(t.Context(), 0)
			}
			want := fmt.Sprintf("port %d of this machine is taken by another program", portOf(l))
			if r.err == nil || r.Exit != 1 || r.Cause != "start" || !strings.Contains(r.Message, want) || !strings.Contains(r.Message, "ss -tanp") {
				t.Errorf("the agent ended with %+v, want %q", r, want)
			}
			if r.took >= c.JoinTimeout {
				t.Errorf("it took %v", r.took)
			}
			if n := strings.Count(log.String(), tc.warns); n != 1 {
				t.Errorf("%d lines tell of it while it goes on:\n%s", n, log.String())
			}
		})
	}
}

// isOfAnotherVersion answers as an agent 0 does that speaks another version of the protocol.
func isOfAnotherVersion(conn net.Conn) {
	if _, err := auth.ReadPreface(conn); err == nil {
		conn.Write(auth.AppendPreface(nil, auth.Version+1))
	}
	conn.Close()
}

// Agents of different versions that meet say so in one sentence: which two, and what to do. Where agent 0 may still come to another port,
// it is said at once in the log, and in the end.
func TestAgentsOfDifferentVersions(t *testing.T) {
	versions := fmt.Sprintf("the peer speaks version %d of ddpbatch's protocol, this side version %d: run the same build on every node",
		auth.Version+1, auth.Version)
	for name, tc := range map[string]struct {
		ports       int
		cause, says string
		exit        int
	}{
		"one port": {1, "start", "did not get through to agent 0 at 127.0.0.1: ADDR: ", 1},
		"two ports": {
			2, "timeout", "did not get through to agent 0 at 127.0.0.1: within LIMIT: the time for all agents to meet is over, and at ADDR ", 124,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is a pause
			l := foreign(t, isOfAnotherVersion)
			var log *testkit.Journal
			var r result
			var limit time.Duration
			// A try has a quarter of the time. Where a busy machine needs more for it, there is more.
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
			if got := log.String(); strings.Count(got, "a ddpbatch of another version has agent 0's port") != 1 || !strings.Contains(got, versions) {
				t.Errorf("the log is\n%s", got)
			}
		})
	}
}

// Agent 0 tells of an agent of another version as soon as that comes.
func TestAgentOfAnotherVersionComes(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	ctx, cancel := context.WithCancel(t.Context())
	first := w.begin(ctx, 0)
	tries := func(port int) bool { // another program may have one of the ports
		conn, err := net.Dial("tcp", joinPort(loopback, port))
		if err != nil {
			return false
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(testkit.Patience))
		conn.Write(auth.AppendPreface(nil, auth.Version-1))
		theirs, err := auth.ReadPreface(conn)
		return err == nil && theirs == auth.Version
	}
	testkit.Eventually(t, "agent 0 tells its version", func() bool { return slices.ContainsFunc(w.agents[0].Ports, tries) })
	w.awaitLog(fmt.Sprintf("the peer speaks version %d of ddpbatch's protocol, this side version %d: run the same build on every node",
		auth.Version-1, auth.Version))
	cancel()
	<-first
}

// On another machine agent 0 may still come to the port, which it looks for until the time is over: each try has a limit of its own.
func TestSilentElsewhere(t *testing.T) {
	t.Parallel() // most of it is a pause
	l := foreign(t, saysNothing)
	var log *testkit.Journal
	var try reach.Try
	// A try has a quarter of the time. Where a busy machine needs more between them, there is more.
	for limit := 3 * time.Second; try.Count < 2 && limit < testkit.Patience; limit *= 4 {
		w := newEndpointWorld(t)
		c := w.agents[1]
		log = new(testkit.Journal)
		c.Endpoint, c.JoinTimeout, c.Log, c.Guest = l.Addr().String(), limit, log.Logger(), true
		w.agents = []AgentConfig{c}
		r := <-w.begin(t.Context(), 0)
		var unmet *notMetError
		if !errors.Is(r.err, ErrTimeout) || !errors.As(r.err, &unmet) || len(unmet.rows) != 1 || len(unmet.rows[0].Tries) != 1 {
			t.Fatalf("the agent ended with %+v", r)
		}
		try = unmet.rows[0].Tries[0]
	}
	if try.Count < 2 || !strings.Contains(try.Err, "nothing was proved within") {
		t.Errorf("it tried %+v", try)
	}
	if n := strings.Count(log.String(), "nothing was proved within"); n != 1 || !strings.Contains(log.String(), l.Addr().String()) {
		t.Errorf("%d lines tell of it:\n%s", n, log.String())
	}
}

// Agent 0 has its port and is slow to serve it: that is no other program.
func TestSlowAgent0IsMet(t *testing.T) {
	t.Parallel() // most of it is a pause
	w := newEndpointWorld(t)
	l, err := net.Listen("tcp", w.agents[1].Endpoint)
	must(t, err)
	first, err := w.agents[0].withDefaults()
	must(t, err)
	first.JoinTimeout = testkit.Patience
	var log testkit.Journal
	c := w.agents[1]
	c.JoinTimeout, c.Log = 12*time.Second, log.Logger()
	w.agents = []AgentConfig{c}
	ctx, cancel := context.WithCancel(t.Context())
	ended := w.begin(ctx, 0)
	testkit.Eventually(t, "the silence is told of", func() bool { return strings.Contains(log.String(), "nothing was proved within") })
	r, err := serveRendezvous(t.Context(), first, network{}, l)
	must(t, err)
	if n := len(r.first.Members); n != 2 {
		t.Errorf("%d agents met", n)
	}
	cancel()
	must(t, r.close())
	<-ended
}

// What is no word of an agent 0 counts against a port from its first time on, and is forgotten where nobody listens or an agent answers.
func TestPortIsTaken(t *testing.T) {
	silent := fmt.Errorf("%w within 5s", store.ErrSilent)
	nobody := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, tc := range []struct {
		name  string
		here  bool
		since time.Duration // when the port was first found so; 0: it was not
		err   error
		want  bool
	}{
		{"the first silence", true, 0, silent, false},
		{"silence goes on", true, takenWait, silent, true},
		{"it hangs up", true, takenWait, io.EOF, true},
		{"it speaks another language", true, takenWait, auth.ErrProtocol, true},
		{"an agent of another run", true, takenWait, auth.ErrRefused, false},
		{"an agent with another secret", true, takenWait, auth.ErrUnproved, false},
		{"an agent of another version", true, takenWait, &auth.VersionError{}, false},
		{"nobody", true, takenWait, nobody, false},
		{"on another machine", false, takenWait, silent, false},
	} {
		d := newDialer(&rendezvous{cfg: AgentConfig{
			Admission: Admission{JoinTimeout: time.Hour},
			Network:   Network{Ports: []int{4711}},
			portTaken: tc.here, Log: slog.New(slog.DiscardHandler),
		}})
		if tc.since > 0 {
			d.takenSince = time.Now().Add(-tc.since)
		}
		err := d.classify("n1:4711", tc.err)
		if got := strings.Contains(err.Error(), "port 4711 of this machine is taken by another program"); got != tc.want || !errors.Is(err, tc.err) && tc.err != error(nobody) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if counts := tc.here && (tc.want || tc.since == 0); d.takenSince.IsZero() == counts {
			t.Errorf("%s: it is taken since %v", tc.name, d.takenSince)
		}
	}
}

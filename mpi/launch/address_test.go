package launch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/reach"
)

func addrsOf(list ...string) (addrs []netip.Addr) {
	for _, s := range list {
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	return addrs
}

// What agent 0 listens on, and what it tells the others.
func TestHosts(t *testing.T) {
	tell := func(c AgentConfig) AgentConfig {
		c.Exchange = step(1)[0]
		return c
	}
	tasks := AgentConfig{World: World{Count: 2, Local: []Place{{Nodes: 1}}}, Network: Network{MasterAddr: "n1"}}
	for _, tc := range []struct {
		name  string
		c     AgentConfig
		addrs []string // that the interface allows
		want  string
	}{
		{"by a name", AgentConfig{World: World{Count: 2}, Network: Network{MasterAddr: "n1"}}, nil, ""},
		{"by an address", AgentConfig{World: World{Count: 2}, Network: Network{MasterAddr: "10.77.0.11"}}, nil, ""},
		{"pretended", AgentConfig{World: World{Count: 2}, Network: Network{MasterAddr: "127.0.0.3"}}, nil, "127.0.0.3"},
		{"by hand", AgentConfig{World: World{Count: 2}, Network: Network{MasterAddr: "localhost"}}, nil, "localhost"},
		{"IPv6", AgentConfig{World: World{Count: 2}, Network: Network{MasterAddr: "::1"}}, nil, "::1"},
		{"alone", AgentConfig{World: World{Count: 1}, Network: Network{MasterAddr: "n1"}}, nil, "127.0.0.1"},
		{"an interface", AgentConfig{World: World{Count: 2}, Network: Network{MasterAddr: "n1"}}, []string{"10.1.0.5", "fd00::5"}, "10.1.0.5 fd00::5"},
		{"told", tell(AgentConfig{World: World{Count: 2}, Network: Network{MasterAddr: "n1"}}), nil, ""},
		{"told, an interface", tell(AgentConfig{World: World{Count: 2}, Network: Network{MasterAddr: "n1"}}), []string{"10.1.0.5"}, "10.1.0.5"},
		{"tasks of one node", tasks, nil, ""}, // which know its name alone
		{"told, tasks of one node", tell(tasks), nil, "127.0.0.1"},
	} {
		if got := strings.Join(network{addrs: addrsOf(tc.addrs...)}.hosts(tc.c), " "); got != tc.want {
			t.Errorf("%s: listens on %q, want %q", tc.name, got, tc.want)
		}
	}
	if got, err := (network{addrs: addrsOf("10.1.0.5")}).offered(AgentConfig{World: World{Count: 2}}); err != nil || !slices.Equal(got, addrsOf("10.1.0.5")) {
		t.Errorf("offers %v, %v", got, err)
	}
	if got, err := (network{}).offered(tasks); err != nil || !slices.Equal(got, addrsOf(loopback)) {
		t.Errorf("tasks of one node are offered %v, %v", got, err)
	}
}

// An interface that is not there is an error of a node; where all is on this machine nobody asks for one.
func TestNetworkOfAnInterface(t *testing.T) {
	c := AgentConfig{World: World{Count: 2, Host: "n2"}, Network: Network{MasterAddr: "n1", Interface: "nosuch0"}}
	if _, err := c.network(); err == nil || !strings.Contains(err.Error(), `on n2: there is no network address that "nosuch0" (interface) allows; it has lo`) {
		t.Errorf("error is %v", err)
	}
	c.Interface = "192.0.2.77"
	if _, err := c.network(); err == nil || !strings.Contains(err.Error(), "on n2: there is no network address 192.0.2.77 here, which --local-addr or interface asks for; it has lo") {
		t.Errorf("error is %v", err)
	}
	for name, change := range map[string]func(*AgentConfig){
		"alone":        func(c *AgentConfig) { c.Count = 1 },
		"pretended":    func(c *AgentConfig) { c.OneMachine = true },
		"one machine":  func(c *AgentConfig) { c.MasterAddr = "localhost" },
		"no interface": func(c *AgentConfig) { c.Interface = "" },
	} {
		c := c
		change(&c)
		if n, err := c.network(); err != nil || len(n.addrs) != 0 {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
}

// Workers use the network that was asked for, though agent 0 was reached by another.
func TestOwnAddress(t *testing.T) {
	for _, tc := range []struct {
		allowed []string
		local   string
		want    string
		warns   bool
	}{
		{nil, "10.1.0.6", "10.1.0.6", false},
		{[]string{"192.168.7.6", "10.1.0.6"}, "10.1.0.6", "10.1.0.6", false},
		{[]string{"192.168.7.6", "fd00::6"}, "10.1.0.6", "192.168.7.6", true},
		{[]string{"192.168.7.6", "fd00::6"}, "fd01::6", "fd00::6", true},
		{[]string{"192.168.7.6"}, "fd01::6", "192.168.7.6", true},
		{[]string{"192.168.7.6"}, "127.0.0.1", "127.0.0.1", false},
	} {
		got, warn := network{addrs: addrsOf(tc.allowed...)}.own(netip.MustParseAddr(tc.local))
		if got.String() != tc.want || (warn != "") != tc.warns {
			t.Errorf("%s with %v: %s, %q", tc.local, tc.allowed, got, warn)
		}
	}
}

// Foreign commands are told the interface by which the agents have met, where there are several nodes.
func TestSocketVariables(t *testing.T) {
	links, err := reach.Links()
	must(t, err)
	addrs, err := reach.Choice{}.Addresses(links)
	if err != nil {
		t.Skip("needs a network: ", err)
	}
	name := reach.NameOf(links, addrs[0])
	met := func() *rendezvous {
		return &rendezvous{cfg: AgentConfig{World: World{Count: 2}}, workerAddr: addrs[0].String()}
	}
	say := func(r *rendezvous, nodes int) string {
		var words []string
		for _, v := range r.socketVariables(Place{Nodes: nodes}) {
			words = append(words, v.name+"="+v.value)
		}
		return strings.Join(words, " ")
	}
	both := "GLOO_SOCKET_IFNAME=" + name + " TP_SOCKET_IFNAME=" + name
	all := both + " NCCL_SOCKET_IFNAME==" + name
	r := met()
	want := both
	if len(reach.Choice{}.Names(links)) == 1 {
		want = all
	}
	if got := say(r, 2); got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	r.network.addrs = addrs[:1]
	if got := say(r, 2); got != all {
		t.Errorf("where the user has chosen, told %q, want %q", got, all)
	}
	for what, change := range map[string]func(*rendezvous){
		"of ddpbatch's own":     func(r *rendezvous) { r.cfg.Builtin = true },
		"of pretended nodes":    func(r *rendezvous) { r.cfg.OneMachine = true },
		"by a loopback address": func(r *rendezvous) { r.workerAddr = loopback },
		"by a lost interface":   func(r *rendezvous) { r.workerAddr = "192.0.2.250" },
	} {
		r := met()
		change(r)
		if got := say(r, 2); got != "" {
			t.Errorf("workers %s are told %s", what, got)
		}
	}
	if got := say(met(), 1); got != "" {
		t.Errorf("workers of one node are told %s", got)
	}
}

func TestSameHost(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"n1", "n1", true}, {"n1", "N1.cluster", true}, {"n1.a", "n1.b", true}, {"n1", "n2", false}, {"n1", "n10", false},
		{"10.0.0.1", "10.0.0.1", true}, {"10.0.0.1", "10.0.0.2", false}, {"10.0.0.1", "10", false},
	} {
		if got := sameHost(tc.a, tc.b); got != tc.want {
			t.Errorf("%s and %s: %t", tc.a, tc.b, got)
		}
	}
}

// What workers get as MASTER_ADDR.
func TestMasterAddr(t *testing.T) {
	for _, tc := range []struct {
		name    string
		c       AgentConfig
		reached string
		served  string // where PyTorch's store is
		want    string
	}{
		{"reached", AgentConfig{Network: Network{MasterAddr: "n1"}}, "10.1.0.5", "", "10.1.0.5"},
		{"nobody had to", AgentConfig{Network: Network{MasterAddr: "n1"}}, "", "", "n1"},
		{"by hand", AgentConfig{Network: Network{MasterAddr: "n1", MasterGiven: true}}, "10.1.0.5", "", "n1"},
		{"PyTorch's store", AgentConfig{Network: Network{MasterAddr: "n1", MasterGiven: true}}, "10.1.0.5", "10.1.0.6", "10.1.0.6"},
		{"IPv6 by name", AgentConfig{Network: Network{MasterAddr: "n1"}}, "fd00::5", "", "n1"},
		{"IPv6 told", AgentConfig{Network: Network{MasterAddr: "n1", Exchange: step(1)[0]}}, "fd00::5", "", "fd00::5"},
	} {
		if got := (&rendezvous{cfg: tc.c, agent0Addr: tc.reached}).masterAddr(&layout{MasterAddr: tc.served}); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestBadEndpoints(t *testing.T) {
	good := newWorld(t, []int{1}, "say", "x").agents[0]
	for endpoint, want := range map[string]bool{
		"": false, "n1": false, "n1:": false, ":29400": false, "n1:0": false, "n1:x": false, "n1:70000": false,
		"$(hostname):29400": false, "n1,n2:29400": false, "a b:29400": false, ".cluster:29400": false, "n1..cluster:29400": false, "n1%eth0:29400": false,
		"n[1-2]:29400": false, "[n1:2]:29400": false, "ä.cluster:29400": false, "n1/24:29400": false,
		"n1:29400": true, "login-1.my_cluster.:29400": true, "10.1.0.5:29400": true, "[::1]:29400": true, "[fe80::1%eth0]:29400": true,
	} {
		c := good
		c.Index, c.Endpoint = -1, endpoint
		if _, err := c.withDefaults(); (err == nil) != want {
			t.Errorf("%q: %v, want it to be taken: %t", endpoint, err, want)
		}
	}
}

// unanswered is what a name service says that does not find a name.
func unanswered(why string) error { return &net.DNSError{Err: why, Name: "n9"} }

// A name that nobody knows may be known soon; who waited in vain says what was tried.
func TestEndpointUnknown(t *testing.T) {
	for _, test := range []struct {
		name    string
		answers []string // second by second; then there is none until the time is over
		said    []string // by the lines after 10 and 20 s
		want    string
	}{
		{"unknown", append(strings.Split(strings.Repeat("server misbehaving,", 15), ",")[:15], "no such host", "no such host", "no such host"),
			[]string{"server misbehaving", "no such host"}, "18     lookup n9: no such host"},
		{"no answer", nil, []string{"no answer", "no answer"}, "0      no answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, []int{1}, "say", "x")
			synctest.Test(t, func(t *testing.T) {
				c := w.agents[0]
				c.Index, c.Count, c.Endpoint, c.JoinTimeout = -1, 2, "n9:29400", 25*time.Second
				tries := 0
				c.Resolve = func(ctx context.Context, network, host string) ([]netip.Addr, error) {
					if network != "ip" || host != "n9" {
						t.Errorf("asks for %s of %s", network, host)
					}
					if tries++; tries <= len(test.answers) {
						return nil, unanswered(test.answers[tries-1])
					}
					<-ctx.Done()
					return nil, unanswered("i/o timeout")
				}
				begin := time.Now()
				v, err := Run(t.Context(), c)
				if took := time.Since(begin); !errors.Is(err, ErrTimeout) || v.Cause != "timeout" || v.Exit != 124 || took != c.JoinTimeout {
					t.Errorf("after %v it ended with %+v, %v", took, v, err)
				}
				for _, text := range []string{"did not find the endpoint's host n9: within 25s", "n9:29400", test.want} {
					if !strings.Contains(v.Report, text) {
						t.Errorf("the report lacks %q:\n%s", text, v.Report)
					}
				}
			})
			lines := strings.Split(strings.TrimSpace(w.log.String()), "\n")
			if len(lines) != len(test.said) {
				t.Fatalf("it told %q", lines)
			}
			for i, text := range test.said {
				if !strings.Contains(lines[i], text) {
					t.Errorf("line %d lacks %q: %s", i, text, lines[i])
				}
			}
		})
	}
}

// The time in which a name was not known yet is part of the time that agents have to meet.
func TestJoinTimeoutAfterAName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []int{1}, "say", "x")
	c := w.agents[0]
	c.Index, c.Count, c.OneMachine, c.MasterAddr, c.Endpoint = -1, 2, false, "", joinPort("n9", c.Ports[0])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var deadlines []time.Time
	c.Resolve = func(ctx context.Context, _, _ string) ([]netip.Addr, error) { // while it looks for the name, and later for the reason
		deadline, _ := ctx.Deadline()
		switch deadlines = append(deadlines, deadline); len(deadlines) {
		case 1:
			return nil, unanswered("no such host")
		case 2:
			return addrsOf("192.0.2.1"), nil // RFC 5737: nobody's
		}
		cancel()
		return nil, unanswered("no such host")
	}
	if _, err := Run(ctx, c); err == nil {
		t.Error("it met somebody")
	}
	if len(deadlines) != 3 || deadlines[0].IsZero() || !deadlines[2].Equal(deadlines[0]) {
		t.Errorf("the deadlines were %v, want one", deadlines)
	}
}

// And so it is for the agent that has the endpoint.
func TestJoinTimeoutOfAgent0AfterAName(t *testing.T) {
	c, err := newWorld(t, []int{1, 1}, "say", "x").agents[0].withDefaults()
	must(t, err)
	l, err := net.Listen("tcp", loopback+":0")
	must(t, err)
	c.JoinTimeout, c.joinBy = time.Hour, time.Now()
	ctx, cancel := context.WithTimeoutCause(t.Context(), testkit.Patience, errors.New("it still waits"))
	defer cancel()
	if _, err := serveRendezvous(ctx, c, network{}, l); !errors.Is(err, ErrTimeout) {
		t.Errorf("ended with %v", err)
	}
}

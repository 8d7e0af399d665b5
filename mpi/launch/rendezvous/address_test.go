package rendezvous

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/reach"
)

func addrsOf(list ...string) (addrs []netip.Addr) {
	for _, s := range list {
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	return addrs
}

// Agent 0 listens on the right addresses, and offers them to the others.
func TestAgent0PublishesWhereItListens(t *testing.T) {
	withExchange := func(c Config) Config {
		c.Exchange = exchangeNothing
		return c
	}
	tasks := Config{World: World{Count: 2, Local: []RankNumbers{{Nodes: 1}}}, Network: Network{MasterAddr: "n1"}}
	for _, tc := range []struct {
		name  string
		c     Config
		addrs []string // addresses that the interface allows
		want  string
	}{
		{"by a name", Config{World: World{Count: 2}, Network: Network{MasterAddr: "n1"}}, nil, ""},
		{"by an address", Config{World: World{Count: 2}, Network: Network{MasterAddr: "10.77.0.11"}}, nil, ""},
		{"pretended", Config{World: World{Count: 2}, Network: Network{MasterAddr: "127.0.0.3"}}, nil, "127.0.0.3"},
		{"by hand", Config{World: World{Count: 2}, Network: Network{MasterAddr: "localhost"}}, nil, "localhost"},
		{"IPv6", Config{World: World{Count: 2}, Network: Network{MasterAddr: "::1"}}, nil, "::1"},
		{"alone", Config{World: World{Count: 1}, Network: Network{MasterAddr: "n1"}}, nil, "127.0.0.1"},
		{"an interface", Config{World: World{Count: 2}, Network: Network{MasterAddr: "n1"}},
			[]string{"10.1.0.5", "fd00::5"}, "10.1.0.5 fd00::5"},
		{"told", withExchange(Config{World: World{Count: 2}, Network: Network{MasterAddr: "n1"}}), nil, ""},
		{"told, an interface", withExchange(Config{World: World{Count: 2}, Network: Network{MasterAddr: "n1"}}),
			[]string{"10.1.0.5"}, "10.1.0.5"},
		{"tasks of one node", tasks, nil, ""}, // the other tasks know only the node's name
		{"told, tasks of one node", withExchange(tasks), nil, "127.0.0.1"},
	} {
		if got := strings.Join(localNetwork{addrs: addrsOf(tc.addrs...)}.hosts(tc.c), " "); got != tc.want {
			t.Errorf("%s: listens on %q, want %q", tc.name, got, tc.want)
		}
	}
	if got, err := (localNetwork{addrs: addrsOf("10.1.0.5")}).offered(Config{World: World{Count: 2}}); err != nil ||
		!slices.Equal(got, addrsOf("10.1.0.5")) {
		t.Errorf("offers %v, %v", got, err)
	}
	if got, err := (localNetwork{}).offered(tasks); err != nil || !slices.Equal(got, addrsOf(Loopback)) {
		t.Errorf("tasks of one node are offered %v, %v", got, err)
	}
}

// An interface that does not exist is an error that names the node, unless all agents are on this machine.
func TestMissingInterfaceIsAnError(t *testing.T) {
	c := Config{World: World{Count: 2, Host: "n2"}, Network: Network{MasterAddr: "n1", Interface: "nosuch0"}}
	if _, err := c.network(); err == nil ||
		!strings.Contains(err.Error(), `on n2: no network address that "nosuch0" (interface) allows; it has lo`) {
		t.Errorf("error is %v", err)
	}
	c.Interface = "192.0.2.77"
	if _, err := c.network(); err == nil ||
		!strings.Contains(err.Error(),
			"on n2: no network address 192.0.2.77 here, which --local-addr or interface asks for; it has lo") {
		t.Errorf("error is %v", err)
	}
	for name, change := range map[string]func(*Config){
		"alone":        func(c *Config) { c.Count = 1 },
		"pretended":    func(c *Config) { c.OneMachine = true },
		"one machine":  func(c *Config) { c.MasterAddr = "localhost" },
		"no interface": func(c *Config) { c.Interface = "" },
	} {
		c := c
		change(&c)
		if n, err := c.network(); err != nil || len(n.addrs) != 0 {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
}

// Workers use the network that the user chose, even if agent 0 was reached through another one.
func TestWorkersUseTheChosenNetwork(t *testing.T) {
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
		got, warn := localNetwork{addrs: addrsOf(tc.allowed...)}.own(netip.MustParseAddr(tc.local))
		if got.String() != tc.want || (warn != "") != tc.warns {
			t.Errorf("%s with %v: %s, %q", tc.local, tc.allowed, got, warn)
		}
	}
}

func TestSameHostIgnoresCaseAndDomain(t *testing.T) {
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

// Workers get the address at which agent 0 was reached as MASTER_ADDR, unless another one is given or PyTorch's store is elsewhere.
func TestMasterAddrIsWhereAgent0WasReached(t *testing.T) {
	for _, tc := range []struct {
		name    string
		c       Config
		reached string
		served  string // the address of PyTorch's store
		want    string
	}{
		{"reached", Config{Network: Network{MasterAddr: "n1"}}, "10.1.0.5", "", "10.1.0.5"},
		{"nobody had to", Config{Network: Network{MasterAddr: "n1"}}, "", "", "n1"},
		{"by hand", Config{Network: Network{MasterAddr: "n1", MasterGiven: true}}, "10.1.0.5", "", "n1"},
		{"PyTorch's store", Config{Network: Network{MasterAddr: "n1", MasterGiven: true}}, "10.1.0.5", "10.1.0.6", "10.1.0.6"},
		{"IPv6 by name", Config{Network: Network{MasterAddr: "n1"}}, "fd00::5", "", "n1"},
		{"IPv6 told", Config{Network: Network{MasterAddr: "n1", Exchange: exchangeNothing}}, "fd00::5", "", "fd00::5"},
	} {
		if got := (&Rendezvous{cfg: tc.c, agent0Addr: tc.reached}).MasterAddr(&Layout{MasterAddr: tc.served}); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestBadEndpointsAreRefused(t *testing.T) {
	for endpoint, want := range map[string]bool{
		"": false, "n1": false, "n1:": false, ":29400": false, "n1:0": false, "n1:x": false, "n1:70000": false,
		"$(hostname):29400": false, "n1,n2:29400": false, "a b:29400": false, ".cluster:29400": false, "n1..cluster:29400": false,
		"n1%eth0:29400": false,
		"n[1-2]:29400":  false, "[n1:2]:29400": false, "ä.cluster:29400": false, "n1/24:29400": false,
		"n1:29400": true, "login-1.my_cluster.:29400": true, "10.1.0.5:29400": true, "[::1]:29400": true, "[fe80::1%eth0]:29400": true,
	} {
		if _, _, err := SplitEndpoint(endpoint); (err == nil) != want {
			t.Errorf("%q: %v, want it to be taken: %t", endpoint, err, want)
		}
	}
}

// The time of the name lookup also counts against the JoinTimeout of the agent that holds the endpoint.
func TestNameLookupCountsAsAgent0sJoinTime(t *testing.T) {
	secret := auth.NewSecret()
	c := complete(Config{
		Identity: Identity{RunID: "test", Secret: secret}, World: World{Count: 2, Host: "n1", Nproc: 1}, Network: Network{OneMachine: true},
	})
	l, err := net.Listen("tcp", Loopback+":0")
	must(t, err)
	c.JoinTimeout, c.joinBy = time.Hour, time.Now()
	ctx, cancel := context.WithTimeoutCause(t.Context(), testkit.Patience, errors.New("it still waits"))
	defer cancel()
	if _, err := serveRendezvous(ctx, c, localNetwork{}, listeners{l}); !errors.Is(err, ErrTimeout) {
		t.Errorf("ended with %v", err)
	}
}

// Workers use the interface through which their agent is connected to the other agents.
func TestWorkerInterfaceIsThatOfTheAgents(t *testing.T) {
	var interfaces []reach.Interface
	list := func() []reach.Interface {
		now, err := reach.Interfaces()
		must(t, err)
		return now
	}
	r := &Rendezvous{}
	var name string
	var chosen bool
	testkit.Eventually(t, "no interface comes or goes, as those of other tests' clusters do", func() bool {
		interfaces = list()
		addrs, err := reach.Choice{}.Addresses(interfaces)
		if err != nil {
			return true
		}
		r.workerAddr = addrs[0].String()
		name, chosen = r.WorkerInterface()
		return reflect.DeepEqual(list(), interfaces)
	})
	addrs, err := reach.Choice{}.Addresses(interfaces)
	if err != nil {
		t.Skip("needs a network: ", err)
	}
	want, only := reach.NameOf(interfaces, addrs[0]), len(reach.Choice{}.Names(interfaces)) == 1
	if name != want || chosen != only {
		t.Errorf("it is %q, chosen %t; want %q, %t", name, chosen, want, only)
	}
	r.localNetwork.addrs = addrs[:1]
	if name, chosen := r.WorkerInterface(); name != want || !chosen {
		t.Errorf("where the user has chosen it is %q, chosen %t", name, chosen)
	}
	for _, addr := range []string{"", Loopback, "192.0.2.250"} {
		if name, _ := (&Rendezvous{workerAddr: addr}).WorkerInterface(); name != "" {
			t.Errorf("of %q it is %q", addr, name)
		}
	}
}

// Agent 0 warns if a MASTER_ADDR given by hand is not its own address, unless it is the only agent.
func TestAgent0WarnsWhereItIsElsewhere(t *testing.T) {
	const nobodys = "192.0.2.1" // reserved by RFC 5737: no host has it
	for name, tc := range map[string]struct {
		addr  string
		given bool
		count int
		warns bool
	}{
		"elsewhere":           {nobodys, true, 2, true},
		"here":                {Loopback, true, 2, false},
		"not given by hand":   {nobodys, false, 2, false},
		"nobody looks for it": {nobodys, true, 1, false},
	} {
		var log testkit.Journal
		c := complete(Config{World: World{Count: tc.count}, Network: Network{MasterAddr: tc.addr, MasterGiven: tc.given},
			Log: log.Logger()})
		c.warnOfElsewhere(t.Context())
		if got := strings.Contains(log.String(), "does not seem to be one of its own addresses"); got != tc.warns {
			t.Errorf("%s: it warned: %t, want %t: %s", name, got, tc.warns, log.String())
		}
	}
}

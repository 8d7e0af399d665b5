package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ddpbatch/internal/auth"
)

// exchanger is what AgentConfig.Exchange is.
type exchanger = func(ctx context.Context, mine string) (string, error)

// step is what Slurm's PMI-2 does for so many tasks: each gets what task 0 said when all have come.
func step(tasks int) []exchanger {
	var missing atomic.Int32
	missing.Store(int32(tasks))
	all := make(chan struct{})
	var said string
	list := make([]exchanger, tasks)
	for i := range list {
		list[i] = func(ctx context.Context, mine string) (string, error) {
			if i == 0 {
				said = mine
			}
			if missing.Add(-1) == 0 {
				close(all)
			}
			select {
			case <-all:
				return said, nil
			case <-ctx.Done():
				return "", fmt.Errorf("exchange a word: %w", context.Cause(ctx))
			}
		}
	}
	return list
}

// newStep is a world of tasks on one node, which tell each other where they meet and have no secret yet.
func newStep(t *testing.T, tasks int, command ...string) *world {
	w := newWorld(t, make([]int, tasks), command...)
	for i, exchange := range step(tasks) {
		c := &w.agents[i]
		c.Exchange, c.Secret, c.Ports, c.OneMachine, c.MasterAddr, c.Host = exchange, auth.Secret{}, nil, false, "n1", "n1"
		c.Local = []Place{{Rank: i, LocalRank: i, WorldSize: tasks, LocalWorldSize: tasks, Nodes: 1}}
	}
	return w
}

func TestRendezvousByExchange(t *testing.T) {
	w := newStep(t, 3, "environ")
	var told string
	exchange := w.agents[2].Exchange
	w.agents[2].Exchange = func(ctx context.Context, mine string) (text string, err error) {
		text, err = exchange(ctx, mine)
		told = text
		return text, err
	}
	if v := w.agree(w.run()); v.Cause != "done" {
		t.Fatalf("verdict is %+v", v)
	}
	var o offer
	must(t, json.Unmarshal([]byte(told), &o))
	if env := w.environOf("n1", 2); env["MASTER_ADDR"] != "127.0.0.1" || env["MASTER_PORT"] == fmt.Sprint(o.Port) {
		t.Errorf("workers get %s:%s, agent 0 is at %d", env["MASTER_ADDR"], env["MASTER_PORT"], o.Port)
	}
	if len(o.Secret) != 64 || strings.Contains(w.log.String(), o.Secret) || strings.Contains(w.log.String(), `"run"`) {
		t.Errorf("the secret is %q, and the log %s", o.Secret, w.log.String())
	}
	for rank := range 3 {
		if _, there := w.environOf("n1", rank)["DDPBATCH_SECRET"]; there {
			t.Errorf("rank %d, a foreign command, has the secret", rank)
		}
	}
}

// A secret that all tasks were given is not told once more.
func TestExchangeKeepsAGivenSecret(t *testing.T) {
	w := newStep(t, 2, "say", "x")
	secret, err := auth.NewSecret()
	must(t, err)
	var told string
	exchange := w.agents[0].Exchange
	w.agents[0].Exchange = func(ctx context.Context, mine string) (string, error) {
		told = mine
		return exchange(ctx, mine)
	}
	w.agents[0].Secret, w.agents[1].Secret = secret, secret
	w.agree(w.run())
	if strings.Contains(told, "secret") {
		t.Errorf("agent 0 told %s", told)
	}
	w = newStep(t, 2, "say", "x")
	w.agents[1].Secret = secret
	ctx, cancel := context.WithCancel(t.Context())
	first := w.begin(ctx, 0)
	if r := <-w.begin(t.Context(), 1); r.err == nil || !strings.Contains(r.Message, "give DDPBATCH_SECRET to all tasks or to none") {
		t.Errorf("an agent with a secret of its own ended with %v", r.err)
	}
	cancel()
	<-first
}

// Of several networks that agent 0 has, one may be cut: an address that refuses, one that is silent, and somebody else's.
func TestExchangeWithCutNetworks(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.2:0") // takes connections and says nothing
	must(t, err)
	defer silent.Close()
	w := newStep(t, 2, "say", "x")
	exchange := w.agents[1].Exchange
	w.agents[1].Exchange = func(ctx context.Context, mine string) (string, error) {
		text, err := exchange(ctx, mine)
		var o offer
		must(t, json.Unmarshal([]byte(text), &o))
		same, err := net.Listen("tcp", joinPort("127.0.0.3", o.Port)) // another job's, at the same port
		must(t, err)
		t.Cleanup(func() { same.Close() })
		go func() {
			for conn, err := same.Accept(); err == nil; conn, err = same.Accept() {
				conn.Write([]byte("SSH-2.0-other\r\n"))
				conn.Close()
			}
		}()
		o.Addrs = append(addrsOf("127.0.0.9", "127.0.0.3", "127.0.0.2"), o.Addrs...)
		changed, err := json.Marshal(o)
		return string(changed), err
	}
	if v := w.agree(w.run()); v.Cause != "done" {
		t.Errorf("verdict is %+v", v)
	}
}

// A task that never comes to the fence is waited for as long as agents have to meet, and the reason is told.
func TestExchangeWithoutATask(t *testing.T) {
	w := newStep(t, 3, "say", "x")
	w.agents = w.agents[:2]
	for i := range w.agents {
		w.agents[i].JoinTimeout = 300 * time.Millisecond
	}
	for i, r := range w.run() {
		want := fmt.Sprintf("agent %d on n1 waited 300ms for every task of the step to come to Slurm's PMI-2, and some did not", i)
		if r.err == nil || r.Cause != "timeout" || r.Exit != 124 || !strings.Contains(r.Message, want) {
			t.Errorf("agent %d ended with %+v", i, r)
		}
	}
	// A signal ends the wait.
	w = newStep(t, 2, "say", "x")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(SignalError{15})
	if v, err := Run(ctx, w.agents[1]); err == nil || v.Exit != 143 || v.Cause != "cancelled" {
		t.Errorf("told to stop it ended with %+v, %v", v, err)
	}
}

// What comes by Exchange may be anything. The error shows none of it.
func TestExchangeOfAHostileText(t *testing.T) {
	const run, secret = "test/1", "00000000000000000000000000000000000000000000000000000000000000aa"
	for _, tc := range []struct{ text, want string }{
		{"", "cannot be read"},
		{"\x00\xff", "cannot be read"},
		{strings.Repeat("[", MaxOffer), "cannot be read"},
		{strings.Repeat(" ", MaxOffer+1), "766 bytes"},
		{`{"run":"test/1","port":"x` + secret + `"}`, "cannot be read"},
		{`{"run":"other"}`, `it is for run "other"`},
		{`{"run":"test/1","port":0,"addrs":["10.0.0.1"]}`, "port 0"},
		{`{"run":"test/1","port":65536,"addrs":["10.0.0.1"]}`, "port 65536"},
		{`{"run":"test/1","port":7,"secret":"` + secret + `"}`, "0 addresses"},
		{`{"run":"test/1","port":7,"addrs":[` + strings.TrimSuffix(strings.Repeat(`"::2",`, 99), ",") + `]}`, "99 addresses"},
		{`{"run":"test/1","port":7,"addrs":["n1"]}`, "cannot be read"},
		{`{"run":"test/1","port":7,"addrs":[""],"secret":"` + secret + `"}`, "no address of another node"},
		{`{"run":"test/1","port":7,"addrs":["0.0.0.0"],"secret":"` + secret + `"}`, "no address of another node"},
		{`{"run":"test/1","port":7,"addrs":["127.0.0.1"],"secret":"` + secret + `"}`, "127.0.0.1 is no address of another node"},
		{`{"run":"test/1","port":7,"addrs":["::ffff:127.0.0.1"],"secret":"` + secret + `"}`, "no address of another node"},
		{`{"run":"test/1","port":7,"addrs":["fe80::1%eth0"],"secret":"` + secret + `"}`, "no address of another node"},
		{`{"run":"test/1","port":7,"addrs":["224.0.0.1"],"secret":"` + secret + `"}`, "no address of another node"},
		{`{"run":"test/1","port":7,"addrs":["10.0.0.1"]}`, "agent 0 was given the run's secret, and this agent was not"},
		{`{"run":"test/1","port":7,"addrs":["10.0.0.1"],"secret":"x"}`, "parse a secret"},
		{`{"run":"test/1","refused":{"cause":"start","exit":1,"message":"agent 0 on n1 cannot take part: no"}}`, "agent 0 on n1 cannot take part: no"},
	} {
		c := AgentConfig{
			World:     World{Index: 1, Count: 2, Host: "n2"},
			Identity:  Identity{RunID: run},
			Admission: Admission{JoinTimeout: time.Minute},
		}
		c.Exchange = func(context.Context, string) (string, error) { return tc.text, nil }
		_, err := c.receiveOffer(t.Context())
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "aa") {
			t.Errorf("%.90q: %v, want %q", tc.text, err, tc.want)
		}
	}
	c := AgentConfig{World: World{Index: 1, Host: "n2"}, Admission: Admission{JoinTimeout: time.Minute}}
	c.Exchange = func(context.Context, string) (string, error) { return "", errors.New("the plugin is odd") }
	if _, err := c.receiveOffer(t.Context()); err == nil || !strings.Contains(err.Error(), "agent 1 on n2 cannot hear where agent 0 is (srun --mpi=none goes without PMI-2): the plugin is odd") {
		t.Errorf("error is %v", err)
	}
}

// However many addresses, an offer fits, and the likeliest are in it.
func TestOfferFits(t *testing.T) {
	var o offer
	o.Run, o.Port, o.Secret = "cluster/123456789.0.0", 65535, strings.Repeat("a", 64)
	for i := range 200 {
		o.Addrs = append(o.Addrs, netip.MustParseAddr(fmt.Sprintf("fd00:1234:5678:9abc:def0::%x", i+1)))
	}
	text, err := o.encode()
	must(t, err)
	got, err := parseOffer(text)
	if n := len(got.Addrs); err != nil || len(text) > MaxOffer || n < 10 || n > maxOffered || got.Addrs[0] != o.Addrs[0] || got.Secret != o.Secret || got.Port != o.Port {
		t.Errorf("%d bytes: %s, %v", len(text), text, err)
	}
	text, err = offer{Run: "r", Rejected: &rejection{Message: strings.Repeat("\x00no ", 1000)}}.encode()
	if err != nil || len(text) > MaxOffer || !strings.Contains(text, "no ") {
		t.Errorf("%d bytes: %s, %v", len(text), text, err)
	}
	if text, err := (offer{Run: strings.Repeat("r", MaxOffer)}).encode(); err == nil {
		t.Errorf("%d bytes are told", len(text))
	}
}

func FuzzOffer(f *testing.F) {
	f.Add(`{"run":"test/1","port":7,"addrs":["10.0.0.1"],"secret":"00000000000000000000000000000000000000000000000000000000000000aa"}`)
	c := AgentConfig{
		World:     World{Index: 1, Count: 2, Host: "n2"},
		Identity:  Identity{RunID: "test/1"},
		Admission: Admission{JoinTimeout: time.Minute},
	}
	f.Fuzz(func(t *testing.T, text string) {
		c.Exchange = func(context.Context, string) (string, error) { return text, nil }
		o, err := c.receiveOffer(context.Background())
		if err != nil {
			return
		}
		for _, addr := range o.Addrs {
			if !addr.IsValid() || addr.IsLoopback() || addr.IsUnspecified() {
				t.Errorf("%q leads to %v", text, addr)
			}
		}
		if _, err := o.encode(); err != nil {
			t.Errorf("%q is taken and cannot be told: %v", text, err)
		}
	})
}

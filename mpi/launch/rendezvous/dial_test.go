package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/reach"
	"ddpbatch/mpi/store"
)

// The dialer detects a name that cannot lead to agent 0.
func TestNameThatCannotLeadThere(t *testing.T) {
	for _, tc := range []struct {
		name     string
		c        Config
		resolves []string // nil: the name is unknown
		want     string   // "": the name may lead to agent 0
	}{
		{"another node", Config{Network: Network{MasterAddr: "n1"}}, []string{"10.1.0.5"}, ""},
		{"unknown", Config{Network: Network{MasterAddr: "n1"}}, nil, ""}, // the tries already report that
		{"itself", Config{Network: Network{MasterAddr: "n1"}}, []string{"::ffff:127.0.1.1"},
			"n1 resolves to 127.0.1.1 on n2, which is n2 itself and not another node; correct the name there (/etc/hosts), " +
				"use an address, or start with srun --mpi=pmi2"},
		{"itself, named by Slurm", Config{Network: Network{MasterAddr: "alias"}, World: World{Hosts: []string{"n1", "n2"}}},
			[]string{"127.0.1.1", "::1"}, "alias resolves to 127.0.1.1 on n2"},
		{"beside agent 0", Config{Network: Network{MasterAddr: "n2.cluster"}}, []string{"127.0.1.1"}, ""},
		{"beside agent 0, named by Slurm", Config{Network: Network{MasterAddr: "alias"}, World: World{Hosts: []string{"n2", "n2"}}},
			[]string{"127.0.1.1"}, ""},
		{"itself and another", Config{Network: Network{MasterAddr: "n1"}}, []string{"127.0.1.1", "10.1.0.5"}, ""},
		{"on one machine", Config{Network: Network{MasterAddr: "127.0.0.1"}}, []string{"127.0.0.1"}, ""},
		{"pretended", Config{Network: Network{MasterAddr: "n1", OneMachine: true}}, []string{"127.0.0.2"}, ""},
		{"told", Config{Network: Network{MasterAddr: "n1", Exchange: exchangeNothing}}, []string{"127.0.0.2"}, ""},
		{"in the network", Config{Network: Network{MasterAddr: "n1", Interface: "10.1.0.0/16"}}, []string{"192.168.7.5", "10.1.0.5"}, ""},
		{"in another network", Config{Network: Network{MasterAddr: "n1", Interface: "192.168.7.0/24"}}, []string{"::ffff:10.1.0.5"},
			`n1 resolves to 10.1.0.5 on n2, which is not in "192.168.7.0/24" (interface), the only network on which agent 0 listens`},
		{"by a name", Config{Network: Network{MasterAddr: "n1", Interface: "ib0"}}, []string{"10.1.0.5"}, ""},
	} {
		tc.c.Index, tc.c.Count, tc.c.Host = 1, 2, "n2"
		choice, err := reach.ParseInterface(tc.c.Interface)
		must(t, err)
		d := newDialer(&Rendezvous{cfg: tc.c, localNetwork: localNetwork{choice: choice}})
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

// If agent 0's name resolves to this machine, the agent stops waiting long before JoinTimeout.
func TestMisnamedAgent0EndsTheWait(t *testing.T) {
	secret := auth.NewSecret()
	c := Config{
		World:     World{Index: 1, Count: 2, Host: "n2", Nproc: 1},
		Network:   Network{MasterAddr: "n1", Ports: []int{1}},
		Identity:  Identity{Secret: secret},
		Admission: Admission{JoinTimeout: time.Hour},
	}
	c = complete(c)
	d := newDialer(newRendezvous(t.Context(), c, localNetwork{}))
	d.race = reach.NewRace([]string{"127.0.1.1:1"}, 0) // an address at which no process listens
	d.lookup = func(context.Context, string, string) ([]netip.Addr, error) { return addrsOf("127.0.1.1"), nil }
	_, err := d.connect(t.Context())
	var unmet *NotMetError
	if !errors.As(err, &unmet) ||
		!strings.Contains(unmet.err.Error(), "agent 1 on n2 did not get through to agent 0 at n1: n1 resolves to 127.0.1.1 on n2") ||
		!strings.Contains(err.Error(), "127.0.1.1:1") {
		t.Errorf("error is %v", err)
	}
}

// A refusal of the secret is final if all addresses refuse it, or if one has refused it for refusalWait.
func TestRefusalIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		addrs := []string{"n1:1", "n1:2"}
		patient := Config{Admission: Admission{JoinTimeout: time.Hour}}
		alone := &dialer{cfg: patient, race: reach.NewRace(addrs[:1], 0), refusedAt: make(map[string]time.Time)}
		if !alone.isFinal(addrs[0], store.ErrOtherSecret) {
			t.Error("nobody else can be agent 0, and it goes on")
		}
		d := &dialer{cfg: patient, race: reach.NewRace(addrs, 0), refusedAt: make(map[string]time.Time)}
		for range 3 { // another answer from the same address resets the time
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

// A port counts as taken if answers that are not an agent's come for takenWait. The time ends if no process listens there any longer or an
// agent answers.
func TestPortIsTaken(t *testing.T) {
	silent := fmt.Errorf("%w within 5s", store.ErrSilent)
	nobody := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, tc := range []struct {
		name  string
		here  bool
		since time.Duration // for how long the port has been found taken; 0: not yet
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
		d := newDialer(&Rendezvous{cfg: Config{
			Admission: Admission{JoinTimeout: time.Hour},
			Network:   Network{Ports: []int{4711}},
			portTaken: tc.here, Log: slog.New(slog.DiscardHandler),
		}})
		if tc.since > 0 {
			d.takenSince = time.Now().Add(-tc.since)
		}
		err := d.classify("n1:4711", tc.err)
		if got := strings.Contains(err.Error(), "port 4711 of this machine is taken by another program"); got != tc.want ||
			!errors.Is(err, tc.err) && tc.err != error(nobody) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if counts := tc.here && (tc.want || tc.since == 0); d.takenSince.IsZero() == counts {
			t.Errorf("%s: it is taken since %v", tc.name, d.takenSince)
		}
	}
}

// An agent 0 that holds its port but is slow to serve it does not count as another program.
func TestSlowAgent0IsMet(t *testing.T) {
	t.Parallel() // the test mostly waits
	secret := auth.NewSecret()
	l, err := net.Listen("tcp", Loopback+":0")
	must(t, err)
	var log testkit.Journal
	agent := func(index int, host string) Config {
		return Config{
			Identity: Identity{RunID: "test", Secret: secret, Version: "v1"}, World: World{Index: index, Count: 2, Host: host, Nproc: 1},
			Network: Network{Endpoint: l.Addr().String(), OneMachine: true}, Admission: Admission{JoinTimeout: 36 * time.Second},
		}
	}
	first, other := complete(agent(-1, "n1")), agent(-1, "n2")
	first.Index, first.JoinTimeout, other.Log = 0, testkit.Patience, log.Logger()
	other = complete(other)
	met := make(chan error, 1)
	go func() {
		r, err := Join(t.Context(), &other)
		if err == nil {
			err = r.Close()
		}
		met <- err
	}()
	testkit.Eventually(t, "a warning about the silence", func() bool { return strings.Contains(log.String(), "nothing was proved within") })
	r, err := serveRendezvous(t.Context(), first, localNetwork{}, listeners{l})
	must(t, err)
	if n := len(r.First.Members); n != 2 {
		t.Errorf("%d agents met", n)
	}
	must(t, <-met)
	must(t, r.Close())
}

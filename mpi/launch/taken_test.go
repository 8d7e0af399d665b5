package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/reach"
	"ddpbatch/mpi/store"
)

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
				w := newMeeting2(t)
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
				w := newMeeting2(t)
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
		w := newMeeting2(t)
		c := w.agents[1]
		log = new(testkit.Journal)
		c.Endpoint, c.JoinTimeout, c.Log, c.Guest = l.Addr().String(), limit, log.Logger(), true
		w.agents = []AgentConfig{c}
		r := <-w.begin(t.Context(), 0)
		var unmet *unmetError
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
	w := newMeeting2(t)
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
	m, err := host(t.Context(), first, network{}, l)
	must(t, err)
	if n := len(m.first.Members); n != 2 {
		t.Errorf("%d agents met", n)
	}
	cancel()
	must(t, m.close())
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
		a := newApproach(&meeting{cfg: AgentConfig{JoinTimeout: time.Hour, Ports: []int{4711}, portTaken: tc.here, Log: slog.New(slog.DiscardHandler)}})
		if tc.since > 0 {
			a.takenSince = time.Now().Add(-tc.since)
		}
		err := a.judge("n1:4711", tc.err)
		if got := strings.Contains(err.Error(), "port 4711 of this machine is taken by another program"); got != tc.want || !errors.Is(err, tc.err) && tc.err != error(nobody) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if counts := tc.here && (tc.want || tc.since == 0); a.takenSince.IsZero() == counts {
			t.Errorf("%s: it is taken since %v", tc.name, a.takenSince)
		}
	}
}

package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
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
			w := newMeeting2(t)
			c := w.agents[1]
			var log testkit.Journal
			c.Endpoint, c.JoinTimeout, c.Log = l.Addr().String(), 16*time.Second, log.Logger()
			w.agents = []AgentConfig{c}
			r := <-w.begin(t.Context(), 0)
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

// On another machine agent 0 may still come to the port, which it looks for until the time is over: each try has a limit of its own.
func TestSilentElsewhere(t *testing.T) {
	t.Parallel() // most of it is a pause
	l := foreign(t, saysNothing)
	w := newMeeting2(t)
	c := w.agents[1]
	var log testkit.Journal
	c.Endpoint, c.JoinTimeout, c.Log, c.Guest = l.Addr().String(), 3*time.Second, log.Logger(), true
	w.agents = []AgentConfig{c}
	r := <-w.begin(t.Context(), 0)
	var unmet *unmetError
	if !errors.Is(r.err, ErrTimeout) || !errors.As(r.err, &unmet) || len(unmet.rows) != 1 || len(unmet.rows[0].Tries) != 1 {
		t.Fatalf("the agent ended with %+v", r)
	}
	if try := unmet.rows[0].Tries[0]; try.Count < 2 || !strings.Contains(try.Err, "nothing was proved within") {
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

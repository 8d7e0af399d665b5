package launch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
)

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
				c.resolve = func(ctx context.Context, network, host string) ([]netip.Addr, error) {
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
	c.resolve = func(ctx context.Context, _, _ string) ([]netip.Addr, error) { // while it looks for the name, and later for the reason
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
	if _, err := host(ctx, c, network{}, l); !errors.Is(err, ErrTimeout) {
		t.Errorf("ended with %v", err)
	}
}

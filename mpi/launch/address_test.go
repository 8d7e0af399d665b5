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

	"ddpbatch/mpi/launch/rendezvous"
)

// unanswered returns the error of a name service that does not find n9.
func unanswered(why string) error { return &net.DNSError{Err: why, Name: "n9"} }

// An agent looks up the endpoint's host again until the name is known. If JoinTimeout ends first, it reports its lookups.
func TestUnknownEndpointIsAskedForAgain(t *testing.T) {
	for _, test := range []struct {
		name    string
		answers []string // one a second; a lookup after them does not return until JoinTimeout is over
		said    []string // in the log lines after 10 and 20 s
		want    string
	}{
		{"unknown", append(strings.Split(strings.Repeat("server misbehaving,", 15), ",")[:15], "no such host",
			"no such host", "no such host"),
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
				if took := time.Since(begin); !errors.Is(err, rendezvous.ErrTimeout) || v.Cause != "timeout" || v.Exit != 124 ||
					took != c.JoinTimeout {
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

// The time in which an agent waits until its endpoint's name is known counts against JoinTimeout.
func TestNameLookupCountsAsJoinTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []int{1}, "say", "x")
	c := w.agents[0]
	c.Index, c.Count, c.OneMachine, c.MasterAddr, c.Endpoint = -1, 2, false, "", joinPort("n9", c.Ports[0])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var deadlines []time.Time
	c.Resolve = func(ctx context.Context, _, _ string) ([]netip.Addr, error) { // called for the endpoint, and later for the error
		deadline, _ := ctx.Deadline()
		switch deadlines = append(deadlines, deadline); len(deadlines) {
		case 1:
			return nil, unanswered("no such host")
		case 2:
			return addrsOf("192.0.2.1"), nil // reserved by RFC 5737: no host has it
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

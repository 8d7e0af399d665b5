package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/rendezvous"
)

// Agents that cannot take part report the reason. The others wait neither for them nor for agents that are no longer needed.
func TestAgentsThatCannotTakePart(t *testing.T) {
	for _, tc := range []struct {
		minCount int // 0: all of them
		rejects  []int
	}{
		{0, []int{0}}, {0, []int{1, 2}}, {2, []int{1, 2}},
	} {
		for _, exchange := range []bool{false, true} {
			name := fmt.Sprintf("%v of three, %d needed, told %t", tc.rejects, tc.minCount, exchange)
			w := newWorld(t, []int{1, 1, 1}, "say", "x")
			switch {
			case exchange && tc.minCount > 0:
				continue // Exchange needs every task
			case exchange:
				w = newStep(t, 3, "say", "x")
			}
			if tc.minCount > 0 {
				w.elastic(tc.minCount, 0)
			}
			var reported []string
			for i := range w.agents {
				w.agents[i].JoinTimeout = time.Hour // the test's own limit is shorter
				w.agents[i].FindDeadline = func(ctx context.Context) (time.Time, error) { <-ctx.Done(); return time.Time{}, ctx.Err() }
				if slices.Contains(tc.rejects, i) {
					w.agents[i].Reject = fmt.Errorf("disk %d is full", i)
					reported = append(reported, fmt.Sprintf("agent %d on %s cannot take part: disk %d is full", i, w.agents[i].Host, i))
				}
			}
			if slices.Contains(tc.rejects, 0) {
				reported = reported[:1] // whichever other agent is first
			}
			for i, r := range w.run() {
				if r.err == nil || r.Exit != 1 || r.Cause != "start" || r.took >= rejectWait {
					t.Errorf("%s: agent %d ended with %+v", name, i, r)
				}
				if slices.Contains(tc.rejects, i) {
					if want := w.agents[i].Reject.Error(); r.Message != want || r.err.Error() != want {
						t.Errorf("%s: agent %d says %q, want %q", name, i, r.err, want)
					}
				} else if !slices.Contains(reported, r.Message) {
					t.Errorf("%s: agent %d says %q, want one of %q", name, i, r.Message, reported)
				}
			}
		}
	}
}

// A run that can begin without an agent that rejects does so, and agent 0 logs why. It does not wait for that agent, or confuse it with
// another agent on the same machine.
func TestElasticAgentThatCannotTakePart(t *testing.T) {
	for name, endpoint := range map[string]bool{"agent 1 on n2": false, "the agent on n2": true} {
		w := newWorld(t, []int{1, 1, 1}, "say", "x")
		w.elastic(2, 0)
		for i := range w.agents {
			c := &w.agents[i]
			c.LastCall = c.JoinTimeout / 2
			if endpoint && i > 0 {
				c.Index, c.Endpoint, c.DialOnly, c.Host = -1, joinPort(rendezvous.Loopback, c.Ports[0]), true, "n2"
			}
		}
		w.agents[1].Reject = errors.New("its disk is full")
		first := w.begin(t.Context(), 0)
		if r := <-w.begin(t.Context(), 1); r.err == nil || r.Message != "its disk is full" {
			t.Errorf("%s ended with %+v", name, r)
		}
		third := <-w.begin(t.Context(), 2)
		if v := w.agree([]result{<-first, third}); v.Cause != "done" || v.Message != "all 2 ranks are done" {
			t.Errorf("without %s the verdict is %+v", name, v)
		}
		if third.took >= w.agents[0].LastCall {
			t.Errorf("without %s, which was there, it took %v", name, third.took)
		}
		if want := name + " cannot take part: its disk is full"; !strings.Contains(w.log.String(), want) {
			t.Errorf("nobody logs %q:\n%s", want, w.log.String())
		}
	}
}

// If the agent on the endpoint's host rejects, the others, which look for agent 0 there, receive the reason.
func TestEndpointsHostCannotTakePart(t *testing.T) {
	w := newEndpointWorld(t)
	w.agents[0].Index, w.agents[0].Endpoint = -1, w.agents[1].Endpoint
	w.agents[0].Reject = errors.New("its disk is full")
	first := w.begin(t.Context(), 0)
	awaitListener(t, w.agents[1].Endpoint)
	r := <-w.begin(t.Context(), 1)
	if r.err == nil || r.Message != "agent 0 on n1 cannot take part: its disk is full" || r.took >= rejectWait {
		t.Errorf("the other one ended with %+v", r)
	}
	if r := <-first; r.err == nil || r.Message != "its disk is full" || r.took >= rejectWait {
		t.Errorf("it ended with %+v", r)
	}
}

// An agent that cannot take part logs the reason while it still waits for the others.
func TestOnlyAgentCannotTakePart(t *testing.T) {
	t.Parallel() // the test mostly waits
	w := newWorld(t, []int{1, 1}, "say", "x")
	w.agents[0].Reject = errors.New("its disk is full")
	ctx, cancel := context.WithCancel(t.Context())
	ended := w.begin(ctx, 0)
	testkit.Eventually(t, "the reason is told", func() bool { return strings.Contains(w.log.String(), "its disk is full") })
	cancel()
	if r := <-ended; r.err == nil || r.err.Error() != "its disk is full" {
		t.Errorf("it ended with %+v", r)
	}
}

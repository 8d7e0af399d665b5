package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
)

// Agents that cannot take part say so, and nobody waits for them or for those that need not come any more.
func TestAgentsThatCannotTakePart(t *testing.T) {
	for _, tc := range []struct {
		minCount int // 0: all of them
		declines []int
	}{
		{0, []int{0}}, {0, []int{1}}, {0, []int{1, 2}}, {0, []int{0, 2}}, {0, []int{0, 1, 2}},
		{2, []int{0}}, {2, []int{1, 2}}, {2, []int{0, 1}}, {2, []int{0, 1, 2}},
	} {
		for _, exchange := range []bool{false, true} {
			name := fmt.Sprintf("%v of three, %d needed, told %t", tc.declines, tc.minCount, exchange)
			w := newWorld(t, []int{1, 1, 1}, "say", "x")
			switch {
			case exchange && tc.minCount > 0:
				continue // all must come
			case exchange:
				w = newStep(t, 3, "say", "x")
			}
			if tc.minCount > 0 {
				w.elastic(tc.minCount, 0)
			}
			var told []string
			for i := range w.agents {
				w.agents[i].JoinTimeout = time.Hour // the test's own limit is sooner
				w.agents[i].FindDeadline = func(ctx context.Context) (time.Time, error) { <-ctx.Done(); return time.Time{}, ctx.Err() }
				if slices.Contains(tc.declines, i) {
					w.agents[i].Declines = fmt.Errorf("disk %d is full", i)
					told = append(told, fmt.Sprintf("agent %d on %s cannot take part: disk %d is full", i, w.agents[i].Host, i))
				}
			}
			if slices.Contains(tc.declines, 0) {
				told = told[:1] // whoever else is first
			}
			for i, r := range w.run() {
				if r.err == nil || r.Exit != 1 || r.Cause != "start" || r.took >= rejectWait {
					t.Errorf("%s: agent %d ended with %+v", name, i, r)
				}
				if slices.Contains(tc.declines, i) {
					if want := w.agents[i].Declines.Error(); r.Message != want || r.err.Error() != want {
						t.Errorf("%s: agent %d says %q, want %q", name, i, r.err, want)
					}
				} else if !slices.Contains(told, r.Message) {
					t.Errorf("%s: agent %d says %q, want one of %q", name, i, r.Message, told)
				}
			}
		}
	}
}

// One that rejects where the run can begin without it is one less, and agent 0 says why. It is not waited for, and not taken for another one of
// its machine.
func TestElasticAgentThatCannotTakePart(t *testing.T) {
	for name, endpoint := range map[string]bool{"agent 1 on n2": false, "the agent on n2": true} {
		w := newWorld(t, []int{1, 1, 1}, "say", "x")
		w.elastic(2, 0)
		for i := range w.agents {
			c := &w.agents[i]
			c.LastCall = c.JoinTimeout / 2
			if endpoint && i > 0 {
				c.Index, c.Endpoint, c.Guest, c.Host = -1, joinPort(loopback, c.Ports[0]), true, "n2"
			}
		}
		w.agents[1].Declines = errors.New("its disk is full")
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

// The agent on the endpoint's host rejects: the others look for agent 0 there, and hear it.
func TestEndpointsHostCannotTakePart(t *testing.T) {
	w := newEndpointWorld(t)
	w.agents[0].Index, w.agents[0].Endpoint = -1, w.agents[1].Endpoint
	w.agents[0].Declines = errors.New("its disk is full")
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

// A person hears the reason while the others are waited for.
func TestOnlyAgentCannotTakePart(t *testing.T) {
	t.Parallel() // most of it is a pause
	w := newWorld(t, []int{1, 1}, "say", "x")
	w.agents[0].Declines = errors.New("its disk is full")
	ctx, cancel := context.WithCancel(t.Context())
	ended := w.begin(ctx, 0)
	testkit.Eventually(t, "the reason is told", func() bool { return strings.Contains(w.log.String(), "its disk is full") })
	cancel()
	if r := <-ended; r.err == nil || r.err.Error() != "its disk is full" {
		t.Errorf("it ended with %+v", r)
	}
}

// Who has come and cannot take part is not missing. One that comes again can.
func TestRejectingIsNotMissing(t *testing.T) {
	r := newMembership(joinRequest{Host: "n1", Count: 4})
	m := &rendezvous{cfg: AgentConfig{World: World{Count: 4, Hosts: []string{"n1", "n2", "n3", "n4"}}, Admission: Admission{MinCount: 2, JoinTimeout: time.Second}}, membership: r}
	declines := joinRequest{Index: 1, Host: "n2", Count: 4, Rejects: &rejection{Message: "agent 1 on n2 cannot take part: it is full"}}
	for range 2 { // it is one agent
		r.join(newParticipant(newNonce(), ""), declines)
	}
	if able, rejecting := r.count(); able != 1 || len(rejecting) != 1 {
		t.Errorf("%d can take part, %+v cannot", able, rejecting)
	}
	if got, want := m.missingError().Error(), "2 of 4 agents came within 1s; missing: agent 2 (n3), agent 3 (n4); agent 1 on n2 cannot take part: it is full"; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	declines.Rejects = nil
	r.join(newParticipant(newNonce(), ""), declines)
	if able, rejecting := r.count(); able != 2 || len(rejecting) != 0 {
		t.Errorf("where it has come again %d can take part, %+v cannot", able, rejecting)
	}

	// At an endpoint they have no numbers, and one machine may have several.
	full := &rejection{Message: "the agent on n2 cannot take part: it is full"}
	one := joinRequest{Index: -1, ID: "1", Host: "n2", Count: 3}
	other := joinRequest{Index: -1, ID: "2", Host: "n2", Count: 3}
	rejectingOf := func(j joinRequest) joinRequest { j.Rejects = full; return j }
	for name, tc := range map[string]struct {
		come            []joinRequest
		able, rejecting int
	}{
		"one declines, the other comes": {[]joinRequest{rejectingOf(one), other}, 2, 1},
		"one comes, the other declines": {[]joinRequest{other, rejectingOf(one)}, 2, 1},
		"both decline":                  {[]joinRequest{rejectingOf(one), rejectingOf(other)}, 1, 2},
		"one declines twice":            {[]joinRequest{rejectingOf(one), rejectingOf(one)}, 1, 1},
		"one declines, and comes":       {[]joinRequest{rejectingOf(one), one}, 2, 0},
	} {
		r := newMembership(joinRequest{Host: "n1", Count: 3})
		for _, j := range tc.come {
			r.join(newParticipant(newNonce(), ""), j)
		}
		if able, rejecting := r.count(); able != tc.able || len(rejecting) != tc.rejecting {
			t.Errorf("%s: %d can take part, %+v cannot", name, able, rejecting)
		}
	}
}

// Where one was lost and another rejects, those that come later hear it: what was to be waited for the first reason does not cut that short.
func TestRejectionAfterALossIsReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMembership(joinRequest{Host: "n1", Count: 4})
		m := &rendezvous{cfg: AgentConfig{
			World:     World{Count: 4},
			Admission: Admission{MinCount: 4, JoinTimeout: time.Hour},
			Log:       slog.New(slog.DiscardHandler),
		}, membership: r}
		ended := make(chan error, 1)
		go func() { ended <- m.gather(t.Context()) }()
		lost := newParticipant("1", "")
		r.join(lost, joinRequest{Index: 1, Host: "n2", Count: 4})
		r.drop(lost, silence)
		synctest.Wait()
		r.join(newParticipant("2", ""), joinRequest{Index: 2, Host: "n3", Count: 4, Rejects: &rejection{Message: "its disk is full"}})
		time.Sleep(2 * time.Second) // of the bubble's clock
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("agent 0 has ended before the last one came: %v", err)
		default:
		}
		r.join(newParticipant("3", ""), joinRequest{Index: 3, Host: "n4", Count: 4})
		if err := <-ended; err == nil || err.Error() != "its disk is full" {
			t.Errorf("the last one hears %v", err)
		}
	})
}

// More agents may come than the run can have: those that reject are no reason to end it where enough are there.
func TestSparesMayReject(t *testing.T) {
	r := &rendezvous{cfg: AgentConfig{World: World{Count: 3}, Admission: Admission{MinCount: 2}}, membership: newMembership(joinRequest{Host: "n1", Count: 3})}
	rejecting := []joinRequest{{Rejects: &rejection{Message: "one"}}, {Rejects: &rejection{Message: "two"}}}
	if why, _ := r.whyImpossible(2, rejecting); why != nil {
		t.Errorf("with two of two to three agents it cannot begin: %v", why)
	}
	if why, _ := r.whyImpossible(1, rejecting); why == nil {
		t.Error("with one agent, and two that cannot take part, it waits for the second")
	}
}

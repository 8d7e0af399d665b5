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
func TestAgentsDecline(t *testing.T) {
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
				if r.err == nil || r.Exit != 1 || r.Cause != "start" || r.took >= declineWait {
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

// One that declines where the run can begin without it is one less, and agent 0 says why. It is not waited for, and not taken for another one of
// its machine.
func TestElasticAgentDeclines(t *testing.T) {
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

// The agent on the endpoint's host declines: the others look for agent 0 there, and hear it.
func TestEndpointsHostDeclines(t *testing.T) {
	w := newMeeting2(t)
	w.agents[0].Index, w.agents[0].Endpoint = -1, w.agents[1].Endpoint
	w.agents[0].Declines = errors.New("its disk is full")
	first := w.begin(t.Context(), 0)
	awaitListener(t, w.agents[1].Endpoint)
	r := <-w.begin(t.Context(), 1)
	if r.err == nil || r.Message != "agent 0 on n1 cannot take part: its disk is full" || r.took >= declineWait {
		t.Errorf("the other one ended with %+v", r)
	}
	if r := <-first; r.err == nil || r.Message != "its disk is full" || r.took >= declineWait {
		t.Errorf("it ended with %+v", r)
	}
}

// A person hears the reason while the others are waited for.
func TestDeclinesAlone(t *testing.T) {
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
func TestDeclinedIsNotMissing(t *testing.T) {
	r := newRoster(join{Host: "n1", Count: 4})
	m := &meeting{cfg: AgentConfig{Count: 4, MinCount: 2, Hosts: []string{"n1", "n2", "n3", "n4"}, JoinTimeout: time.Second}, roster: r}
	declines := join{Index: 1, Host: "n2", Count: 4, Declines: &refusal{Message: "agent 1 on n2 cannot take part: it is full"}}
	for range 2 { // it is one agent
		r.arrive(newGuest(newNonce(), ""), declines)
	}
	if able, declined := r.attendance(); able != 1 || len(declined) != 1 {
		t.Errorf("%d can take part, %+v cannot", able, declined)
	}
	if got, want := m.whoIsMissing().Error(), "2 of 4 agents came within 1s; missing: agent 2 (n3), agent 3 (n4); agent 1 on n2 cannot take part: it is full"; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	declines.Declines = nil
	r.arrive(newGuest(newNonce(), ""), declines)
	if able, declined := r.attendance(); able != 2 || len(declined) != 0 {
		t.Errorf("where it has come again %d can take part, %+v cannot", able, declined)
	}

	// At an endpoint they have no numbers, and one machine may have several.
	full := &refusal{Message: "the agent on n2 cannot take part: it is full"}
	one := join{Index: -1, ID: "1", Host: "n2", Count: 3}
	other := join{Index: -1, ID: "2", Host: "n2", Count: 3}
	declining := func(j join) join { j.Declines = full; return j }
	for name, tc := range map[string]struct {
		come           []join
		able, declined int
	}{
		"one declines, the other comes": {[]join{declining(one), other}, 2, 1},
		"one comes, the other declines": {[]join{other, declining(one)}, 2, 1},
		"both decline":                  {[]join{declining(one), declining(other)}, 1, 2},
		"one declines twice":            {[]join{declining(one), declining(one)}, 1, 1},
		"one declines, and comes":       {[]join{declining(one), one}, 2, 0},
	} {
		r := newRoster(join{Host: "n1", Count: 3})
		for _, j := range tc.come {
			r.arrive(newGuest(newNonce(), ""), j)
		}
		if able, declined := r.attendance(); able != tc.able || len(declined) != tc.declined {
			t.Errorf("%s: %d can take part, %+v cannot", name, able, declined)
		}
	}
}

// Where one was lost and another declines, those that come later hear it: what was to be waited for the first reason does not cut that short.
func TestDeclineAfterALossIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoster(join{Host: "n1", Count: 4})
		m := &meeting{cfg: AgentConfig{Count: 4, MinCount: 4, JoinTimeout: time.Hour, Log: slog.New(slog.DiscardHandler)}, roster: r}
		ended := make(chan error, 1)
		go func() { ended <- m.gather(t.Context()) }()
		lost := newGuest("1", "")
		r.arrive(lost, join{Index: 1, Host: "n2", Count: 4})
		r.drop(lost, silence)
		synctest.Wait()
		r.arrive(newGuest("2", ""), join{Index: 2, Host: "n3", Count: 4, Declines: &refusal{Message: "its disk is full"}})
		time.Sleep(2 * time.Second) // of the bubble's clock
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("agent 0 has ended before the last one came: %v", err)
		default:
		}
		r.arrive(newGuest("3", ""), join{Index: 3, Host: "n4", Count: 4})
		if err := <-ended; err == nil || err.Error() != "its disk is full" {
			t.Errorf("the last one hears %v", err)
		}
	})
}

// More agents may come than the run can have: those that decline are no reason to end it where enough are there.
func TestSparesDecline(t *testing.T) {
	m := &meeting{cfg: AgentConfig{Count: 3, MinCount: 2}, roster: newRoster(join{Host: "n1", Count: 3})}
	declined := []join{{Declines: &refusal{Message: "one"}}, {Declines: &refusal{Message: "two"}}}
	if why, _ := m.spoiled(2, declined); why != nil {
		t.Errorf("with two of two to three agents it cannot begin: %v", why)
	}
	if why, _ := m.spoiled(1, declined); why == nil {
		t.Error("with one agent, and two that declined, it waits for the second")
	}
}

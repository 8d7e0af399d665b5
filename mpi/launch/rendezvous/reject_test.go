package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/auth"
)

// An agent that joined and cannot take part does not count as missing. When it joins again, it may be able to take part.
func TestRejectingIsNotMissing(t *testing.T) {
	r := newMembership(joinRequest{Host: "n1", Count: 4})
	m := &Rendezvous{cfg: Config{World: World{Count: 4, Hosts: []string{"n1", "n2", "n3", "n4"}},
		Admission: Admission{MinCount: 2, JoinTimeout: time.Second}}, membership: r}
	rejects := joinRequest{Index: 1, Host: "n2", Count: 4, Rejects: &Rejection{Message: "agent 1 on n2 cannot take part: it is full"}}
	for range 2 { // the same agent, twice
		r.join(newParticipant(newNonce(), ""), rejects)
	}
	if able, rejecting := r.count(); able != 1 || len(rejecting) != 1 {
		t.Errorf("%d can take part, %+v cannot", able, rejecting)
	}
	if got, want := m.missingError().Error(),
		"2 of 4 agents came within 1s; missing: agent 2 (n3), agent 3 (n4); agent 1 on n2 cannot take part: it is "+
			"full"; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	rejects.Rejects = nil
	r.join(newParticipant(newNonce(), ""), rejects)
	if able, rejecting := r.count(); able != 2 || len(rejecting) != 0 {
		t.Errorf("where it has come again %d can take part, %+v cannot", able, rejecting)
	}

	// At an endpoint, agents do not have numbers, and a machine may have several of them.
	full := &Rejection{Message: "the agent on n2 cannot take part: it is full"}
	one := joinRequest{Index: -1, ID: "1", Host: "n2", Count: 3}
	other := joinRequest{Index: -1, ID: "2", Host: "n2", Count: 3}
	rejectingOf := func(j joinRequest) joinRequest { j.Rejects = full; return j }
	for name, tc := range map[string]struct {
		come            []joinRequest
		able, rejecting int
	}{
		"one rejects, the other comes": {[]joinRequest{rejectingOf(one), other}, 2, 1},
		"one comes, the other rejects": {[]joinRequest{other, rejectingOf(one)}, 2, 1},
		"both reject":                  {[]joinRequest{rejectingOf(one), rejectingOf(other)}, 1, 2},
		"one rejects twice":            {[]joinRequest{rejectingOf(one), rejectingOf(one)}, 1, 1},
		"one rejects, and comes":       {[]joinRequest{rejectingOf(one), one}, 2, 0},
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

// A rejection names all nodes that failed a check, whichever agent was the first to reject. A reason that does not blame a node stays as it
// is.
func TestUnfitNodes(t *testing.T) {
	unfit := func(host string) *Rejection {
		return &Rejection{Cause: "node", Exit: 1, Message: host + " failed a check", Unfit: []string{host}}
	}
	m := newMembership(joinRequest{Host: "n1", Count: 5, Rejects: unfit("n1")})
	for index, r := range []*Rejection{unfit("n4"), {Cause: "start", Exit: 1, Message: "it is full"}, unfit("n2"), unfit("n2")} {
		m.join(newParticipant(newNonce(), ""), joinRequest{Index: index + 1, Host: "x", Count: 5, Rejects: r})
	}
	_, rejecting := m.count()
	want := []string{"n1", "n2", "n4"}
	all := rejectionOfAll(rejecting)
	if all.Message != "n1 failed a check" || !slices.Equal(all.Unfit, want) {
		t.Errorf("%+v, want %q", all, want)
	}
	if got, ok := withUnfit(unfit("n1"), all).(*Rejection); !ok || got.Message != "n1 failed a check" || !slices.Equal(got.Unfit, want) {
		t.Errorf("agent 0 says %+v", got)
	}
	if r := rejecting[0].Rejects; len(r.Unfit) != 1 {
		t.Errorf("what one agent said is changed: %+v", r)
	}
	plain := errors.New("its disk is full")
	if got := withUnfit(plain, all); got != plain {
		t.Errorf("another reason became %v", got)
	}
}

// When an agent that rejects ends, srun ends the others with TERM, maybe before all have come. The rejection is still the reason of the
// end. If a person ends the run with Ctrl-C (SIGINT), that is the reason.
func TestRejectionIsTheReasonOfTheEnd(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		synctest.Test(t, func(t *testing.T) { rejectedAndEnded(t, sig) })
	}
}

func rejectedAndEnded(t *testing.T, sig syscall.Signal) {
	m := newMembership(joinRequest{Host: "n1", Count: 3})
	r := &Rendezvous{membership: m, cfg: Config{World: World{Count: 3},
		Admission: Admission{MinCount: 3, JoinTimeout: time.Hour, Checking: time.Minute}, Log: slog.New(slog.DiscardHandler)}}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := r.gather(ctx)
		ended <- cmp.Or(r.rejectedBefore(ctx), err)
	}()
	synctest.Wait()
	unfit := &Rejection{Cause: "node", Message: "n2 failed a check"}
	m.join(newParticipant(newNonce(), ""), joinRequest{Index: 1, Host: "n2", Count: 3, Rejects: unfit})
	time.Sleep(rejectWait + time.Minute/2) // the check of the third agent is still running
	cancel(SignalError{sig})
	want := unfit.Message
	if sig == syscall.SIGINT {
		want = "told to stop by SIGINT"
	}
	if err := <-ended; err == nil || err.Error() != want {
		t.Errorf("%v: it ended with %v", sig, err)
	}
}

// A rejection is the reason of the end even if the other agent has received agent 0's offer, rejected and ended before agent 0 knows that
// all agents have called Exchange.
func TestRejectionBeforeTheEndOfExchangeIsTheReason(t *testing.T) {
	agent := func(index int) Config {
		return complete(Config{World: World{Index: index, Count: 2, Host: "n1"}, Identity: Identity{RunID: "r/1"}})
	}
	agent0, agent1 := agent(0), agent(1)
	offered := make(chan string, 1)
	agent0.Exchange = func(ctx context.Context, mine string) (string, error) {
		offered <- mine
		<-ctx.Done()
		return "", ctx.Err()
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Join(ctx, &agent0)
		ended <- err
	}()
	o, err := parseOffer(<-offered)
	must(t, err)
	agent1.Secret, err = auth.ParseSecret(o.Secret)
	must(t, err)
	agent1.Ports, agent1.Reject = []int{o.Port}, &Rejection{Cause: "node", Message: "its disk is full"}
	if _, err := Join(t.Context(), &agent1); err == nil || err.Error() != "its disk is full" {
		t.Errorf("the one that rejects: %v", err)
	}
	cancel(SignalError{syscall.SIGTERM}) // as srun does when a task ends
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "its disk is full") {
		t.Errorf("agent 0 ended with: %v", err)
	}
}

// If agent 0 is the one that cannot take part, TERM does not replace that reason, but SIGINT does.
func TestRejectingAgent0IsInterrupted(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(SignalError{sig})
		c := complete(Config{World: World{Count: 2, Host: "n1"}, Admission: Admission{MinCount: 2}})
		c.MasterAddr, c.Ports, c.Reject = Loopback, []int{0}, &Rejection{Cause: "node", Message: "n1 failed a check"}
		_, err := Join(ctx, &c)
		if _, interrupted := errors.AsType[SignalError](err); interrupted != (sig == syscall.SIGINT) {
			t.Errorf("%v: it ended with %v", sig, err)
		}
	}
}

func TestClocksThatAreFarApart(t *testing.T) {
	for ahead, want := range map[time.Duration]string{
		time.Minute: "", -time.Minute: "",
		3 * time.Minute: "the clock of n2 is 3m0s ahead of that of n1", -time.Hour: "the clock of n2 is 1h0m0s behind that of n1",
	} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			c := Config{World: World{Host: "n1"}, Log: slog.New(slog.NewTextHandler(&log, nil))}
			c.compareClocks(joinRequest{Host: "n2", Clock: time.Now().Add(ahead)})
			c.compareClocks(joinRequest{Host: "n3"}) // it does not send its clock
			if !strings.Contains(log.String(), want) || want == "" && log.Len() > 0 {
				t.Errorf("%v: %q", ahead, log.String())
			}
		})
	}
}

// If one agent was lost and another one rejects, agents that come later receive the rejection. The short wait after the loss does not end
// before they come.
func TestRejectionAfterALossIsReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMembership(joinRequest{Host: "n1", Count: 4})
		m := &Rendezvous{cfg: Config{
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
		r.join(newParticipant("2", ""), joinRequest{Index: 2, Host: "n3", Count: 4, Rejects: &Rejection{Message: "its disk is full"}})
		time.Sleep(2 * time.Second) // on the bubble's clock
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

// If more agents come than the run needs, some may reject, as long as enough others have come.
func TestSparesMayReject(t *testing.T) {
	r := &Rendezvous{cfg: Config{World: World{Count: 3}, Admission: Admission{MinCount: 2}},
		membership: newMembership(joinRequest{Host: "n1", Count: 3})}
	rejecting := []joinRequest{{Rejects: &Rejection{Message: "one"}}, {Rejects: &Rejection{Message: "two"}}}
	if why, _ := r.whyImpossible(2, rejecting); why != nil {
		t.Errorf("with two of two to three agents it cannot begin: %v", why)
	}
	if why, _ := r.whyImpossible(1, rejecting); why == nil {
		t.Error("with one agent, and two that cannot take part, it waits for the second")
	}
}

// If agent 0 has lost an agent while it waits for others, a signal that comes at the last moment is the reason of the end.
func TestSignalBeforeAllMetCountsAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMembership(joinRequest{Host: "n1", Count: 3})
		m := &Rendezvous{cfg: Config{
			World:     World{Count: 3},
			Admission: Admission{MinCount: 3, JoinTimeout: time.Hour},
			Log:       slog.New(slog.DiscardHandler),
		}, membership: r}
		ctx, cancel := context.WithCancelCause(t.Context())
		lost := newParticipant("1", "")
		r.join(lost, joinRequest{Index: 1, Host: "n2", Count: 3})
		r.drop(lost, connectionEnded)
		cancel(SignalError{Sig: syscall.SIGTERM})
		if err := m.gather(unnoticed{ctx}); !errors.As(err, &SignalError{}) {
			t.Errorf("ended with %v, want the signal", err)
		}
	})
}

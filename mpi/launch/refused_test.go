package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/reach"
	"ddpbatch/mpi/store"
)

// An agent with another secret than its run's hears so from agent 0, and ends; agent 0 tells once that it came.
func TestOtherSecret(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]*world{"ports": newWorld(t, []int{1, 1}, "say", "x"), "told": newStep(t, 2, "say", "x"), "endpoint": newMeeting2(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is a pause, where there are several ports
			secret, err := auth.NewSecret()
			must(t, err)
			for i := range w.agents {
				w.agents[i].Secret, w.agents[i].JoinTimeout = secret, 16*time.Second
			}
			w.agents[1].Secret[0]++
			ctx, cancel := context.WithCancel(t.Context())
			first := w.begin(ctx, 0)
			if addr := w.agents[1].Endpoint; addr != "" {
				awaitListener(t, addr) // who comes first is agent 0
			}
			r := <-w.begin(t.Context(), 1)
			if r.err == nil || r.Exit != 1 || r.Cause != "start" || !strings.Contains(r.Message, "this very run refused this side's secret") ||
				!strings.Contains(r.Message, "DDPBATCH_SECRET") {
				t.Errorf("the agent with another secret ended with %+v", r)
			}
			testkit.Eventually(t, "agent 0 tells of it", func() bool { return strings.Contains(w.log.String(), auth.ErrUnproved.Error()) })
			cancel()
			<-first
			if n := strings.Count(w.log.String(), auth.ErrUnproved.Error()); n != 1 || !strings.Contains(w.log.String(), "remote=127.0.0.1:") {
				t.Errorf("agent 0 tells %d times of one host:\n%s", n, w.log.String())
			}
		})
	}
}

// Another user's run of the same id has one of the ports; the own agent 0 comes later, to the next one.
func TestAnotherRunOfTheSameID(t *testing.T) {
	one, two := newWorld(t, []int{1, 1}, "say", "x"), newWorld(t, []int{1, 1}, "say", "x")
	ports := Ports(one.cookie, 2)
	for i := range 2 {
		one.agents[i].RunID, two.agents[i].RunID = "100", "100" // torchrun's own example of --rdzv-id
		one.agents[i].Ports, two.agents[i].Ports = ports[:1], ports
	}
	var log testkit.Journal
	two.agents[1].Log = log.Logger()
	ctx, cancel := context.WithCancel(t.Context())
	first := one.begin(ctx, 0)
	awaitListener(t, fmt.Sprintf("%s:%d", loopback, ports[0]))
	late := two.begin(ctx, 1)
	testkit.Eventually(t, "agent 1 hears that it is refused", func() bool { return strings.Contains(log.String(), "refused this side's secret") })
	if v := two.agree([]result{<-two.begin(ctx, 0), <-late}); v.Cause != "done" {
		t.Errorf("verdict is %+v", v)
	}
	cancel()
	<-first
}

// A refusal of the secret is the last word of all addresses together, or of some for a while.
func TestRefusalIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		addrs := []string{"n1:1", "n1:2"}
		patient := AgentConfig{JoinTimeout: time.Hour}
		alone := &approach{cfg: patient, race: reach.NewRace(addrs[:1], 0), refusedAt: make(map[string]time.Time)}
		if !alone.isFinal(addrs[0], store.ErrOtherSecret) {
			t.Error("nobody else can be agent 0, and it goes on")
		}
		a := &approach{cfg: patient, race: reach.NewRace(addrs, 0), refusedAt: make(map[string]time.Time)}
		for range 3 { // it is taken back where another answer comes
			if a.isFinal(addrs[0], store.ErrOtherSecret) || a.isFinal(addrs[1], none) {
				t.Error("agent 0 may come to the other address, and it ends")
			}
			time.Sleep(refusalWait - time.Second)
			if a.isFinal(addrs[0], store.ErrOtherSecret) || a.isFinal(addrs[0], none) {
				t.Error("it ends too soon")
			}
		}
		a.isFinal(addrs[0], store.ErrOtherSecret)
		time.Sleep(refusalWait)
		if a.isFinal(addrs[1], none) || !a.isFinal(addrs[0], store.ErrOtherSecret) {
			t.Errorf("it does not end with what was said for %v", refusalWait)
		}
		a.isFinal(addrs[0], none)
		if a.isFinal(addrs[0], store.ErrOtherSecret) || !a.isFinal(addrs[1], store.ErrOtherSecret) {
			t.Error("it does not end when all have said it")
		}
	})
}

// awaitListener waits until somebody listens there.
func awaitListener(t *testing.T, addr string) {
	t.Helper()
	testkit.Eventually(t, "somebody listens at "+addr, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// newMeeting2 is two agents that meet at an endpoint.
func newMeeting2(t *testing.T) *world {
	w := newWorld(t, []int{1, 1}, "say", "x")
	for i := range w.agents {
		w.agents[i].Ports = Ports(w.cookie, 1)
	}
	w.agents[1].Endpoint = fmt.Sprintf("%s:%d", loopback, w.agents[1].Ports[0])
	w.agents[1].Index = -1
	w.agents[1].RunDir, w.agents[0].RunDir = nil, nil
	return w
}

// Another run's agent 0 has the only port that the agents know of, and keeps it.
func TestAnotherRunHasTheEndpoint(t *testing.T) {
	t.Parallel() // most of it is a pause
	one, two := newMeeting2(t), newMeeting2(t)
	ctx, cancel := context.WithCancel(t.Context())
	first := one.begin(ctx, 0)
	c := two.agents[1]
	c.Endpoint, c.JoinTimeout = one.agents[1].Endpoint, time.Hour
	two.agents = []AgentConfig{c}
	awaitListener(t, c.Endpoint)
	r := <-two.begin(t.Context(), 0)
	if r.err == nil || r.Exit != 1 || r.Cause != "start" || !strings.Contains(r.Message, c.Endpoint+": handshake: the server refused this run's secret") {
		t.Errorf("the agent ended with %+v", r)
	}
	cancel()
	<-first
}

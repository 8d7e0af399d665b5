package launch

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/mpi/store"
)

// A worker's end that may be the consequence of a signal is thought about; what follows
// from it on another node is not, and comes second all the same.
func TestTheFirstEndIsTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		first *worker
		cause string
		exit  int
	}{
		"killed by TERM": {&worker{place: Place{Rank: 1}, signal: syscall.SIGTERM}, "signal", 143},
		"agreed to stop": {&worker{place: Place{Rank: 1}, exit: 75}, "stopped", 75},
		"crashed":        {&worker{place: Place{Rank: 1}, exit: 3}, "crash", 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				agents := meetInMemory(t, ctx, store.NewMemory())
				agents[1].workerEnded(ctx, tc.first)
				synctest.Wait()
				agents[0].workerEnded(ctx, &worker{exit: 1}) // its peer was gone
				for _, s := range agents {
					for s.busy() {
						s.step(ctx)
					}
					if v := s.outcome; v.Cause != tc.cause || v.Exit != tc.exit || v.FirstRank != 1 || v.Host != "n2" {
						t.Errorf("agent %d: outcome is %+v", s.cfg.Index, v)
					}
				}
				cancel()
				for _, s := range agents {
					s.talk.wait()
				}
			})
		})
	}
}

// Agent 0 is stopped or its machine hangs: the connection lives, and nothing answers. The others
// end all the same, with what they know.
func TestAgent0DoesNotAnswer(t *testing.T) {
	for name, w := range map[string]*worker{
		"crashed":        {place: Place{Rank: 1}, exit: 3},
		"killed by TERM": {place: Place{Rank: 1}, signal: syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := meetInMemory(t, ctx, silentStore{})[1]
				begin := time.Now()
				s.workerEnded(ctx, w)
				for s.busy() || !s.finished {
					s.step(ctx)
				}
				v, err := s.conclude()
				want, _ := s.cfg.exitOutcome(w)
				if err != nil || v.Cause != want.Cause || v.Exit != want.Exit || v.FirstRank != 1 {
					t.Errorf("ended with %+v, %v; want %+v", v, err, want)
				}
				if took := time.Since(begin); took > 2*s.cfg.Grace+time.Minute {
					t.Errorf("it took %v", took)
				}
				cancel()
			})
		})
	}
}

// What cannot be said since agent 0 is gone is not the outcome: that agent 0 is lost is.
func TestProposalToALostAgent(t *testing.T) {
	c, err := AgentConfig{Index: 1, Count: 2, MasterAddr: "n1", Ports: []int{1}, Host: "n2", Nproc: 1, Command: []string{"x"}}.withDefaults()
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	s := &supervisor{cfg: c, talk: startTalk(ctx, c, &meeting{store: lostStore{}})}
	s.propose(c.verdict(causeCancelled, 143, "told"))
	for s.busy() || !s.finished {
		s.step(ctx)
	}
	if s.outcome.Cause != causeLost {
		t.Errorf("outcome is %+v", s.outcome)
	}
	cancel()
	s.talk.wait()
}

// meetInMemory makes the supervisors of two agents that have met, without workers.
func meetInMemory(t *testing.T, ctx context.Context, s store.Store) []*supervisor {
	t.Helper()
	var agents []*supervisor
	for index, host := range []string{"n1", "n2"} {
		c, err := AgentConfig{
			Index: index, Count: 2, Host: host, Nproc: 1, Command: []string{"x"}, MasterAddr: "n1", Ports: []int{1},
		}.withDefaults()
		must(t, err)
		agents = append(agents, &supervisor{cfg: c, alive: 1, talk: startTalk(ctx, c, &meeting{store: s, roster: newRoster(2)})})
	}
	return agents
}

// silentStore is a store that never answers.
type silentStore struct{ store.Store }

func (silentStore) Get(ctx context.Context, _ string) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silentStore) Set(ctx context.Context, _ string, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

func (silentStore) CompareSet(ctx context.Context, _ string, _, _ []byte) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// lostStore is one whose connection has ended.
type lostStore struct{ store.Store }

var errGone = &store.LostError{Addr: "n1:61000", Err: errors.New("EOF")}

func (lostStore) Get(context.Context, string) ([]byte, error) { return nil, errGone }
func (lostStore) Set(context.Context, string, []byte) error   { return errGone }
func (lostStore) CompareSet(context.Context, string, []byte, []byte) ([]byte, error) {
	return nil, errGone
}

package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/store"
)

// An agent that loses another agent while it starts its workers notices that before it starts the next one.
func TestAgentLostWhileStartingIsNoticed(t *testing.T) {
	for name, lose := range map[string]func(s *Supervisor){
		"agent 0": func(s *Supervisor) { s.cfg.Index = 1; s.control.lastWords <- nil },
		"agent 1": func(s *Supervisor) {
			s.control.lost <- &rendezvous.Participant{Index: 1, Host: "n2"}
		},
	} {
		c, m := one(newRunDir(t)), &met{}
		s := &Supervisor{
			cfg: c, round: &round{agent: agentOf(t, c, m), rdzv: m},
			control: &controlChannel{lastWords: make(chan *rendezvous.LastWord, 1), lost: make(chan *rendezvous.Participant, 1),
				proposals: make(chan rundir.Verdict, 1)},
		}
		lose(s)
		s.handlePending(t.Context())
		s.writes.Wait()
		if known := cmp.Or(s.outcome, s.mine); known == nil || known.Cause != causeNode || s.stop.stage != signalled {
			t.Errorf("without %s the outcome is %+v, and its workers are at stage %d", name, known, s.stop.stage)
		}
	}
}

// Without agent 0, workers get TERM and soon after that KILL, even if they were already being stopped for another reason.
func TestWorkersHaveLittleTimeWithoutAgent0(t *testing.T) {
	for _, before := range []string{"", causeCrash, causeStopped} {
		synctest.Test(t, func(t *testing.T) {
			c := complete(Config{World: rendezvous.World{Index: 1, Count: 2, Host: "n2", Nproc: 1}, Limits: Limits{Grace: time.Hour}})
			s := agentOf(t, c, &met{store: lostStore{}}).newSupervisor(t.Context(), twoMembers())
			s.exits = make(chan *worker, 1)
			p := s.addFake(t, rendezvous.RankNumbers{Rank: 1}, act{deaf: true})
			if before != "" {
				s.receiveOutcome(c.Verdict(before, 1, ""))
			}
			s.run(t.Context())
			if got := fmt.Sprint(p.signals); got != "[SIGTERM at 0s SIGKILL at 5s]" || s.outcome.Cause != cmp.Or(before, causeNode) {
				t.Errorf("after %q the worker got %s, and the outcome is %+v", before, got, s.outcome)
			}
			s.Close()
		})
	}
}

// If the first worker's end may be the consequence of a signal, its agent holds that end back for a moment. It is still the cause, even if
// an end on another node that follows from it is reported meanwhile.
func TestTheFirstEndIsTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		first *worker
		cause string
		exit  int
	}{
		"killed by TERM": {&worker{numbers: rendezvous.RankNumbers{Rank: 1}, signal: syscall.SIGTERM}, "crash", 143},
		"agreed to stop": {&worker{numbers: rendezvous.RankNumbers{Rank: 1}, exit: 75}, "stopped", 75},
		"crashed":        {&worker{numbers: rendezvous.RankNumbers{Rank: 1}, exit: 3}, "crash", 3},
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
						s.handleEvent(ctx)
					}
					if v := s.outcome; v.Cause != tc.cause || v.Exit != tc.exit || v.FirstRank != 1 || v.Host != "n2" {
						t.Errorf("agent %d: outcome is %+v", s.cfg.Index, v)
					}
				}
				cancel()
				for _, s := range agents {
					s.control.wait()
				}
			})
		})
	}
}

// If agent 0 is stopped or its machine hangs, the connection stays open, but agent 0 does not answer. The others still end, with what they
// know.
func TestAgent0DoesNotAnswer(t *testing.T) {
	for name, w := range map[string]*worker{
		"crashed":        {numbers: rendezvous.RankNumbers{Rank: 1}, exit: 3},
		"killed by TERM": {numbers: rendezvous.RankNumbers{Rank: 1}, signal: syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := meetInMemory(t, ctx, silentStore{})[1]
				begin := time.Now()
				s.workerEnded(ctx, w)
				for s.busy() || !s.finished {
					s.handleEvent(ctx)
				}
				v, _, err := s.ReceivedVerdict()
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

// If a proposal cannot be published because agent 0 is lost, that loss is the outcome.
func TestProposalToALostAgent0IsNotAnOutcome(t *testing.T) {
	c := complete(Config{World: rendezvous.World{Index: 1, Count: 2, Host: "n2", Nproc: 1}, Workers: Workers{Command: []string{"x"}}})
	ctx, cancel := context.WithCancel(t.Context())
	r := newRound(agentOf(t, c, &met{store: lostStore{}}), twoMembers())
	s := &Supervisor{round: r, cfg: c, control: openControlChannel(ctx, r)}
	s.propose(c.Verdict(causeCancelled, 143, "told"))
	for s.busy() || !s.finished {
		s.handleEvent(ctx)
	}
	if s.outcome.Cause != causeNode {
		t.Errorf("outcome is %+v", s.outcome)
	}
	cancel()
	s.control.wait()
}

// meetInMemory makes the supervisors of two agents that have met, without workers.
func meetInMemory(t *testing.T, ctx context.Context, s store.Store) []*Supervisor {
	t.Helper()
	var agents []*Supervisor
	for index, host := range []string{"n1", "n2"} {
		c := complete(Config{World: rendezvous.World{Index: index, Count: 2, Host: host, Nproc: 1},
			Workers: Workers{Command: []string{"x"}}})
		r := newRound(agentOf(t, c, &met{store: s}), twoMembers())
		agents = append(agents, &Supervisor{round: r, cfg: c, alive: 1, control: openControlChannel(ctx, r)})
	}
	return agents
}

func twoMembers() *rendezvous.Layout {
	return &rendezvous.Layout{
		Count: 2, World: 2, Host: "n1", MasterPort: 1, Participants: []*rendezvous.Participant{{Index: 1, Host: "n2"}},
		Members: []rendezvous.Member{{Index: 0, Host: "n1", Nproc: 1}, {Index: 1, Host: "n2", First: 1, Nproc: 1}},
	}
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

// lostStore is a store whose connection has ended.
type lostStore struct{ store.Store }

var errGone = &store.LostError{Addr: "n1:61000", Err: errors.New("EOF")}

func (lostStore) Get(context.Context, string) ([]byte, error) { return nil, errGone }

func (lostStore) Set(context.Context, string, []byte) error { return errGone }

func (lostStore) CompareSet(context.Context, string, []byte, []byte) ([]byte, error) {
	return nil, errGone
}

package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
)

// onFirst is a log that calls then at the first record with this message, in the goroutine that says it.
type onFirst struct {
	slog.Handler
	message string
	then    func()
}

func (h *onFirst) Enabled(context.Context, slog.Level) bool { return true }

func (h *onFirst) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &onFirst{h.Handler.WithAttrs(attrs), h.message, h.then}
}

func (h *onFirst) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message && h.then != nil {
		h.then()
		h.then = nil
	}
	return h.Handler.Handle(ctx, r)
}

// A run that is told to stop while its workers are being started starts no more of them.
func TestSignalWhileStarting(t *testing.T) {
	w := newWorld(t, []int{5}, "wait", "0")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	c := &w.agents[0]
	c.Log = slog.New(&onFirst{c.Log.Handler(), "worker started", func() { cancel(SignalError{Sig: syscall.SIGTERM}) }})
	v := w.agree(w.runUntil(ctx))
	if v.Cause != "cancelled" || v.Signal != int(syscall.SIGTERM) {
		t.Errorf("verdict is %+v", v)
	}
	if n := strings.Count(w.log.String(), "worker started"); n != 1 {
		t.Errorf("%d workers were started, want the 1 before it was told to stop", n)
	}
}

// An agent that loses another while it starts its workers learns of that before the next one starts.
func TestLostWhileStarting(t *testing.T) {
	for name, lose := range map[string]func(s *supervisor){
		"agent 0": func(s *supervisor) { s.cfg.Index = 1; s.control.lastWords <- nil },
		"agent 1": func(s *supervisor) {
			p := newParticipant("1", "")
			p.index, p.join.Host = 1, "n2"
			s.control.lost <- p
		},
	} {
		w := newWorld(t, []int{1, 1}, "say", "x")
		c, err := w.agents[0].withDefaults()
		must(t, err)
		s := &supervisor{
			cfg: c, round: &round{rdzv: &rendezvous{cfg: c}},
			control: &controlChannel{lastWords: make(chan *lastWord, 1), lost: make(chan *participant, 1), proposals: make(chan rundir.Verdict, 1)},
		}
		lose(s)
		s.handlePending(t.Context())
		s.writes.Wait()
		if known := cmp.Or(s.outcome, s.mine); known == nil || known.Cause != causeNode || s.stop.stage != signalled {
			t.Errorf("without %s the outcome is %+v, and its workers are at stage %d", name, known, s.stop.stage)
		}
	}
}

// A worker's end that may be the consequence of a signal is thought about; what follows
// from it on another node is not, and comes second all the same.
func TestTheFirstEndIsTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		first *worker
		cause string
		exit  int
	}{
		"killed by TERM": {&worker{ranks: Place{Rank: 1}, signal: syscall.SIGTERM}, "crash", 143},
		"agreed to stop": {&worker{ranks: Place{Rank: 1}, exit: 75}, "stopped", 75},
		"crashed":        {&worker{ranks: Place{Rank: 1}, exit: 3}, "crash", 3},
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

// A rank that only lost its peer is heard of first; the peer, whose exception closed its connections before it ended, is the one
// to blame, by its own exit code and words.
func TestTheRankThatWasLostIsTheCause(t *testing.T) {
	for name, nproc := range map[string][]int{"on one node": {2}, "on two nodes": {1, 1}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nproc, "")
			script := fmt.Sprintf(`if [ $RANK = 0 ]; then while [ ! -e "$%[1]s/1" ]; do sleep 0.02; done; while kill -0 $(cat "$%[1]s/1") 2>/dev/null; do sleep 0.02; done
				echo 'ValueError: the data is bad' >&2; exit 7; fi
				echo $$ > "$%[1]s/new"; mv "$%[1]s/new" "$%[1]s/1"; echo 'RuntimeError: Connection closed by peer [127.0.0.1]:4711' >&2; exit 1`, workerFolder)
			for i := range w.agents {
				w.agents[i].Command = []string{"/bin/sh", "-c", script}
				w.agents[i].PeerWait = testkit.Patience // rank 0 may find that rank 1 has ended as late as it likes
			}
			v := w.agree(w.run())
			if v.FirstRank != 0 || v.Exit != 7 || v.Host != "n1" || v.Cause != "crash" || !strings.Contains(v.Message, w.dir.LogPath(1, "n1", 0, "err")) {
				t.Errorf("verdict is %+v", v)
			}
			if len(v.Ranks) != 2 || v.Ranks[0].Rank != 0 || v.Ranks[0].Followed || !v.Ranks[1].Followed {
				t.Errorf("ranks ended as %+v", v.Ranks)
			}
			if !strings.Contains(v.Report, "ValueError: the data is bad") {
				t.Errorf("report is\n%s", v.Report)
			}
		})
	}
}

// A rank that lost a peer of which nothing more is heard is the one to name.
func TestLostPeerThatSaysNothing(t *testing.T) {
	w := newWorld(t, []int{2}, "")
	w.agents[0].Command = []string{"/bin/sh", "-c", `[ $RANK = 0 ] && exec sleep 100; echo 'Connection reset by peer' >&2; exit 3`}
	v := w.agree(w.run())
	if v.FirstRank != 1 || v.Exit != 3 {
		t.Errorf("verdict is %+v", v)
	}
	w.noneWasKilled(v)
}

// Agent 0 is stopped or its machine hangs: the connection lives, and nothing answers. The others
// end all the same, with what they know.
func TestAgent0DoesNotAnswer(t *testing.T) {
	for name, w := range map[string]*worker{
		"crashed":        {ranks: Place{Rank: 1}, exit: 3},
		"killed by TERM": {ranks: Place{Rank: 1}, signal: syscall.SIGTERM},
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
				v, _, err := s.finalize(ctx)
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
	c, err := AgentConfig{
		World:   World{Index: 1, Count: 2, Host: "n2", Nproc: 1},
		Network: Network{MasterAddr: "n1", Ports: []int{1}},
		Workers: Workers{Command: []string{"x"}},
	}.withDefaults()
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	r := newRound(&rendezvous{cfg: c, reaper: &reaper{}, store: lostStore{}}, twoMembers())
	s := &supervisor{round: r, cfg: c, control: openControlChannel(ctx, r)}
	s.propose(c.verdict(causeCancelled, 143, "told"))
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
func meetInMemory(t *testing.T, ctx context.Context, s store.Store) []*supervisor {
	t.Helper()
	var agents []*supervisor
	for index, host := range []string{"n1", "n2"} {
		c, err := AgentConfig{
			World:   World{Index: index, Count: 2, Host: host, Nproc: 1},
			Workers: Workers{Command: []string{"x"}},
			Network: Network{MasterAddr: "n1", Ports: []int{1}},
		}.withDefaults()
		must(t, err)
		r := newRound(&rendezvous{cfg: c, reaper: &reaper{}, ctx: ctx, store: s, warned: make(chan struct{})}, twoMembers())
		agents = append(agents, &supervisor{round: r, cfg: c, alive: 1, control: openControlChannel(ctx, r)})
	}
	return agents
}

func twoMembers() *layout {
	p := newParticipant(newNonce(), loopback)
	p.index, p.join.Host = 1, "n2"
	return &layout{
		Count: 2, World: 2, Host: "n1", MasterPort: 1, participants: []*participant{p},
		Members: []member{{Index: 0, Host: "n1", Nproc: 1}, {Index: 1, Host: "n2", First: 1, Nproc: 1}},
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

// lostStore is one whose connection has ended.
type lostStore struct{ store.Store }

var errGone = &store.LostError{Addr: "n1:61000", Err: errors.New("EOF")}

func (lostStore) Get(context.Context, string) ([]byte, error) { return nil, errGone }
func (lostStore) Set(context.Context, string, []byte) error   { return errGone }
func (lostStore) CompareSet(context.Context, string, []byte, []byte) ([]byte, error) {
	return nil, errGone
}

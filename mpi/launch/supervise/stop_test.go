package supervise

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/rendezvous"
)

func TestWorkerMayDieBeforeTheAgentsSignal(t *testing.T) {
	for name, tc := range map[string]struct {
		worker    *worker
		signalled bool
		want      string
	}{
		"TERM, then told":        {&worker{signal: syscall.SIGTERM}, true, "cancelled"},
		"TERM alone":             {&worker{signal: syscall.SIGTERM}, false, "crash"},
		"shell's code, told":     {&worker{exit: 130}, true, "cancelled"},
		"shell's code alone":     {&worker{exit: 130}, false, "crash"},
		"agreed stop, then told": {&worker{exit: 75}, true, "cancelled"},
		"agreed stop alone":      {&worker{exit: 75}, false, "stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				c := one(nil)
				s := &Supervisor{round: newRound(agentOf(t, c, &met{}), &rendezvous.Layout{}), cfg: c, interrupted: ctx.Done(),
					control: &controlChannel{}}
				s.control.proposals, s.control.ends = make(chan rundir.Verdict, 1), make(chan rundir.Verdict, 1)
				s.workerEnded(ctx, tc.worker)
				if s.mine != nil {
					t.Fatalf("proposed %+v at once", s.mine)
				}
				if tc.signalled {
					time.Sleep(rendezvous.SignalDelay / 2) // on the bubble's clock
					cancel(rendezvous.SignalError{Sig: syscall.SIGTERM})
				}
				s.handleEvent(ctx)
				if s.mine == nil || s.mine.Cause != tc.want {
					t.Errorf("proposed %+v, want %s", s.mine, tc.want)
				}
				cancel(nil)
			})
		})
	}
}

// A busy machine may wake an agent only when the wait for its own signal is over and that signal has come, too. The signal counts.
func TestAgentsSignalCountsAtTheLastMoment(t *testing.T) {
	for range 20 { // select chooses at random among cases that are ready
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			c := one(nil)
			s := &Supervisor{round: newRound(agentOf(t, c, &met{}), &rendezvous.Layout{}), cfg: c, interrupted: ctx.Done(),
				control: &controlChannel{}}
			s.control.proposals, s.control.ends = make(chan rundir.Verdict, 1), make(chan rundir.Verdict, 1)
			s.workerEnded(ctx, &worker{signal: syscall.SIGTERM})
			time.Sleep(2 * rendezvous.SignalDelay) // on the bubble's clock
			cancel(rendezvous.SignalError{Sig: syscall.SIGTERM})
			s.handleEvent(ctx)
			if s.mine == nil || s.mine.Cause != "cancelled" {
				t.Errorf("proposed %+v, want cancelled", s.mine)
			}
		})
	}
}

// A stop goes through all its stages if no signal ends the worker, not even KILL. A later cause does not take a stage back.
func TestStopGoesThroughItsStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := complete(Config{World: rendezvous.World{Count: 1, Host: "n1", Nproc: 1}, Limits: Limits{Grace: time.Minute}})
		s := &Supervisor{cfg: c, control: &controlChannel{}, alive: 1}
		begin := time.Now()
		s.stopFor(c.Verdict(causeStopped, 75, ""))
		for _, want := range []struct {
			stage stopStage
			at    time.Duration
		}{{asked, 0}, {signalled, time.Minute}, {killed, 2 * time.Minute}, {abandoned, 2*time.Minute + killWait}} {
			if s.stop.stage != want.stage || time.Since(begin) != want.at {
				t.Errorf("at %v stage is %d, want %d at %v", time.Since(begin), s.stop.stage, want.stage, want.at)
			}
			if s.stop.stage < abandoned {
				s.handleEvent(t.Context())
			}
		}
		s.stopFor(c.Verdict(causeCrash, 1, ""))
		if s.stop.stage != abandoned {
			t.Error("a stage was taken back")
		}
	})
}

// When a run is stopped from outside, Slurm may soon kill the agents. They kill workers that do not end before that, even those that they
// already stopped for another reason.
func TestTermGraceBoundsEveryStop(t *testing.T) {
	for name, tc := range map[string]struct {
		before string // the cause of a stop that is under way when TERM comes
		after  time.Duration
		killed time.Duration
	}{
		"running":                             {"", 0, 20 * time.Second},
		"told to stop long ago, KILL is near": {causeCrash, 55 * time.Second, time.Minute},
		"told to stop just now":               {causeCrash, time.Second, 21 * time.Second},
		"asked to stop just now":              {causeStopped, time.Second, 21 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := complete(Config{World: rendezvous.World{Count: 1, Host: "n1", Nproc: 1},
					Limits: Limits{Grace: time.Minute, TermGrace: 20 * time.Second}})
				s := &Supervisor{alive: 1, cfg: c, control: &controlChannel{}}
				begin := time.Now()
				if tc.before != "" {
					s.stopFor(c.Verdict(tc.before, 1, ""))
				}
				time.Sleep(tc.after) // on the bubble's clock
				s.stopFor(c.Verdict(causeCancelled, 143, ""))
				s.handleEvent(t.Context())
				if s.stop.stage != killed || time.Since(begin) != tc.killed {
					t.Errorf("at %v stage is %d, want %d at %v", time.Since(begin), s.stop.stage, killed, tc.killed)
				}
			})
		})
	}
}

// Agent 0 writes an early verdict before its workers have ended, because Slurm may kill it first. It yields only to the verdict of agents
// that had given it up.
func TestAgent0WritesAnEarlyVerdict(t *testing.T) {
	lost := rundir.Verdict{Cause: causeNode, Host: "n1", Nodes: []string{"n1"}, Exit: exit.Failed, Message: "theirs"} // agent 0 is on n1
	for _, test := range []struct {
		name string
		mine rundir.Verdict
		said *rundir.Verdict // the verdict of another agent
		want string          // whose verdict is on disk then
	}{
		{"nobody said", rundir.Verdict{Cause: causeCancelled, Signal: 15, Exit: 143}, nil, "mine"},
		{"given up, and woken up to be ended", rundir.Verdict{Cause: causeCancelled, Signal: 15, Exit: 143}, &lost, "theirs"},
		{"the other one was cut off", rundir.Verdict{Cause: causeNode, Host: "n2", Exit: exit.Failed}, &lost, "mine"},
		{"a crash", rundir.Verdict{Cause: causeCrash, Exit: 3}, &lost, "mine"},
		{"all were told to end", rundir.Verdict{Cause: causeCancelled, Signal: 15, Exit: 143},
			&rundir.Verdict{Cause: causeCancelled, Host: "n2", Message: "theirs"}, "mine"},
		{"they lost another one", rundir.Verdict{Cause: causeCancelled, Signal: 15, Exit: 143},
			&rundir.Verdict{Cause: causeNode, Host: "n3", Message: "theirs"}, "mine"},
		{"the first rank has saved", rundir.Verdict{Cause: causeStopped, Exit: exit.Requeue, Requeue: true, Saved: true}, nil, "mine"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := one(newRunDir(t))
			if test.said != nil {
				said := *test.said
				said.Attempt, said.FirstRank = c.Attempt, -1
				must(t, c.RunDir.WriteVerdict(said))
			}
			s := &Supervisor{cfg: c, round: &round{agent: &Agent{}}}
			test.mine.Attempt, test.mine.Message = c.Attempt, "mine"
			s.receiveOutcome(test.mine)
			s.writes.Wait()
			got, err := c.RunDir.Verdict(c.Attempt)
			must(t, err)
			if got.Message != test.want {
				t.Errorf("on disk is %+v, want what is %s", got, test.want)
			}
			if got.Saved { // other workers have not saved yet
				t.Error("it says that the run has saved, before all workers have ended")
			}
			if test.want == "mine" && (got.Cause != test.mine.Cause || got.Exit != test.mine.Exit || got.Requeue != test.mine.Requeue) {
				t.Errorf("on disk is %+v, want %+v", got, test.mine)
			}
			if s.outcome == nil || s.outcome.Saved != test.mine.Saved {
				t.Errorf("the outcome is %+v, want %+v", s.outcome, test.mine)
			}
		})
	}
}

// unnoticed is a context whose Done channel never closes, as if select always chose another event that is ready as well.
type unnoticed struct{ context.Context }

func (unnoticed) Done() <-chan struct{} { return nil }

// The early verdict has the attempt's last step, because no other verdict may follow. A step of another attempt does not count.
func TestEarlyVerdictHasTheLastStep(t *testing.T) {
	for attempt, want := range map[int]int64{1: 40, 7: 0} {
		c := one(newRunDir(t))
		must(t, os.WriteFile(c.RunDir.MetricsPath(), fmt.Appendf(nil, `{"attempt":%d,"step":40}`+"\n", attempt), 0o600))
		s := &Supervisor{cfg: c, round: &round{agent: &Agent{}}}
		s.receiveOutcome(c.Verdict(causeCrash, 1, "failed"))
		s.writes.Wait()
		if v, err := c.RunDir.Verdict(1); err != nil || v.Step != want {
			t.Errorf("the early verdict is %+v, %v; want step %d", v, err, want)
		}
	}
}

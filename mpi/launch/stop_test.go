package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/rundir"
)

func TestSignalIsPassedOn(t *testing.T) {
	for _, tc := range []struct {
		sig    syscall.Signal
		code   string // what the workers exit with
		exit   int
		worker string // what the workers saw
	}{
		{syscall.SIGTERM, "3", 143, "terminated\n"},
		{syscall.SIGINT, "0", 130, "interrupt\n"},
		{syscall.SIGUSR2, "5", 140, "user defined signal 2\n"},
	} {
		t.Run(fmt.Sprint(tc.sig, " ", tc.code), func(t *testing.T) {
			w := newWorld(t, []int{1, 2}, "wait", tc.code)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			go func() {
				w.awaitMarks("0", "1", "2")
				cancel(SignalError{tc.sig})
			}()
			v := w.agree(w.runUntil(ctx))
			if v.Cause != "cancelled" || v.Exit != tc.exit || v.Signal != int(tc.sig) || v.FirstRank != -1 || v.Requeue {
				t.Errorf("verdict is %+v", v)
			}
			for rank, host := range []string{"n1", "n2", "n2"} {
				if got := w.logOf(host, rank, "out"); got != tc.worker {
					t.Errorf("rank %d saw %q, want %q: the signal, once", rank, got, tc.worker)
				}
			}
		})
	}
}

// What workers that were told to stop exit with tells whether they saved.
func TestSavedOnASignal(t *testing.T) {
	for name, tc := range map[string]struct {
		codes []string
		exit  int
		saved bool
	}{
		"all saved":                      {[]string{"75", "75", "75"}, 75, true},
		"all are done":                   {[]string{"0", "0", "0"}, 0, true},
		"some saved, some had ended":     {[]string{"0", "75", "0"}, 75, true},
		"some saved, some just ended":    {[]string{"75", "143", "143"}, 75, true},
		"none saved":                     {[]string{"143", "1", "0"}, 143, false},
		"none saved, all ended by error": {[]string{"1", "1", "1"}, 143, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []int{1, 2}, append([]string{"mixed"}, tc.codes...)...)
			w.elastic(0, 3) // who is told to stop does not start again
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			go func() {
				w.awaitMarks("0", "1", "2")
				cancel(SignalError{syscall.SIGTERM})
			}()
			v := w.agree(w.runUntil(ctx))
			cause := "cancelled"
			if tc.exit == 0 {
				cause = "done"
			}
			if v.Cause != cause || v.Exit != tc.exit || v.Saved != tc.saved || v.Requeue != (tc.exit == 75) || v.Round != 0 {
				t.Errorf("verdict is %+v", v)
			}
		})
	}
}

// One agent is told, as scancel of a task does; all stop.
func TestSignalToOneAgent(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "wait", "3")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		w.awaitMarks("0", "1")
		cancel(SignalError{syscall.SIGTERM})
	}()
	results := make(chan result)
	go func() {
		v, err := Run(ctx, w.agents[1])
		results <- result{v, err, 0}
	}()
	v, err := Run(t.Context(), w.agents[0])
	if v := w.agree([]result{{v, err, 0}, <-results}); v.Cause != "cancelled" || v.Host != "n2" {
		t.Errorf("verdict is %+v", v)
	}
}

func TestDeadlineOfTheCaller(t *testing.T) {
	w := newWorld(t, []int{2}, "wait", "0")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		w.awaitMarks("0", "1")
		cancel(context.DeadlineExceeded)
	}()
	if v := w.agree(w.runUntil(ctx)); v.Cause != "timeout" || v.Exit != 124 {
		t.Errorf("verdict is %+v", v)
	}
}

func TestSignalBeforeAllMet(t *testing.T) {
	for index := range 2 {
		w := newWorld(t, []int{1, 1}, "say", "x")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(SignalError{syscall.SIGTERM})
		v, err := Run(ctx, w.agents[index])
		if err == nil || v.Cause != "cancelled" || v.Exit != 143 || v.Signal != 15 {
			t.Errorf("agent %d ended with %+v, %v", index, v, err)
		}
	}
}

// A worker may die of the signal before its agent hears of it.
func TestWorkersDeathBeforeTheAgentsSignal(t *testing.T) {
	for name, tc := range map[string]struct {
		worker *worker
		told   bool
		want   string
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
				c, err := AgentConfig{World: World{Count: 1, Host: "n1", Nproc: 1}, Workers: Workers{Command: []string{"x"}}}.withDefaults()
				must(t, err)
				s := &supervisor{round: newRound(&rendezvous{cfg: c, reaper: &reaper{}}, &layout{}), cfg: c, interrupted: ctx.Done(), control: &controlChannel{}}
				s.control.proposals, s.control.ends = make(chan rundir.Verdict, 1), make(chan rundir.Verdict, 1)
				s.workerEnded(ctx, tc.worker)
				if s.mine != nil {
					t.Fatalf("proposed %+v at once", s.mine)
				}
				if tc.told {
					time.Sleep(signalDelay / 2) // of the bubble's clock
					cancel(SignalError{syscall.SIGTERM})
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

// A busy machine may wake an agent only when both the time for its own signal is over and that signal is there. The signal counts.
func TestAgentsSignalAtTheLastMoment(t *testing.T) {
	for range 20 { // select draws among what is ready
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			c, err := AgentConfig{World: World{Count: 1, Host: "n1", Nproc: 1}, Workers: Workers{Command: []string{"x"}}}.withDefaults()
			must(t, err)
			s := &supervisor{round: newRound(&rendezvous{cfg: c, reaper: &reaper{}}, &layout{}), cfg: c, interrupted: ctx.Done(), control: &controlChannel{}}
			s.control.proposals, s.control.ends = make(chan rundir.Verdict, 1), make(chan rundir.Verdict, 1)
			s.workerEnded(ctx, &worker{signal: syscall.SIGTERM})
			time.Sleep(2 * signalDelay) // of the bubble's clock
			cancel(SignalError{syscall.SIGTERM})
			s.handleEvent(ctx)
			if s.mine == nil || s.mine.Cause != "cancelled" {
				t.Errorf("proposed %+v, want cancelled", s.mine)
			}
		})
	}
}

// unnoticed is a context whose end nobody waits for: select draws another event that has come as well.
type unnoticed struct{ context.Context }

func (unnoticed) Done() <-chan struct{} { return nil }

// So it is where the agent waits for others, and has lost one.
func TestSignalAtTheLastMomentBeforeAllMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMembership(joinRequest{Host: "n1", Count: 3})
		m := &rendezvous{cfg: AgentConfig{
			World:     World{Count: 3},
			Admission: Admission{MinCount: 3, JoinTimeout: time.Hour},
			Log:       slog.New(slog.DiscardHandler),
		}, membership: r}
		ctx, cancel := context.WithCancelCause(t.Context())
		lost := newParticipant("1", "")
		r.join(lost, joinRequest{Index: 1, Host: "n2", Count: 3})
		r.drop(lost, connectionEnded)
		cancel(SignalError{syscall.SIGTERM})
		if err := m.gather(unnoticed{ctx}); !errors.As(err, &SignalError{}) {
			t.Errorf("ended with %v, want the signal", err)
		}
	})
}

// A worker that ignores all but KILL, and one that not even that ends.
func TestStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := AgentConfig{
			World:   World{Count: 1, Host: "n1", Nproc: 1},
			Workers: Workers{Command: []string{"x"}},
			Limits:  Limits{Grace: time.Minute},
		}.withDefaults()
		must(t, err)
		s := &supervisor{cfg: c, control: &controlChannel{}, alive: 1}
		begin := time.Now()
		s.stopFor(c.verdict(causeStopped, 75, ""))
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
		s.stopFor(c.verdict(causeCrash, 1, ""))
		if s.stop.stage != abandoned {
			t.Error("a stage was taken back")
		}
	})
}

// Who tells a run to stop from outside may kill it soon: workers that do not leave are killed before that, those too that were told to
// leave earlier and for another reason.
func TestTermGrace(t *testing.T) {
	for name, tc := range map[string]struct {
		before string // the cause of a stop that goes on when TERM comes
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
				c, err := AgentConfig{
					World:   World{Count: 1, Host: "n1", Nproc: 1},
					Workers: Workers{Command: []string{"x"}},
					Limits:  Limits{Grace: time.Minute, TermGrace: 20 * time.Second},
				}.withDefaults()
				must(t, err)
				s := &supervisor{alive: 1, cfg: c, control: &controlChannel{}}
				begin := time.Now()
				if tc.before != "" {
					s.stopFor(c.verdict(tc.before, 1, ""))
				}
				time.Sleep(tc.after) // of synctest's time
				s.stopFor(c.verdict(causeCancelled, 143, ""))
				s.handleEvent(t.Context())
				if s.stop.stage != killed || time.Since(begin) != tc.killed {
					t.Errorf("at %v stage is %d, want %d at %v", time.Since(begin), s.stop.stage, killed, tc.killed)
				}
			})
		})
	}
}

// What agent 0 puts on disk before its workers have ended: Slurm may kill it by then, and nobody else's word is to stand but that of those that had
// given it up.
func TestEarlyWord(t *testing.T) {
	lost := rundir.Verdict{Cause: causeNode, Host: "n1", Nodes: []string{"n1"}, Exit: exitFailed, Message: "theirs"} // agent 0 is on n1
	for _, test := range []struct {
		name string
		mine rundir.Verdict
		said *rundir.Verdict // by another agent
		want string          // whose word is on disk then
	}{
		{"nobody said", rundir.Verdict{Cause: causeCancelled, Signal: 15, Exit: 143}, nil, "mine"},
		{"given up, and woken up to be ended", rundir.Verdict{Cause: causeCancelled, Signal: 15, Exit: 143}, &lost, "theirs"},
		{"the other one was cut off", rundir.Verdict{Cause: causeNode, Host: "n2", Exit: exitFailed}, &lost, "mine"},
		{"a crash", rundir.Verdict{Cause: causeCrash, Exit: 3}, &lost, "mine"},
		{"all were told to end", rundir.Verdict{Cause: causeCancelled, Signal: 15, Exit: 143}, &rundir.Verdict{Cause: causeCancelled, Host: "n2", Message: "theirs"}, "mine"},
		{"they lost another one", rundir.Verdict{Cause: causeCancelled, Signal: 15, Exit: 143}, &rundir.Verdict{Cause: causeNode, Host: "n3", Message: "theirs"}, "mine"},
		{"the first rank has saved", rundir.Verdict{Cause: causeStopped, Exit: exitRequeue, Requeue: true, Saved: true}, nil, "mine"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, []int{1}, "say", "x")
			c, err := w.agents[0].withDefaults()
			must(t, err)
			if test.said != nil {
				said := *test.said
				said.Attempt, said.FirstRank = c.Attempt, -1
				must(t, w.dir.WriteVerdict(said))
			}
			s := &supervisor{cfg: c, round: &round{rdzv: &rendezvous{}}}
			test.mine.Attempt, test.mine.Message = c.Attempt, "mine"
			s.receiveOutcome(test.mine)
			s.writes.Wait()
			got, err := w.dir.Verdict(c.Attempt)
			must(t, err)
			if got.Message != test.want {
				t.Errorf("on disk is %+v, want what is %s", got, test.want)
			}
			if got.Saved { // others have to save, too
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

// Where agent 0 is lost, another one's word is put on disk, which knows nothing of how the others' workers ended.
func TestLastWordWithoutAgent0(t *testing.T) {
	w := newWorld(t, []int{1}, "say", "x")
	c, err := w.agents[0].withDefaults()
	must(t, err)
	c.Index = 1
	s := &supervisor{cfg: c, outcome: &rundir.Verdict{Attempt: c.Attempt, FirstRank: 1, Cause: causeStopped, Exit: exitRequeue, Requeue: true, Saved: true}}
	if v, next, err := s.finalize(t.Context()); err != nil || next != nil || v.Cause != causeStopped {
		t.Errorf("concluded %+v, %v, %v", v, next, err)
	}
	if v, err := w.dir.Verdict(c.Attempt); err != nil || v.Saved || !v.Requeue || v.Exit != exitRequeue {
		t.Errorf("on disk is %+v, %v", v, err)
	}
}

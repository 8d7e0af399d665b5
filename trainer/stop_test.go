package trainer

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ddpbatch/mpi"
)

// sharedClock is a clock that several ranks share. It advances by a tenth of a second whenever it is read.
type sharedClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *sharedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Second / 10)
	return c.now
}

// The ranks stop by themselves in time to save before the deadline, and can resume from there.
func TestRanksSaveBeforeTheDeadline(t *testing.T) {
	cfg := small(2, 4, 5)
	straight, c := newCheckpoints(), newCheckpoints()
	mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS = straight.open(t), straight.fs })
	clock := &sharedClock{now: time.Unix(1e9, 0)}
	deadline := clock.now.Add(12 * time.Second)
	var out bytes.Buffer
	stopped := mustTrain(t, 2, cfg, func(rank int, _ *Config, env *Env) {
		env.Checkpoints, env.FS, env.Async, env.Clock = c.open(t), c.fs, true, clock.Now
		if rank == 0 { // only its deadline counts
			env.Deadline, env.Out = deadline, &out
		}
	})[0].Result
	if !stopped.Stopped || !stopped.OutOfTime || stopped.Steps < 2 || stopped.Steps >= 20 ||
		!slices.Equal(c.steps(t), []int64{stopped.Steps}) {
		t.Fatalf("%+v and checkpoints of steps %v, want a stop in the middle, and that saved", stopped, c.steps(t))
	}
	if end := clock.Now(); !end.Before(deadline) {
		t.Errorf("the ranks stopped %v after the deadline", end.Sub(deadline))
	}
	if strings.Count(out.String(), "rank 0 | stopping in time to save before the deadline | step ") != 1 {
		t.Errorf("nobody, or not only one line, said why: %q", out.String())
	}
	mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) {
		env.Checkpoints, env.FS, env.Resume = c.open(t), c.fs, true
	})
	sameState(t, c.latest(t), straight.latest(t))
}

// An evaluation stops in time before the deadline, but not much too early, however long its rounds are.
func TestDeadlineIsMetDuringAnEvaluation(t *testing.T) {
	for _, took := range []time.Duration{3 * time.Millisecond, time.Second / 3, 4 * time.Second, time.Minute} {
		for _, err := range onRanks(t, "local", 1, func(ctx context.Context, comm *mpi.Comm) error {
			c, now := newCheckpoints(), time.Unix(1e9, 0)
			deadline := now.Add(10 * time.Minute)
			tr := newTrainer(small(1, 1, 5), Env{
				Comm: comm, Checkpoints: c.open(t), FS: c.fs, Deadline: deadline, Clock: func() time.Time { return now },
			})
			defer tr.close()
			if err := tr.setUp(ctx); err != nil {
				return err
			}
			ask := tr.newStopPoll()
			for round := 1; ; round++ {
				now = now.Add(took)
				stop, err := ask.after(ctx, round)
				if err != nil {
					return err
				}
				left, save := deadline.Sub(now), guessSave(256)
				if left < save {
					return fmt.Errorf("rounds of %v: %v are left, less than a save takes", took, left)
				}
				if most := save + deadlineCheckEvery + took + max(pollEvery, took); stop && left > most {
					return fmt.Errorf("rounds of %v: stopped with %v left, want at most %v", took, left, most)
				}
				if stop {
					return nil
				}
			}
		}) {
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// If the deadline is near, no rank compresses what it saves. A run can still resume from that checkpoint.
func TestQuickSaveBeforeADeadlineIsNotCompressed(t *testing.T) {
	for name, change := range map[string]func(*Config, *Env){
		"shared disk": func(*Config, *Env) {},
		"local disk":  func(_ *Config, env *Env) { env.Local = "/scratch" },
		"local disk, a pipeline": func(cfg *Config, env *Env) {
			env.Local, cfg.Pipeline, cfg.Model.Hidden = "/scratch", 2, []int{300, 300}
		},
		"local disk, local SGD": func(cfg *Config, env *Env) {
			env.Local, cfg.DDP.AverageEvery = "/scratch", 2
		},
		"local disk, during an evaluation": func(cfg *Config, env *Env) {
			env.Local, cfg.Data.Rows, cfg.Data.Train, cfg.Data.Eval, cfg.Evaluate.EverySteps = "/scratch", 64, "0:40", "40:64", 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := small(2, 1, 5)
			cfg.Model.Hidden = []int{2000}
			c := newCheckpoints()
			for _, deadline := range []time.Time{time.Unix(1, 0), time.Now().Add(24 * time.Hour)} {
				mustTrain(t, 2, cfg, func(rank int, cfg *Config, env *Env) {
					env.Checkpoints, env.FS, env.Async, env.Resume = c.open(t), c.fs, true, true
					if rank == 0 { // only its deadline counts
						env.Deadline = deadline
					}
					change(cfg, env)
				})
			}
			list, err := c.open(t).List(t.Context())
			if err != nil || len(list) != 2 {
				t.Fatalf("%d checkpoints, error %v, want that of the stop and that of the end", len(list), err)
			}
			for i, info := range list {
				if asItIs := info.Bytes > info.RawBytes; asItIs != (i == 0) {
					t.Errorf("step %d: %d bytes of %d", info.Step, info.Bytes, info.RawBytes)
				}
			}
		})
	}
}

// Without checkpoints a run does not stop for its deadline.
func TestDeadlineWithoutCheckpointsStopsNothing(t *testing.T) {
	if r := mustTrain(t, 1, small(1, 1, 5), func(_ int, _ *Config, env *Env) { env.Deadline = time.Unix(1, 0) })[0].Result; r.Stopped {
		t.Errorf("%+v", r)
	}
}

// The estimates of a step's time and of a save's time are those computed by hand. The newest step counts an eighth, and a save of 200 MB
// takes 2 s beyond the 5 s of any save.
func TestPaceAndSaveAreGuessedByHand(t *testing.T) {
	var p pace
	p.add(3 * time.Second)
	if p.add(11 * time.Second); p.mean != 4*time.Second {
		t.Errorf("a step is thought to take %v, want 4 s", p.mean)
	}
	if got := guessSave(200e6); got != 7*time.Second {
		t.Errorf("a save of 200 MB is thought to take %v, want 7 s", got)
	}
}

// A request to stop ends an evaluation. The resumed run makes the evaluation again, and ends with the state of a run that never stopped.
func TestStopEndsAnEvaluationThatIsMadeAgain(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"between steps":      func(c *Config) { c.Evaluate.EverySteps = 1 },
		"at the epoch's end": func(c *Config) { c.Evaluate.EveryEpochs = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := evaluatedJob(2, 3, 2)
			cfg.Data.Rows, cfg.Data.Eval = 2*8+24, rowRange(2*8, 2*8+24) // three rounds
			cfg.Evaluate.Best, cfg.Evaluate.Patience = "loss", 100
			change(&cfg)
			straight := complete(t, "local", 2, cfg, nil)
			for k := int64(1); k <= straight.Steps; k++ {
				if name == "at the epoch's end" && k%2 == 1 {
					continue // no evaluation follows
				}
				stop := make(chan struct{})
				stopped := complete(t, "local", 2, cfg, func(rank int, _ *Config, env *Env) {
					if rank == 0 { // after step k, and before its evaluation
						env.Stop, env.onStep = stop, func(p stepDone) {
							if p.step == k {
								close(stop)
							}
						}
					}
				})
				if !stopped.Stopped || stopped.OutOfTime || stopped.Steps != k {
					t.Fatalf("asked to stop after step %d: %+v", k, stopped.Result)
				}
				resumed := completeIn(t, stopped.checkpoints, "local", 2, cfg, func(_ int, _ *Config, env *Env) { env.Resume = true })
				if got, want := bestIn(t, resumed.state), bestIn(t, straight.state); got != want || resumed.EvalLoss != straight.EvalLoss {
					t.Errorf("stopped after step %d: best %+v and %v, want %+v and %v", k, got, resumed.EvalLoss, want, straight.EvalLoss)
				}
				sameState(t, resumed.state, straight.state)
			}
		})
	}
}

// If rank 0's deadline requires a quick save before the first step, no rank compresses it, though only rank 0 knows the deadline.
func TestQuickSaveAtTheStartIsOfAllRanks(t *testing.T) {
	for _, quick := range []bool{true, false} {
		deadline := time.Now().Add(24 * time.Hour)
		if quick {
			deadline = time.Unix(1, 0)
		}
		cfg := small(2, 1, 1)
		cfg.Model.Hidden = []int{2000}
		c := newCheckpoints()
		mustTrain(t, 2, cfg, func(rank int, _ *Config, env *Env) {
			env.Checkpoints, env.FS, env.AtStart, env.Local = c.open(t), c.fs, true, "/scratch"
			if rank == 0 {
				env.Deadline = deadline
			}
		})
		list, err := c.open(t).List(t.Context())
		if err != nil || len(list) == 0 || list[0].Step != 0 {
			t.Fatalf("%d checkpoints, error %v, want that of the start first", len(list), err)
		}
		if info := list[0]; (info.Bytes > info.RawBytes) != quick {
			t.Errorf("quick %v: %d bytes of %d", quick, info.Bytes, info.RawBytes)
		}
	}
}

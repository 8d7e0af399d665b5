package supervise

import (
	"context"
	"io/fs"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/mpi/store"
)

// The early verdict, which agent 0 writes when workers are stopped, says how long they have had since their warning. Slurm may kill agent 0
// before the workers have ended.
func TestEarlyVerdictSaysHowLongWorkersHad(t *testing.T) {
	c := one(newRunDir(t))
	synctest.Test(t, func(t *testing.T) {
		s := &Supervisor{cfg: c, round: &round{agent: &Agent{}}, warnedAt: time.Now()}
		time.Sleep(90 * time.Second)
		v := c.Verdict(causeCancelled, exitSignal+int(syscall.SIGTERM), "told")
		v.Signal = int(syscall.SIGTERM)
		s.receiveOutcome(v)
		s.writes.Wait()
	})
	if v, err := c.RunDir.Verdict(1); err != nil || v.WarnedS != 90 {
		t.Errorf("the early verdict is %+v, %v; want 90 s", v, err)
	}
}

// A signal from the batch script is passed on before its file is removed, and a file system that hangs does not keep the round from ending.
func TestSignalIsHandedOnBeforeItsFileIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, hung := time.Now(), make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a := &Agent{signals: make(chan warning, 1)}
		err := a.handSignalOn(ctx, func() error { <-hung; return nil })
		if took := time.Since(begin); err != nil || took != time.Second || len(a.signals) != 1 {
			t.Errorf("after %v: %v, %d signals", took, err, len(a.signals))
		}
		close(hung)
		synctest.Wait()
		for fault, fails := range map[error]bool{nil: false, fs.ErrNotExist: false, fs.ErrPermission: true} {
			if err := a.handSignalOn(t.Context(), func() error { return fault }); (err != nil) != fails {
				t.Errorf("%v: %v", fault, err)
			}
		}
	})
}

// A signal that comes after an early one counts, too. Here, the time limit was put off between the two. If several agents get the same
// signal, it counts once.
func TestSignalAfterAnEarlyOneCounts(t *testing.T) {
	const early, putOff, again = 23 * time.Second, 40 * time.Second, 30 * time.Minute
	for _, byScript := range []bool{false, true} {
		dir := newRunDir(t)
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			var asked atomic.Int32
			m := &met{store: store.NewMemory()}
			c := one(dir)
			c.Policy, c.Deadline = recovery.Policy{Lead: 10 * time.Second}, begin.Add(time.Minute)
			c.FindDeadline = func(context.Context) (time.Time, error) {
				if asked.Add(1); time.Since(begin) < putOff {
					return begin.Add(time.Minute), nil
				}
				return begin.Add(2 * time.Hour), nil
			}
			a := agentOf(t, c, m)
			var signals []func()
			if byScript {
				r, task := &round{agent: a, cfg: c}, make(chan struct{})
				go func() { r.awaitStopFile(a.ctx); close(task) }()
				defer func() { a.cancel(); <-task }()
				signals = append(signals, func() { must(t, touch(dir.SignalPath(1))) })
			} else {
				for index := range 3 {
					warn := make(chan struct{}, 1)
					other := one(nil)
					other.Index, other.Warn = 1+index, warn
					o := agentOf(t, other, m)
					o.tasks.Go(o.passSignalOn)
					defer func() { o.cancel(); o.Wait() }()
					signals = append(signals, func() { warn <- struct{}{} })
				}
			}
			a.listenForWarnings()
			signal := func() {
				for _, send := range signals {
					send()
					time.Sleep(100 * time.Millisecond)
				}
			}
			time.Sleep(early)
			signal()
			time.Sleep(putOff - time.Since(begin))
			if asked.Load() != 1 || a.IsWarned() {
				t.Errorf("by the script %t: after an early signal Slurm was asked %d times; warned %t", byScript,
					asked.Load(), a.IsWarned())
			}
			time.Sleep(again - time.Since(begin))
			if a.IsWarned() {
				t.Errorf("by the script %t: warned before the second signal", byScript)
			}
			signal()
			time.Sleep(2 * stopPoll)
			if !a.IsWarned() {
				t.Errorf("by the script %t: the second signal is not heard", byScript)
			}
			a.cancel()
			a.Wait()
		})
	}
}

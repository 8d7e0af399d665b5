package supervise

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Slurm may kill agent 0 before the workers have ended: what it writes down when they are told to end says how long they had by then.
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

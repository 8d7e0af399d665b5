package launch

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
)

// away starts one agent of w in a process of its own.
func (w *world) away(index int) *exec.Cmd {
	w.t.Helper()
	c := w.agents[index]
	text, err := json.Marshal(remoteAgent{
		Index: c.Index, Count: c.Count, Nproc: c.Nproc, Attempt: c.Attempt, Host: c.Host, Hosts: c.Hosts,
		Ports: c.Ports, Secret: c.Secret.Hex(), RunID: c.RunID, Version: c.Version,
		Command: c.Command, Env: c.Env, RunDir: w.dir.Path(), MinCount: c.MinCount, LastCall: c.LastCall,
		MaxRestarts: c.Policy.MaxRestarts, Sweep: c.Sweep,
	})
	must(w.t, err)
	exe, err := os.Executable()
	must(w.t, err)
	cmd := exec.Command(exe, "agent", string(text))
	cmd.Env = append(c.Env, "GOMAXPROCS=2")
	cmd.Stderr = os.Stderr
	must(w.t, cmd.Start())
	w.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// If an agent is killed, its workers die with it, and the other agents stop at once.
func TestLostAgentStopsTheOthers(t *testing.T) {
	w := newWorld(t, []int{1, 2}, "wait", "0")
	agent := w.away(1)
	ended := make(chan result)
	go func() {
		v, err := Run(t.Context(), w.agents[0])
		ended <- result{v, err, 0}
	}()
	w.awaitMarks("0", "1", "2")
	must(t, agent.Process.Kill())
	v := w.agree([]result{<-ended})
	if v.Cause != "node" || v.Exit != 1 || v.Host != "n2" || v.Message != "agent 1 on n2 was lost: "+connectionEnded { // not silence
		t.Errorf("verdict is %+v", v)
	}
	w.noSurvivors()
}

// When an agent is killed, its workers' children end too, and so do those that have left the workers' process groups.
func TestKilledAgentLeavesNothing(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "child", "0", "setsid", "stays")
	w.agents[1].Sweep = true
	w.agents[0].Command = append(w.agents[0].Command[:1:1], "wait", "0")
	agent := w.away(1)
	first := w.begin(t.Context(), 0)
	w.awaitMarks("0", "orphan")
	must(t, agent.Process.Kill())
	w.agree([]result{<-first})
	w.noSurvivors()
}

func TestLostAgent0EndsTheRun(t *testing.T) {
	w := newWorld(t, []int{1, 2}, "wait", "0")
	w.agents[1].Hosts = []string{"n1", "n2"}
	agent := w.away(0)
	ended := make(chan result)
	go func() {
		v, err := Run(t.Context(), w.agents[1])
		ended <- result{v, err, 0}
	}()
	w.awaitMarks("0", "1", "2")
	must(t, agent.Process.Kill())
	v := w.agree([]result{<-ended}) // the survivor writes the verdict
	if v.Cause != "node" || v.Exit != 1 || v.Host != "n1" || v.Message != "agent 0 on n1 was lost: its connection ended" {
		t.Errorf("verdict is %+v", v)
	}
	w.noSurvivors()
}

// If agent 0 dies after it has written the verdict to disk, that verdict holds.
func TestVerdictOutlivesAgent0(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "wait", "0")
	agent := w.away(0)
	ended := make(chan result)
	go func() {
		v, err := Run(t.Context(), w.agents[1])
		ended <- result{v, err, 0}
	}()
	w.awaitMarks("0", "1")
	must(t, w.dir.WriteVerdict(rundir.Verdict{Attempt: 1, JobID: "77", Cause: "crash", FirstRank: -1, Exit: 9, Message: "agent 0's own",
		Time: time.Now().Round(0)}))
	must(t, agent.Process.Kill())
	if v := w.agree([]result{<-ended}); v.Message != "agent 0's own" {
		t.Errorf("verdict is %+v", v)
	}
}

func TestAgentLostBeforeAllMetIsNamed(t *testing.T) {
	w := newWorld(t, []int{1, 1, 1}, "say", "x")
	w.agents[0].Hosts = []string{"n1", "n2", "n3"}
	agent := w.away(1) // agent 2 never comes
	ended := make(chan result)
	go func() {
		v, err := Run(t.Context(), w.agents[0])
		ended <- result{v, err, 0}
	}()
	testkit.Eventually(t, "agent 1 to come", func() bool { return strings.Contains(w.log.String(), "an agent came") })
	must(t, agent.Process.Kill())
	r := <-ended
	if r.err == nil || r.Cause != "node" || r.Exit != 1 || !strings.Contains(r.Message, "agent 1 on n2 was lost") {
		t.Errorf("ended with %+v", r)
	}
	if v, err := w.dir.Verdict(1); err != nil || v.Cause != "node" {
		t.Errorf("on disk is %+v, %v", v, err)
	}
}

// An agent that gets a signal may leave a moment before agent 0 gets the same signal. It does not count as lost.
func TestSignalledAgentBeforeAllMetIsNotALoss(t *testing.T) {
	w := newWorld(t, []int{1, 1, 1}, "say", "x") // agent 2 never comes
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	c := &w.agents[0]
	// Agent 0 gets its signal after agent 1 has left, and before agent 0 acts on that.
	c.Log = slog.New(&onFirst{c.Log.Handler(), "store: client left", func() { cancel(SignalError{Sig: syscall.SIGTERM}) }})
	ended := w.begin(ctx, 0)
	theirs, cancelTheirs := context.WithCancelCause(t.Context())
	defer cancelTheirs(nil)
	go func() {
		testkit.Eventually(t, "agent 1 to come", func() bool { return strings.Contains(w.log.String(), "an agent came") })
		cancelTheirs(SignalError{Sig: syscall.SIGTERM})
	}()
	if v, err := Run(theirs, w.agents[1]); err == nil || v.Cause != "cancelled" {
		t.Errorf("agent 1 ended with %+v, %v", v, err)
	}
	if r := <-ended; r.err == nil || r.Cause != "cancelled" || r.Exit != 143 {
		t.Errorf("agent 0 ended with %+v", r)
	}
}

// Agent 0 writes its verdict before the workers' grace is over, because Slurm may kill it earlier.
func TestVerdictIsWrittenBeforeTheWorkersEnd(t *testing.T) {
	w := newWorld(t, []int{1}, "orphan") // ignores TERM
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended := make(chan result, 1)
	go func() {
		v, err := Run(ctx, w.agents[0])
		ended <- result{v, err, 0}
	}()
	w.awaitMarks("orphan")
	cancel(SignalError{Sig: syscall.SIGTERM})
	testkit.Eventually(t, "the verdict", func() bool {
		v, err := w.dir.Verdict(1)
		return err == nil && v.Cause == "cancelled" && v.Exit == 143
	})
	select {
	case r := <-ended:
		t.Errorf("the run is over: %+v", r)
	default:
	}
	for _, pid := range w.processes() {
		must(t, exec.Command("kill", "-9", pid).Run())
	}
	w.agree([]result{<-ended})
}

// Workers' children end with them. A child that leaves the group and keeps the output open
// does not hold up the run.
func TestChildrenEndWithTheirWorkers(t *testing.T) {
	t.Run("of a worker that is done", func(t *testing.T) {
		w := newWorld(t, []int{1}, "child", "0")
		if v := w.agree(w.run()); v.Cause != "done" {
			t.Errorf("verdict is %+v", v)
		}
		if got := w.logOf("n1", 0, "out"); got != "parent's last word\n" {
			t.Errorf("log is %q", got)
		}
	})
	t.Run("of a worker that fails", func(t *testing.T) {
		w := newWorld(t, []int{1}, "child", "4")
		if v := w.agree(w.run()); v.Exit != 4 {
			t.Errorf("verdict is %+v", v)
		}
	})
	t.Run("that left the group", func(t *testing.T) {
		w := newWorld(t, []int{1}, "child", "0", "setsid")
		if v := w.agree(w.run()); v.Cause != "done" || strings.Contains(w.log.String(), "output still waits") {
			t.Errorf("verdict is %+v, and agent 0 logged %s", v, w.log.String())
		}
		if got := w.logOf("n1", 0, "out"); got != "parent's last word\n" {
			t.Errorf("log is %q", got)
		}
		for _, pid := range w.processes() { // without Sweep, the agent does not look for them
			must(t, exec.Command("kill", "-9", pid).Run())
		}
	})
	t.Run("that left the group, and are swept", func(t *testing.T) {
		w := newWorld(t, []int{1}, "child", "0", "setsid")
		w.agents[0].Sweep = true
		if v := w.agree(w.run()); v.Cause != "done" {
			t.Errorf("verdict is %+v", v)
		}
		if left := w.processes(); len(left) != 0 {
			t.Errorf("processes are left: %v", left)
		}
		if log := w.log.String(); !strings.Contains(log, `level=WARN msg="processes that the workers had left behind were killed"`) {
			t.Errorf("the log does not report the processes that were killed: %s", log)
		}
	})
}

// If an agent is lost while its worker still runs, the run has failed, even if the workers of all other agents are done.
func TestLostAfterTheOthersAreDone(t *testing.T) {
	for range 3 { // agent 0 may be in different states by then
		w := newWorld(t, []int{1, 1}, "wait", "0")
		w.agents[0].Command = append(w.agents[0].Command[:1:1], "say", "x")
		agent := w.away(1)
		first := w.begin(t.Context(), 0)
		w.awaitMarks("1")
		testkit.Eventually(t, "the end of agent 0's worker", func() bool { return strings.Contains(w.log.String(), "worker ended") })
		must(t, agent.Process.Kill())
		if r := <-first; r.Cause != "node" || r.Exit == 0 || len(r.Nodes) != 1 || r.Nodes[0] != "n2" {
			t.Errorf("verdict is %+v", r.Verdict)
		}
	}
}

// If an agent is lost while a signal stops the run, the run is neither done nor saved, even if all other workers have ended with 0.
func TestAgentLostWhileStoppingHasNotSaved(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "wait", "0")
	w.agents[1].Command = []string{"/bin/sh", "-c", "trap '' TERM; : > $LAUNCH_TEST_FOLDER/1; while :; do sleep 0.05; done"}
	agent := w.away(1)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	first := w.begin(ctx, 0)
	w.awaitMarks("0", "1")
	cancel(SignalError{Sig: syscall.SIGTERM})
	testkit.Eventually(t, "the end of agent 0's worker", func() bool { return strings.Contains(w.log.String(), "worker ended") })
	must(t, agent.Process.Kill())
	if r := <-first; r.Cause == "done" || r.Exit == 0 || r.Saved {
		t.Errorf("verdict is %+v", r.Verdict)
	}
}

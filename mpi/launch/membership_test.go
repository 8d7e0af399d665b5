package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/rendezvous"
)

// mark writes the mark that a worker waits for.
func (w *world) mark(name string) {
	w.t.Helper()
	must(w.t, os.WriteFile(filepath.Join(w.folder, name), nil, 0o600))
}

func (w *world) awaitLog(what string) {
	w.t.Helper()
	testkit.Eventually(w.t, "log of "+what, func() bool { return strings.Contains(w.log.String(), what) })
}

// If the second of three agents is killed, the other two go on, with contiguous rank and node numbers.
func TestRunGoesOnWithoutALostAgent(t *testing.T) {
	w := newWorld(t, []int{1, 2, 3}, "flaky", "1", "-1", "0")
	w.elastic(2, 1)
	agent := w.away(1)
	first, third := w.begin(t.Context(), 0), w.begin(t.Context(), 2)
	w.awaitMarks("0.0", "0.1", "0.2", "0.3", "0.4", "0.5")
	must(t, agent.Process.Kill())
	v := w.agree([]result{<-first, <-third})
	if v.Cause != "done" || v.Round != 1 || v.Attempt != 2 || v.Message != "all 4 ranks are done" {
		t.Errorf("verdict is %+v", v)
	}
	before, err := w.dir.Verdict(1)
	if err != nil || before.Cause != "node" || !strings.Contains(before.Message, connectionEnded) || !before.Restart ||
		!slices.Equal(before.Nodes, []string{"n2"}) {
		t.Errorf("the first round's verdict is %+v, %v", before, err)
	}
	for rank, host := range []string{"n1", "n3", "n3", "n3"} {
		got := w.flakyWordsOf(2, host, rank)
		if got.rank != rank || got.world != 4 || got.node != min(rank, 1) || got.nodes != 2 {
			t.Errorf("rank %d on %s was told %+v", rank, host, got)
		}
	}
}

func TestTooFewAgentsAreLeft(t *testing.T) {
	w := newWorld(t, []int{1, 1, 1}, "flaky", "1", "-1", "0")
	w.elastic(3, 5)
	agent := w.away(1)
	first, third := w.begin(t.Context(), 0), w.begin(t.Context(), 2)
	w.awaitMarks("0.0", "0.1", "0.2")
	must(t, agent.Process.Kill())
	v := w.agree([]result{<-first, <-third})
	if v.Cause != "node" || v.Exit != 1 || v.Round != 0 || v.Restart || !slices.Equal(v.Nodes, []string{"n2"}) {
		t.Errorf("verdict is %+v", v)
	}
}

// Without agent 0, the run cannot go on.
func TestNoRestartWithoutAgent0(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "flaky", "1", "-1", "0")
	w.elastic(1, 5)
	agent := w.away(0)
	w.awaitRendezvous(0)
	ended := w.begin(t.Context(), 1)
	w.awaitMarks("0.0", "0.1")
	must(t, agent.Process.Kill())
	v := w.agree([]result{<-ended})
	if v.Cause != "node" || v.Host != "n1" || v.Exit != 1 || v.Restart {
		t.Errorf("verdict is %+v", v)
	}
}

// awaitRendezvous waits until a process listens at the first port of an agent.
func (w *world) awaitRendezvous(index int) {
	w.t.Helper()
	testkit.Eventually(w.t, "agent 0 to listen", func() bool {
		conn, err := net.Dial("tcp", joinPort(rendezvous.Loopback, w.agents[index].Ports[0]))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// An agent that comes late takes part in the next round, but does not cause one.
func TestLateAgentJoinsTheNextRound(t *testing.T) {
	w := newWorld(t, []int{1, 2}, "flaky", "1", "0", "3", "go")
	w.beginShort(1, 1)
	first := w.begin(t.Context(), 0)
	w.awaitMarks("0.0")
	second := w.begin(t.Context(), 1)
	w.awaitLog("an agent came")
	w.mark("0.go")
	v := w.agree([]result{<-first, <-second})
	if v.Cause != "done" || v.Round != 1 || v.Message != "all 3 ranks are done" {
		t.Errorf("verdict is %+v", v)
	}
	if before := w.flakyWordsOf(1, "n1", 0); before.world != 1 || before.nodes != 1 {
		t.Errorf("in the first round rank 0 was told %+v", before)
	}
	if got := w.flakyWordsOf(2, "n2", 2); got.world != 3 || got.node != 1 || got.nodes != 2 || got.restarts != 1 {
		t.Errorf("in the second round rank 2 was told %+v", got)
	}
}

// If the run ends before another round begins, an agent that came late ends as the run does.
func TestLateAgentEndsWithTheRun(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "flaky", "1", "0", "3", "go")
	w.beginShort(1, 0)
	var said safeBuffer
	w.agents[1].Log = slog.New(slog.NewTextHandler(&said, nil))
	first := w.begin(t.Context(), 0)
	w.awaitMarks("0.0")
	second := w.begin(t.Context(), 1)
	w.awaitLog("an agent came")
	w.mark("0.go")
	if v := w.agree([]result{<-first, <-second}); v.Cause != "crash" || v.Exit != 3 || v.FirstRank != 0 {
		t.Errorf("verdict is %+v", v)
	}
	if !strings.Contains(said.String(), "the run is over, and this agent had no part in it") {
		t.Errorf("the late one said %q", said.String())
	}
}

// If an agent joins for the second round and is lost in it, the third round runs without it.
func TestLateAgentIsLost(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "flaky", "2", "0", "3", "go")
	w.beginShort(1, 2)
	first := w.begin(t.Context(), 0)
	w.awaitMarks("0.0")
	agent := w.away(1)
	w.awaitLog("an agent came")
	w.mark("0.go")
	w.awaitMarks("1.0", "1.1")
	must(t, agent.Process.Kill())
	if v := w.agree([]result{<-first}); v.Cause != "done" || v.Round != 2 || v.Message != "the only rank is done" {
		t.Errorf("verdict is %+v", v)
	}
	if v, err := w.dir.Verdict(2); err != nil || v.Cause != "node" || !slices.Equal(v.Nodes, []string{"n2"}) {
		t.Errorf("the second round's verdict is %+v, %v", v, err)
	}
}

func TestAgentsWithoutNumbersMeet(t *testing.T) {
	w := newWorld(t, []int{1, 1, 1}, "flaky", "1", "2", "3")
	w.elastic(0, 1)
	for i := range w.agents {
		c := &w.agents[i]
		c.Index, c.Endpoint = -1, joinPort("localhost", c.Ports[0])
		c.MasterAddr, c.Ports = "", nil
	}
	v := w.agree(w.run())
	if v.Cause != "done" || v.Round != 1 {
		t.Errorf("verdict is %+v", v)
	}
	nodes := map[int]bool{}
	for i := range w.agents {
		for rank := range 3 {
			if _, err := os.Stat(w.dir.LogPath(2, fmt.Sprintf("n%d", i+1), rank, "out")); err == nil {
				got := w.flakyWordsOf(2, fmt.Sprintf("n%d", i+1), rank)
				nodes[got.node] = got.node == rank
			}
		}
	}
	if len(nodes) != 3 || !nodes[0] || !nodes[1] || !nodes[2] {
		t.Errorf("node ranks are %v", nodes)
	}
}

// If agents without numbers do not meet, the run directory says why. The agent that holds the endpoint writes that, or one that has not
// found it.
func TestUnmetAgentsWithoutNumbersSayWhy(t *testing.T) {
	for name, host := range map[string]string{"here": "localhost", "elsewhere": "192.0.2.1"} { // reserved by RFC 5737: no host has it
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []int{1, 1}, "say", "x")
			c := w.agents[0]
			c.Index, c.Endpoint, c.JoinTimeout = -1, joinPort(host, c.Ports[0]), 100*time.Millisecond
			v, err := Run(t.Context(), c)
			if err == nil || v.Cause != "timeout" || v.Exit != 124 {
				t.Errorf("ended with %+v, %v", v, err)
			}
			if disk, err := w.dir.Verdict(c.Attempt); err != nil || !sameVerdict(disk, v) {
				t.Errorf("on disk is %+v, %v; returned was %+v", disk, err, v)
			}
		})
	}
}

// An agent without a number that holds the endpoint is agent 0. If the run does not begin, agent 0's verdict is on disk.
func TestAgent0WithoutANumberWritesTheVerdict(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	for i := range w.agents {
		w.agents[i].Index, w.agents[i].Endpoint = -1, joinPort(rendezvous.Loopback, w.agents[i].Ports[0])
	}
	first := w.begin(t.Context(), 0)
	w.awaitRendezvous(0)
	w.agents[1].RunDir, w.agents[1].Reject = nil, errors.New("the disk is full")
	second, r := <-w.begin(t.Context(), 1), <-first
	if second.err == nil || r.err == nil || r.Message != "the agent on n2 cannot take part: the disk is full" {
		t.Errorf("ended with %+v and %+v", r, second)
	}
	if disk, err := w.dir.Verdict(1); err != nil || !sameVerdict(disk, r.Verdict) {
		t.Errorf("on disk is %+v, %v; returned was %+v", disk, err, r.Verdict)
	}
}

// Agent 0 warns if the given MASTER_ADDR is not one of its own addresses, because the others look for it there.
func TestMasterAddrOfAnotherMachineIsWarnedOf(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	c := &w.agents[0]
	c.OneMachine, c.MasterGiven, c.MasterAddr = false, true, "192.0.2.1" // reserved by RFC 5737: no host has it
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := w.begin(ctx, 0)
	w.awaitLog("does not seem to be one of its own addresses")
	cancel(context.DeadlineExceeded) // as when the time is over
	if r := <-ended; r.err == nil || r.Cause != "timeout" {
		t.Errorf("ended with %+v", r)
	}
}

// An agent with DialOnly never becomes agent 0, even if the endpoint is a free port of its own machine.
func TestDialOnlyAgentIsNeverAgent0(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	c := w.agents[1]
	c.Index, c.Endpoint, c.DialOnly, c.JoinTimeout = -1, joinPort(rendezvous.Loopback, c.Ports[0]), true, 100*time.Millisecond
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "did not get through to agent 0") {
		t.Errorf("alone it ended with %v", err)
	}
}

// An agent without a number that has reached agent 0 does not write the run's verdict when agent 0 rejects it or is lost.
func TestRefusedAgentWritesNothing(t *testing.T) {
	w := newWorld(t, []int{1}, "say", "x")
	c := w.agents[0]
	c.Index = -1
	if c.recordsFailure(&rendezvous.Rejection{}) || c.recordsFailure(&rendezvous.LostError{}) {
		t.Error("it would write the run's verdict")
	}
}

// An agent that SIGSTOP has stopped is silent, although its connection stays open. The others go on without it. When it runs again, it
// learns that, and its workers end.
func TestSilentAgentIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []int{1, 1}, "flaky", "1", "-1", "0")
	w.elastic(1, 1)
	agent := w.away(1)
	first := w.begin(t.Context(), 0)
	w.awaitMarks("0.0", "0.1")
	begin := time.Now()
	must(t, agent.Process.Signal(syscall.SIGSTOP))
	v := w.agree([]result{<-first})
	if v.Cause != "done" || v.Round != 1 || v.Message != "the only rank is done" {
		t.Errorf("verdict is %+v", v)
	}
	if took := time.Since(begin); took < 8*time.Second {
		t.Errorf("it took %v", took)
	}
	if before, err := w.dir.Verdict(1); err != nil || before.Cause != "node" || !strings.Contains(before.Message, silence) {
		t.Errorf("the first round's verdict is %+v, %v", before, err)
	}
	must(t, agent.Process.Signal(syscall.SIGCONT))
	agent.Wait()
	if code := agent.ProcessState.ExitCode(); code != 1 {
		t.Errorf("the agent that was stopped exited with %d", code)
	}
	w.noSurvivors()
}

func TestSilentAgent0IsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []int{1, 1}, "flaky", "1", "-1", "0")
	w.agents[1].Hosts = []string{"n1", "n2"}
	agent := w.away(0)
	second := w.begin(t.Context(), 1)
	w.awaitMarks("0.0", "0.1")
	must(t, agent.Process.Signal(syscall.SIGSTOP))
	r := <-second
	if r.err != nil || r.Cause != "node" || r.Host != "n1" || r.Message != "agent 0 on n1 was lost: "+silence {
		t.Errorf("ended with %+v", r)
	}
}

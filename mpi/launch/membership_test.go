package launch

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// What a lost participant says counts no more, and changes nothing. One that comes when there is no other round is told so.
func TestJoinTooLate(t *testing.T) {
	r := newMembership(joinRequest{Count: 2})
	lost := newParticipant("1", "")
	r.drop(lost, silence)
	if told := r.join(lost, joinRequest{Index: 1, Host: "n2", Count: 2}); told != nil || lost.join.Host != "" || r.numbered[1] != nil {
		t.Errorf("a lost guest is told %+v, and is %+v", told, lost.join)
	}
	late, over := newParticipant("2", ""), assignment{Over: &lastWord{}}
	r.close(over)
	if told := r.join(late, joinRequest{Index: 1, Host: "n2", Count: 2}); told == nil || told.Over != over.Over {
		t.Errorf("one that comes too late is told %+v", told)
	}
	if told := r.join(lost, joinRequest{Index: 1, Host: "n2", Count: 2}); told != nil {
		t.Errorf("a lost guest is told %+v", told)
	}
}

// In task mode numbers say nothing of nodes, but how many tasks each node has does.
func TestMissingTasksHaveNodes(t *testing.T) {
	layout := map[string]int{"n1": 2, "n2": 2, "n3": 1}
	for _, tc := range []struct {
		came []string // nodes of agents 1 and on; "": it did not come
		want string
	}{
		{[]string{"n1", "n2", "n2", ""}, "agent 4 (n3)"},
		{[]string{"n2", "n3", "n1", ""}, "agent 4 (n2)"}, // -m cyclic
		{[]string{"n1", "", "", "n3"}, "agent 2 (n2), agent 3 (n2)"},
		{[]string{"n1", "n2", "", ""}, "agent 3 (n2 or n3), agent 4 (n2 or n3)"},
		{[]string{"n1", "n2", "n2", "n9"}, ""},
	} {
		c := AgentConfig{World: World{Count: 5, Host: "n1", Layout: layout}}
		r := newMembership(joinRequest{Count: 5, Host: "n1"})
		for i, host := range tc.came {
			if host != "" {
				if told := r.join(newParticipant(host, ""), joinRequest{Index: i + 1, Host: host, Count: 5}); told != nil {
					t.Fatalf("%v: told %+v", tc.came, told)
				}
			}
		}
		m := &rendezvous{cfg: c, membership: r}
		if got := m.missing(); got != tc.want {
			t.Errorf("%v: missing is %q, want %q", tc.came, got, tc.want)
		}
	}
	many := map[string]int{}
	for _, host := range strings.Split("a b c d e f g h i j", " ") {
		many[host] = 2
	}
	m := &rendezvous{cfg: AgentConfig{World: World{Count: 20, Host: "a", Layout: many}}, membership: newMembership(joinRequest{Count: 20, Host: "a"})}
	if got := m.missing(); !strings.HasPrefix(got, "agent 1 (an unnamed node)") {
		t.Errorf("missing is %q, where it may be any of ten nodes", got)
	}
}

// What an agent waits for depends on whether the run may begin without it.
func TestWhatAnAgentWaitsFor(t *testing.T) {
	fixed := AgentConfig{World: World{Index: 1, Count: 3}, Admission: Admission{MinCount: 3}}
	elastic, unnumbered := fixed, fixed
	elastic.MinCount, unnumbered.Index = 2, -1
	for _, tc := range []struct {
		c     AgentConfig
		again bool
	}{{fixed, false}, {elastic, true}, {unnumbered, true}} {
		if got := tc.c.waitsFor(); strings.Contains(got, "started again") != tc.again {
			t.Errorf("agent %d of %d to %d: %q", tc.c.Index, tc.c.MinCount, tc.c.Count, got)
		}
	}
}

// mark writes the mark that a worker waits for.
func (w *world) mark(name string) {
	w.t.Helper()
	must(w.t, os.WriteFile(filepath.Join(w.folder, name), nil, 0o600))
}

func (w *world) awaitLog(what string) {
	w.t.Helper()
	testkit.Eventually(w.t, "log of "+what, func() bool { return strings.Contains(w.log.String(), what) })
}

// Three agents; the one in the middle is killed. The others go on, with numbers without a hole.
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
	if err != nil || before.Cause != "node" || !strings.Contains(before.Message, connectionEnded) || !before.Restart || !slices.Equal(before.Nodes, []string{"n2"}) {
		t.Errorf("the first round's verdict is %+v, %v", before, err)
	}
	for rank, host := range []string{"n1", "n3", "n3", "n3"} {
		got := w.toldBy(2, host, rank)
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

// Without agent 0 there is nobody to go on with.
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

// awaitRendezvous waits until somebody listens where an agent meets the others.
func (w *world) awaitRendezvous(index int) {
	w.t.Helper()
	testkit.Eventually(w.t, "agent 0 to listen", func() bool {
		conn, err := net.Dial("tcp", joinPort(loopback, w.agents[index].Ports[0]))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// Who comes late has a part in the next round; it does not cause one.
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
	if before := w.toldBy(1, "n1", 0); before.world != 1 || before.nodes != 1 {
		t.Errorf("in the first round rank 0 was told %+v", before)
	}
	if got := w.toldBy(2, "n2", 2); got.world != 3 || got.node != 1 || got.nodes != 2 || got.restarts != 1 {
		t.Errorf("in the second round rank 2 was told %+v", got)
	}
}

// The run ends before there is a round for the one who came late: it ends as the run does.
func TestLateAgentAndNoNextRound(t *testing.T) {
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

// An agent that came for the second round is lost in it: the third one is without it again.
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

func TestLastCall(t *testing.T) {
	w := newWorld(t, []int{1, 1, 1}, "flaky", "0", "0", "0")
	w.beginShort(2, 0)
	first, third := w.begin(t.Context(), 0), w.begin(t.Context(), 2) // agent 1 never comes
	if v := w.agree([]result{<-first, <-third}); v.Cause != "done" || v.Message != "all 2 ranks are done" {
		t.Errorf("verdict is %+v", v)
	}
	if got := w.toldBy(1, "n3", 1); got.node != 1 || got.nodes != 2 {
		t.Errorf("rank 1 on n3 was told %+v", got)
	}
}

func TestAgentsWithoutNumbers(t *testing.T) {
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
				got := w.toldBy(2, fmt.Sprintf("n%d", i+1), rank)
				nodes[got.node] = got.node == rank
			}
		}
	}
	if len(nodes) != 3 || !nodes[0] || !nodes[1] || !nodes[2] {
		t.Errorf("node ranks are %v", nodes)
	}
}

// Where agents without numbers do not meet, the run directory says why: by the one that has the endpoint, or by any that has not found it.
func TestUnmetWithoutNumbers(t *testing.T) {
	for name, host := range map[string]string{"here": "localhost", "elsewhere": "192.0.2.1"} { // RFC 5737: nobody's
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

// Node 0 waits where the others do not look for it.
func TestMasterAddrOfAnotherMachine(t *testing.T) {
	for addr, want := range map[string]bool{"192.0.2.1": true, loopback: false} { // RFC 5737: nobody's
		w := newWorld(t, []int{1, 1}, "say", "x")
		c := &w.agents[0]
		c.OneMachine, c.MasterGiven, c.MasterAddr = false, true, addr
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := w.begin(ctx, 0)
		if want {
			w.awaitLog("is no address of its own")
		} else {
			complete, err := c.withDefaults()
			must(t, err)
			complete.warnOfElsewhere(t.Context())
		}
		cancel(context.DeadlineExceeded) // as when the time is over
		if r := <-ended; r.err == nil || r.Cause != "timeout" {
			t.Errorf("ended with %+v", r)
		}
		if got := strings.Contains(w.log.String(), "is no address of its own"); got != want {
			t.Errorf("at %s it warned: %t, want %t: %s", addr, got, want, w.log.String())
		}
	}
}

// One that is told that another agent is agent 0 waits for that, though the endpoint is on its own machine and free.
func TestDialOnlyAgentIsNeverAgent0(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	c := w.agents[1]
	c.Index, c.Endpoint, c.Guest, c.JoinTimeout = -1, joinPort(loopback, c.Ports[0]), true, 100*time.Millisecond
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "did not get through to agent 0") {
		t.Errorf("alone it ended with %v", err)
	}
}

// One that agent 0 sends away writes nothing: the run goes on.
func TestRefusedWithoutANumber(t *testing.T) {
	w := newWorld(t, []int{1}, "say", "x")
	c := w.agents[0]
	c.Index = -1
	if c.recordsFailure(&rejection{}) || c.recordsFailure(&LostError{}) {
		t.Error("it would write the run's verdict")
	}
}

// An agent that is stopped is silent, and its connection lives. The others go on without it; when it wakes up it learns
// of that, and its workers end.
func TestSilentAgent(t *testing.T) {
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
	if took := time.Since(begin); took < (heartbeatsMissed-2)*heartbeatEvery {
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

func TestSilentAgent0(t *testing.T) {
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

func TestMembershipNumbers(t *testing.T) {
	addr := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7} }
	r := newMembership(joinRequest{Host: "n1", Count: 4})
	for _, name := range []string{"rank 0", "agent/", "agent/1", "agent/zz00000000000000", "agent/00"} { // a worker, or hostile
		if r.connect(name, addr("10.0.0.9")) != nil {
			t.Errorf("%q is taken for an agent", name)
		}
	}
	r.disconnect("agent/0")
	if got := r.address("fallback"); got != "fallback" {
		t.Errorf("address before anybody came is %s", got)
	}
	come := func(ip string, index int, host string) *participant {
		p := r.connect(agentName(newNonce()), addr(ip))
		if told := r.join(p, joinRequest{Index: index, Count: 4, Host: host}); told != nil {
			t.Errorf("agent %d on %s is told %v", index, host, told.Rejected)
		}
		return p
	}
	first := come("127.0.1.1", 1, "n1.cluster") // beside agent 0
	second := come("10.0.0.1", 2, "n3")
	double := r.connect(agentName(newNonce()), addr("10.0.0.2"))
	if r.connect(agentName(double.nonce), addr("10.0.0.2")) != nil {
		t.Error("a nonce is taken twice")
	}
	if told := r.join(double, joinRequest{Index: 2, Count: 4, Host: "n9"}); told == nil || told.Rejected == nil ||
		told.Rejected.Message != "two agents say that they are agent 2: on n3 and on n9; give each a number of its own" {
		t.Errorf("a second agent 2 is told %+v", told)
	}
	if got := r.address(""); got != "10.0.0.1" {
		t.Errorf("address is %s, want the first that is no loopback", got)
	}
	if got := fmt.Sprint(r.missing()); got != "[3]" {
		t.Errorf("missing are %s", got)
	}
	astray := r.connect(agentName(newNonce()), addr("127.0.0.1"))
	if told := r.join(astray, joinRequest{Index: 3, Count: 4, Host: "n7"}); told == nil || told.Rejected == nil ||
		!strings.Contains(told.Rejected.Message, "the agent on n7 reached the one on n1 by 127.0.0.1, where no other node could reach either") {
		t.Errorf("an agent of another node that came by a loopback address is told %+v", told)
	}
	r.disconnect(agentName(double.nonce))
	if second.isGone() {
		t.Error("agent 2 is gone with its double")
	}
	third := come("10.0.0.1", -1, "n4")
	spare := come("10.0.0.1", -1, "n5") // no number is free
	if third.index != 3 || spare.index != 0 || len(r.withNumbers()) != 3 {
		t.Errorf("numbers are %d and %d, and %d have one", third.index, spare.index, len(r.withNumbers()))
	}
	r.disconnect(agentName(second.nonce))
	if !second.isGone() || second.why != connectionEnded || spare.index != 2 || r.firstLost() != second {
		t.Errorf("agent 2 left (%q), and the one who waited has number %d", second.why, spare.index)
	}
	r.begin()
	if !r.drop(first, "silent") || r.drop(first, "again") || first.why != "silent" || len(r.withNumbers()) != 2 {
		t.Errorf("agent 1 was dropped: %q", first.why)
	}
	back := come("10.0.0.1", 1, "n2")
	if back.index != 1 {
		t.Error("who comes back does not get its number")
	}
	r.close(assignment{Index: 77})
	if told := r.join(r.connect(agentName(newNonce()), addr("10.0.0.1")), joinRequest{Index: -1, Count: 4}); told == nil || told.Index != 77 {
		t.Errorf("who comes too late is told %+v", told)
	}
	for nonce := range maps.Clone(r.connected) {
		r.disconnect(agentName(nonce))
	}
	r.waitGone(time.Hour) // all that came have left
}

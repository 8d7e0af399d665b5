package launch

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/launch/supervise"
	"ddpbatch/mpi/store"
)

func TestRunIsDoneWhenAllRanksAre(t *testing.T) {
	w := newWorld(t, []int{2, 1, 3}, "say", "hello\n")
	v := w.agree(w.run())
	if v.Cause != "done" || v.Exit != 0 || v.FirstRank != -1 || v.Requeue || v.Message != "all 6 ranks are done" ||
		v.JobID != "77" || v.Attempt != 1 {
		t.Errorf("verdict is %+v", v)
	}
	events, err := w.dir.Ledger()
	must(t, err)
	if len(events) != 1 || events[0].Event != "end" || events[0].Cause != "done" || events[0].Attempt != 1 ||
		events[0].Detail != v.Message {
		t.Errorf("ledger is %+v", events)
	}
}

func TestOneAgentNeedsNoNetworkOrRunDirectory(t *testing.T) {
	w := newWorld(t, []int{1}, "say", "hello")
	c := w.agents[0]
	c.MasterAddr, c.Ports, c.RunDir, c.Attempt, c.Log = "", nil, nil, 0, nil
	w.agents[0] = c
	r := w.run()[0]
	if r.err != nil || r.Cause != "done" || r.Exit != 0 {
		t.Errorf("ended with %+v", r)
	}
	if got := w.out.String(); got != "hello\n" {
		t.Errorf("console has %q", got)
	}
}

// Ranks are contiguous by agent, in the agents' order, however many workers each agent runs.
func TestRanksAreContiguousByAgent(t *testing.T) {
	w := newWorld(t, []int{2, 1, 3}, "environ")
	w.agree(w.run())
	for _, want := range []struct {
		host                           string
		rank, local, localWorld, group int
	}{
		{"n1", 0, 0, 2, 0}, {"n1", 1, 1, 2, 0}, {"n2", 2, 0, 1, 1}, {"n3", 3, 0, 3, 2}, {"n3", 4, 1, 3, 2}, {"n3", 5, 2, 3, 2},
	} {
		env := w.environOf(want.host, want.rank)
		for name, value := range map[string]int{
			"RANK": want.rank, "LOCAL_RANK": want.local, "WORLD_SIZE": 6, "LOCAL_WORLD_SIZE": want.localWorld,
			"GROUP_RANK": want.group, "NODE_RANK": want.group, "GROUP_WORLD_SIZE": 3, "ROLE_RANK": want.rank, "ROLE_WORLD_SIZE": 6,
		} {
			if env[name] != fmt.Sprint(value) {
				t.Errorf("rank %d on %s has %s=%s, want %d", want.rank, want.host, name, env[name], value)
			}
		}
		if env["MASTER_PORT"] != w.environOf("n1", 0)["MASTER_PORT"] {
			t.Errorf("rank %d has another MASTER_PORT than rank 0", want.rank)
		}
	}
}

// srun -m cyclic puts ranks 0, 2 on the first node and 1 on the second
// (reference: Slurm's corpus).
func TestTaskModeKeepsSlurmsRanks(t *testing.T) {
	w := newWorld(t, []int{0, 0, 0}, "environ")
	for i, p := range []RankNumbers{
		{Rank: 0, LocalRank: 0, LocalWorldSize: 2, NodeRank: 0},
		{Rank: 1, LocalRank: 0, LocalWorldSize: 1, NodeRank: 1},
		{Rank: 2, LocalRank: 1, LocalWorldSize: 2, NodeRank: 0},
	} {
		p.WorldSize, p.Nodes = 3, 2
		w.agents[i].Local, w.agents[i].Host = []RankNumbers{p}, fmt.Sprintf("n%d", p.NodeRank+1)
	}
	w.agree(w.run())
	env := w.environOf("n1", 2)
	for name, want := range map[string]string{
		"RANK": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "3", "NODE_RANK": "0", "GROUP_WORLD_SIZE": "2",
	} {
		if env[name] != want {
			t.Errorf("%s is %s, want %s", name, env[name], want)
		}
	}
}

func TestFirstFailureStopsAll(t *testing.T) {
	for name, tc := range map[string]struct {
		command      []string
		cause        string
		exit, signal int
		message      string
	}{
		"exit code":        {[]string{"fail", "2", "3"}, "crash", 3, 0, "rank 2 on n2 exited with code 3"},
		"exit code 93":     {[]string{"fail", "2", "93"}, "crash", 93, 0, "rank 2 on n2 exited with code 93"},
		"killed":           {[]string{"kill", "2", "9"}, "crash", 137, 9, "rank 2 on n2 was killed by SIGKILL"},
		"terminated alone": {[]string{"kill", "2", "15"}, "crash", 143, 15, "rank 2 on n2 was killed by SIGTERM"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []int{2, 2}, tc.command...)
			v := w.agree(w.run())
			if v.Cause != tc.cause || v.Exit != tc.exit || v.Signal != tc.signal || v.FirstRank != 2 || v.Host != "n2" ||
				v.Requeue || !strings.HasPrefix(v.Message, tc.message) {
				t.Errorf("verdict is %+v", v)
			}
			w.noneWasKilled(v)
		})
	}
}

// The failure of one rank ends all ranks on four nodes of four workers.
func TestFirstFailureStopsFourNodes(t *testing.T) {
	w := newWorld(t, []int{4, 4, 4, 4}, "flaky", "1", "9", "3", "go")
	for i := range w.agents {
		w.agents[i].Policy.MaxRestarts = 0
	}
	ended := make(chan []result)
	go func() { ended <- w.run() }()
	for rank := range 16 {
		w.awaitMarks(fmt.Sprintf("0.%d", rank))
	}
	w.mark("0.go")
	v := w.agree(<-ended)
	w.noneWasKilled(v)
	if v.FirstRank != 9 || v.Host != "n3" || v.Exit != 3 || len(v.Ranks) != 16 || v.Ranks[0].Rank != 9 || v.Ranks[0].Followed {
		t.Errorf("verdict is %+v", v)
	}
	if left := w.processes(); len(left) != 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// noneWasKilled checks that all ranks that followed the first failure ended by TERM, which they do not ignore, and not by a time-out.
func (w *world) noneWasKilled(v rundir.Verdict) {
	w.t.Helper()
	for _, r := range v.Ranks {
		if r.Followed && r.Signal != int(syscall.SIGTERM) {
			w.t.Errorf("rank %d ended as %+v", r.Rank, r)
		}
	}
	if log := w.log.String(); strings.Contains(log, "not report in time") || strings.Contains(log, "output still waits") {
		w.t.Errorf("agent 0 logged %s", log)
	}
}

func TestTermIgnoredMeansKill(t *testing.T) {
	w := newWorld(t, []int{2, 1}, "stubborn")
	for i := range w.agents {
		w.agents[i].Grace = 300 * time.Millisecond
	}
	results := w.run()
	v := w.agree(results)
	if v.Cause != "crash" || v.Exit != 1 || v.FirstRank != 0 || len(v.Ranks) != 3 {
		t.Errorf("verdict is %+v", v)
	}
	for _, r := range v.Ranks {
		if r.Followed && r.Signal != int(syscall.SIGKILL) {
			t.Errorf("rank %d ended as %+v", r.Rank, r)
		}
	}
	for i, r := range results {
		if r.took < 300*time.Millisecond {
			t.Errorf("agent %d took %v", i, r.took)
		}
	}
}

// Exit code 75 is an agreed stop: the agents leave the other ranks alone while these save.
func TestAgreedStopDisturbsNoRank(t *testing.T) {
	w := newWorld(t, []int{1, 2}, "stop")
	go func() { // the others end when rank 0's agent has reported its end
		testkit.Eventually(t, "rank 0's end", func() bool { return strings.Contains(w.log.String(), "asks to be started again") })
		os.WriteFile(w.folder+"/go", nil, 0o600)
	}()
	v := w.agree(w.run())
	if v.Cause != "stopped" || v.Exit != 75 || !v.Requeue || v.FirstRank != 0 {
		t.Errorf("verdict is %+v", v)
	}
}

func TestVerdictHasTheStepOfTheMetrics(t *testing.T) {
	for attempt, want := range map[int]int64{1: 40, 7: 0} { // a step of another attempt does not count
		w := newWorld(t, []int{1}, "fail", "0", "4")
		must(t, os.WriteFile(w.dir.MetricsPath(), fmt.Appendf(nil, `{"attempt":%d,"step":40}`+"\n", attempt), 0o600))
		if v := w.agree(w.run()); v.Step != want {
			t.Errorf("step is %d, want %d", v.Step, want)
		}
	}
}

func TestSupersededAttemptWritesNoVerdict(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	_, err := w.dir.ClaimAttempt()
	must(t, err)
	for i, r := range w.run() {
		if r.err == nil || r.Exit != 93 || r.Requeue || !strings.Contains(r.Message, "superseded") {
			t.Errorf("agent %d ended with %+v", i, r)
		}
	}
	if _, err := w.dir.Verdict(1); err == nil {
		t.Error("a superseded attempt wrote a verdict")
	}
}

func TestFaultyConfigIsRefused(t *testing.T) {
	good := newWorld(t, []int{1}, "say", "x").agents[0]
	for name, spoil := range map[string]func(c *AgentConfig){
		"no such agent":    func(c *AgentConfig) { c.Index = 1 },
		"no host":          func(c *AgentConfig) { c.Host = "" },
		"no command":       func(c *AgentConfig) { c.Command = nil },
		"no workers":       func(c *AgentConfig) { c.Nproc = 0 },
		"too many workers": func(c *AgentConfig) { c.Nproc = rendezvous.MaxWorld + 1 },
		"workers twice":    func(c *AgentConfig) { c.Local = []RankNumbers{{WorldSize: 1, LocalWorldSize: 1, Nodes: 1}} },
		"no such place": func(c *AgentConfig) {
			c.Nproc, c.Local = 0, []RankNumbers{{Rank: 1, WorldSize: 1, LocalWorldSize: 1, Nodes: 1}}
		},
		"no master":         func(c *AgentConfig) { c.Count, c.MasterAddr = 2, "" },
		"no ports":          func(c *AgentConfig) { c.Count, c.Ports = 2, nil },
		"bad master port":   func(c *AgentConfig) { c.MasterPort = 70000 },
		"hosts do not fit":  func(c *AgentConfig) { c.Hosts = []string{"a", "b"} },
		"attempt unclaimed": func(c *AgentConfig) { c.Attempt = 0 },
		"negative grace":    func(c *AgentConfig) { c.Grace = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			spoil(&c)
			if v, err := Run(context.Background(), c); err == nil || v.Exit != 1 || v.Cause != "start" {
				t.Errorf("ended with %+v, %v", v, err)
			}
		})
	}
}

// BenchmarkRun measures the time from Run to the end of four workers that do nothing, on one node.
func BenchmarkRun(b *testing.B) {
	w := newWorld(b, []int{4}, "")
	w.agents[0].Command = []string{"true"}
	for b.Loop() {
		if r := w.run()[0]; r.err != nil || r.Exit != 0 {
			b.Fatalf("ended with %+v", r)
		}
	}
}

// spyRendezvous calls onLast when the end of a round is about to be published.
type spyRendezvous struct {
	*rendezvous.Rendezvous
	onLast func()
}

func (r spyRendezvous) RoundStore(round int) store.Store {
	return spyStore{r.Rendezvous.RoundStore(round), r.onLast}
}

type spyStore struct {
	store.Store
	onLast func()
}

func (s spyStore) Set(ctx context.Context, key string, value []byte) error {
	if key == "last" {
		s.onLast()
	}
	return s.Store.Set(ctx, key, value)
}

// The verdict is on disk before agent 0 publishes it, because an agent that has received it may end the job step.
func TestVerdictIsOnDiskWhenItIsPublished(t *testing.T) {
	w := newWorld(t, []int{1}, "say", "x")
	c, err := w.agents[0].withDefaults()
	must(t, err)
	meet, published := c.rendezvousConfig(), 0
	met, err := rendezvous.Join(t.Context(), &meet)
	must(t, err)
	spy := spyRendezvous{met, func() {
		published++
		history, err := w.dir.Ledger()
		must(t, err)
		if v, err := w.dir.Verdict(1); err != nil || v.Cause != "done" || len(history) != 1 || history[0].Event != rundir.EventEnd {
			t.Errorf("on disk are %+v, %v, and %+v", v, err, history)
		}
	}}
	r := &run{c, met, supervise.NewAgent(t.Context(), c.supervisorConfig(), spy, met.First, nil)}
	v, err := r.rounds(t.Context())
	w.agree([]result{{v, err, 0}})
	must(t, r.close())
	if published != 1 {
		t.Errorf("it was published %d times", published)
	}
}

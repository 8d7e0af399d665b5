package launch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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
	if v.Cause != "done" || v.Exit != 0 || v.FirstRank != -1 || v.Requeue || v.Message != "all 6 ranks are done" || v.JobID != "77" || v.Attempt != 1 {
		t.Errorf("verdict is %+v", v)
	}
	events, err := w.dir.Ledger()
	must(t, err)
	if len(events) != 1 || events[0].Event != "end" || events[0].Cause != "done" || events[0].Attempt != 1 || events[0].Detail != v.Message {
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

// Ranks are contiguous by agent, in the agents' order, whatever each runs.
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

// Four nodes of four: from the first worker's end to that of all others.
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

// noneWasKilled checks that the first failure ended all others by TERM, which they do not ignore, and no time-out did.
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

// 75 is an agreed stop: nobody is disturbed while the others save.
func TestAgreedStopDisturbsNobody(t *testing.T) {
	w := newWorld(t, []int{1, 2}, "stop")
	go func() { // the others end when rank 0's agent has told of its end
		testkit.Eventually(t, "rank 0's end", func() bool { return strings.Contains(w.log.String(), "asks to be started again") })
		os.WriteFile(w.folder+"/go", nil, 0o600)
	}()
	v := w.agree(w.run())
	if v.Cause != "stopped" || v.Exit != 75 || !v.Requeue || v.FirstRank != 0 {
		t.Errorf("verdict is %+v", v)
	}
}

func TestVerdictHasTheStepOfTheMetrics(t *testing.T) {
	for attempt, want := range map[int]int64{1: 40, 7: 0} { // another attempt's step is not this one's
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

// From Run to the end of four workers that do nothing, on one node.
func BenchmarkRun(b *testing.B) {
	w := newWorld(b, []int{4}, "")
	w.agents[0].Command = []string{"true"}
	for b.Loop() {
		if r := w.run()[0]; r.err != nil || r.Exit != 0 {
			b.Fatalf("ended with %+v", r)
		}
	}
}

// flakyWords is what a "flaky" worker says of its place.
type flakyWords struct {
	rank, world, node, nodes, restarts, round, port int
	cookie                                          string
}

func (w *world) flakyWordsOf(attempt int, host string, rank int) (p flakyWords) {
	w.t.Helper()
	text := w.logAt(attempt, host, rank, "out")
	_, err := fmt.Sscan(text, &p.rank, &p.world, &p.node, &p.nodes, &p.restarts, &p.round, &p.port, &p.cookie)
	if err != nil {
		w.t.Fatalf("rank %d on %s said %q in attempt %d: %v", rank, host, text, attempt, err)
	}
	return p
}

func TestRunRestartsAfterACrash(t *testing.T) {
	w := newWorld(t, []int{1, 2}, "flaky", "2", "2", "3")
	w.elastic(0, 5)
	v := w.agree(w.run())
	if v.Cause != "done" || v.Exit != 0 || v.Round != 2 || v.Attempt != 3 || v.Restart {
		t.Errorf("verdict is %+v", v)
	}
	ports, cookies := map[int]bool{}, map[string]bool{}
	for round := range 3 {
		for rank, host := range []string{"n1", "n2", "n2"} {
			got := w.flakyWordsOf(round+1, host, rank)
			ports[got.port], cookies[got.cookie] = true, true
			want := flakyWords{rank, 3, min(rank, 1), 2, round, round, got.port, got.cookie}
			if got != want {
				t.Errorf("rank %d in round %d was told %+v", rank, round, got)
			}
		}
	}
	if len(ports) != 3 || len(cookies) != 6 {
		t.Errorf("MASTER_PORTs are %v, cookies %v; want another one each round, and a cookie for each agent", ports, cookies)
	}
	for attempt := 1; attempt <= 2; attempt++ {
		v, err := w.dir.Verdict(attempt)
		if err != nil || v.Cause != "crash" || v.Exit != 3 || v.FirstRank != 2 || !v.Restart || v.Round != attempt-1 {
			t.Errorf("attempt %d: %+v, %v", attempt, v, err)
		}
		if len(v.Ranks) != 3 || v.Ranks[0] != (rundir.RankEnd{Rank: 2, Host: "n2", Exit: 3}) {
			t.Errorf("attempt %d: ranks ended as %+v", attempt, v.Ranks)
		}
		for _, r := range v.Ranks[1:] {
			if r.Signal != int(syscall.SIGTERM) || !r.Followed {
				t.Errorf("attempt %d: rank %d ended as %+v", attempt, r.Rank, r)
			}
		}
	}
	events, err := w.dir.Ledger()
	must(t, err)
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprint(e.Event, e.Attempt))
	}
	if want := []string{"end1", "restart1", "begin2", "end2", "restart2", "begin3", "end3"}; !slices.Equal(got, want) {
		t.Errorf("ledger has %v, want %v", got, want)
	}
}

func TestRunEndsWhenRestartsAreUsedUp(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "flaky", "99", "0", "3")
	w.elastic(0, 2)
	v := w.agree(w.run())
	if v.Cause != "crash" || v.Exit != 3 || v.Round != 2 || v.Attempt != 3 || v.Restart {
		t.Errorf("verdict is %+v", v)
	}
}

func TestTaskModeRunRestarts(t *testing.T) {
	w := newWorld(t, []int{0, 0}, "flaky", "1", "1", "9")
	for i := range w.agents {
		w.agents[i].Local = []RankNumbers{{Rank: i, WorldSize: 2, LocalWorldSize: 1, NodeRank: i, Nodes: 2}}
		w.agents[i].Policy.MaxRestarts = 1
	}
	if v := w.agree(w.run()); v.Cause != "done" || v.Round != 1 {
		t.Errorf("verdict is %+v", v)
	}
}

// Ends that no restart mends.
func TestStopAndExitCode93AreNotRestarted(t *testing.T) {
	for code, cause := range map[string]string{"93": "crash", "75": "stopped"} {
		w := newWorld(t, []int{1, 1}, "flaky", "1", "1", code)
		w.elastic(0, 3)
		for i := range w.agents {
			w.agents[i].Grace = 100 * time.Millisecond
		}
		if v := w.agree(w.run()); v.Cause != cause || fmt.Sprint(v.Exit) != code || v.Round != 0 || v.Attempt != 1 {
			t.Errorf("exit code %s: verdict is %+v", code, v)
		}
	}
}

// No round follows a crash where the run is told to end, or to save, or has workers that do not end.
func TestNoRoundFollowsAnOrderedEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		interrupted, warned, stuck bool
		follows                    bool
	}{
		"nothing in the way":  {false, false, false, true},
		"told to end":         {true, false, false, false},
		"warned":              {false, true, false, false},
		"a worker that stays": {false, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newWorld(t, []int{1}, "say", "x").agents[0]
			c.RunDir, c.Attempt, c.Policy.MaxRestarts = nil, 0, 1
			warn := make(chan struct{})
			c.Warn = warn
			c, err := c.withDefaults()
			must(t, err)
			r, err := c.begin(t.Context(), nil)
			must(t, err)
			if tc.warned {
				close(warn)
				testkit.Eventually(t, "the warning", r.agent.IsWarned)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.interrupted {
				cancel()
			}
			next, v, _ := r.decide(ctx, !tc.stuck, r.rdzv.First, rundir.Verdict{Cause: "crash", Exit: 1})
			if v.Restart != tc.follows || (next != nil) != tc.follows {
				t.Errorf("the verdict is %+v, and %+v follows", v, next)
			}
			must(t, r.close())
		})
	}
}

// spyRendezvous calls onLast when the last word on a round is about to be published.
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

// Whoever hears the verdict may end the job step: it is on disk by then.
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

// A round whose end cannot be written down is the last one, and all agents hear that.
func TestUnrecordedRoundIsTheLast(t *testing.T) {
	for name, path := range map[string]string{"verdict": "attempts/1/verdict.json", "ledger": "ledger.jsonl"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []int{1, 1}, "flaky", "1", "1", "3")
			w.elastic(0, 1)
			path := filepath.Join(w.dir.Path(), path)
			must(t, os.Mkdir(path, 0o700)) // nobody can write a file there
			r := w.run()
			v := r[0].Verdict
			if r[0].err == nil || r[1].err != nil || !sameVerdict(r[1].Verdict, v) || v.Exit != 3 || v.Round != 0 || v.Restart {
				t.Errorf("ended with %+v", r)
			}
			if disk, err := w.dir.Verdict(1); name == "ledger" && (err != nil || !sameVerdict(disk, v)) {
				t.Errorf("on disk is %+v, %v; returned was %+v", disk, err, v)
			}
			if history, err := w.dir.Ledger(); name == "verdict" && (err != nil || len(history) != 1 || history[0].Event != rundir.EventEnd) {
				t.Errorf("the ledger says %+v, %v", history, err)
			}
		})
	}
}

// An attempt that another job has superseded meanwhile does not start again, and does not supersede that one.
func TestSupersededAttemptDoesNotRestart(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "flaky", "1", "1", "3", "go")
	w.elastic(0, 3)
	go func() {
		w.awaitMarks("0.0", "0.1")
		if _, err := w.dir.ClaimAttempt(); err != nil {
			t.Error(err)
		}
		os.WriteFile(filepath.Join(w.folder, "0.go"), nil, 0o600)
	}()
	v := w.agree(w.run())
	if v.Exit != 93 || v.Requeue || v.Restart || v.Attempt != 1 || !strings.Contains(v.Message, "superseded") {
		t.Errorf("verdict is %+v", v)
	}
	if newest, err := w.dir.NewestAttempt(); err != nil || newest != 2 {
		t.Errorf("the newest attempt is %d, %v", newest, err)
	}
}

// ddpbatch's own workers get a store of their own in each round, where only their attempt is served.
func TestEachRoundHasItsWorkerStore(t *testing.T) {
	w := newWorld(t, []int{1}, "store", "2")
	w.agents[0].Builtin, w.agents[0].Policy.MaxRestarts = true, 2
	if v := w.agree(w.run()); v.Cause != "done" || v.Round != 2 {
		t.Errorf("verdict is %+v", v)
	}
	for attempt := 1; attempt <= 3; attempt++ {
		if got, want := w.logAt(attempt, "n1", 0, "out"), fmt.Sprintf("1 %d <nil>\n", attempt); got != want {
			t.Errorf("in attempt %d the worker says %q, want %q", attempt, got, want)
		}
	}
}

// A caller that ends the run between two rounds gets no further workers.
func TestSignalBetweenRoundsStartsNoWorkers(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "say", "x")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(SignalError{Sig: syscall.SIGTERM})
	var ended [2]result
	met := make(chan *run, 2)
	for i := range 2 {
		go func() {
			c, err := w.agents[i].withDefaults()
			must(t, err)
			r, err := c.begin(t.Context(), nil)
			if err != nil {
				t.Error(err)
			}
			met <- r
		}()
	}
	done := make(chan struct{})
	for range 2 {
		r := <-met
		go func() {
			v, err := r.rounds(ctx)
			ended[r.rdzv.Index()] = result{v, err, 0}
			r.close()
			done <- struct{}{}
		}()
	}
	<-done
	<-done
	if v := w.agree(ended[:]); v.Cause != "cancelled" || v.Exit != 143 || w.out.String() != "" {
		t.Errorf("verdict is %+v, workers wrote %q", v, w.out.String())
	}
}

// Hundreds of rounds leave nothing behind: no key, no file, no goroutine.
func TestManyRoundsLeaveNothingBehind(t *testing.T) {
	const rounds = 300
	w := newWorld(t, []int{1}, "")
	c := w.agents[0]
	c.Command, c.RunDir, c.Attempt, c.Builtin, c.TorchStore = []string{"false"}, nil, 0, true, true
	c.Policy.MaxRestarts = rounds
	c, err := c.withDefaults()
	must(t, err)
	r, err := c.begin(t.Context(), nil)
	must(t, err)
	files, tasks := openFiles(t), runtime.NumGoroutine()
	v, err := r.rounds(t.Context())
	if err != nil || v.Exit != 1 || v.Round != rounds {
		t.Errorf("ended with %+v, %v", v, err)
	}
	keys, err := r.rdzv.Store().List(t.Context(), "")
	must(t, err)
	if len(keys) > 12 {
		t.Errorf("%d keys are left: %v", len(keys), keys)
	}
	// A worker's pipes may be closed a moment after its end; what is left behind stays for ever.
	testkit.Eventually(t, "files are closed", func() bool { return openFiles(t) <= files+8 })
	testkit.Eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= tasks+16 })
	must(t, r.close())
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

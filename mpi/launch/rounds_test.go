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
)

// flakyWords is what a "flaky" worker prints about its numbers.
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

// Exit codes 75 and 93 do not cause a restart.
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

// No round follows a crash if the run was stopped, if its workers were warned, or if some workers do not end.
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

// A round whose end cannot be recorded is the last one, and all agents learn that.
func TestUnrecordedRoundIsTheLast(t *testing.T) {
	for name, path := range map[string]string{"verdict": "attempts/1/verdict.json", "ledger": "ledger.jsonl"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []int{1, 1}, "flaky", "1", "1", "3")
			w.elastic(0, 1)
			path := filepath.Join(w.dir.Path(), path)
			must(t, os.Mkdir(path, 0o700)) // a folder, so that the file cannot be written
			r := w.run()
			v := r[0].Verdict
			if r[0].err == nil || r[1].err != nil || !sameVerdict(r[1].Verdict, v) || v.Exit != 3 || v.Round != 0 || v.Restart {
				t.Errorf("ended with %+v", r)
			}
			if disk, err := w.dir.Verdict(1); name == "ledger" && (err != nil || !sameVerdict(disk, v)) {
				t.Errorf("on disk is %+v, %v; returned was %+v", disk, err, v)
			}
			if history, err := w.dir.Ledger(); name == "verdict" &&
				(err != nil || len(history) != 1 || history[0].Event != rundir.EventEnd) {
				t.Errorf("the ledger says %+v, %v", history, err)
			}
		})
	}
}

// An attempt that another job has superseded does not start again, and does not supersede that job's attempt.
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

// ddpbatch's own workers get a store of their own in each round. It serves only their attempt.
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

// If a signal ends the run between two rounds, the agents do not start any more workers.
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
	// A worker's pipes may be closed a moment after its end. A leak would stay forever.
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

package supervise

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/launch/watch"
	"ddpbatch/mpi/store"
)

// act is what a simulated worker does: it gives signs of life in spans of time, and ends.
type act struct {
	alive    [][2]time.Duration // from, to; none: it is silent from the beginning
	ends     time.Duration      // 0: only by a signal
	exit     int
	deaf     bool // to TERM
	receives bool // has a handler for warnings
	onSignal int  // its exit code after a signal; 0: it dies of the signal; -1: it exits with 0
}

// fakeProcess is a worker's process in memory. It remembers the signals that it gets, and when.
type fakeProcess struct {
	begun time.Time
	act   act
	end   func(exit int, sig syscall.Signal)

	mu      sync.Mutex
	ended   bool
	looks   int // how often the agent looked for a handler of the warning
	signals []string
}

func (f *fakeProcess) Pid() int { return 1 << 30 } // no process has this ID

func (f *fakeProcess) Signal(sig syscall.Signal) error {
	f.mu.Lock()
	ended := f.ended
	f.mu.Unlock()
	if ended || sig == syscall.SIGCONT {
		return nil
	}
	f.mu.Lock()
	f.signals = append(f.signals, fmt.Sprintf("%v at %v", text.SignalName(sig), time.Since(f.begun)))
	f.mu.Unlock()
	switch {
	case sig == syscall.SIGKILL || !f.act.deaf && f.act.onSignal == 0:
		f.end(0, sig)
	case !f.act.deaf:
		f.end(max(0, f.act.onSignal), 0)
	}
	return nil
}

func (f *fakeProcess) Warn(syscall.Signal) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	if !f.act.receives {
		return 0, nil
	}
	f.signals = append(f.signals, fmt.Sprintf("warned at %v", time.Since(f.begun)))
	return 1, nil
}

// fakeSigns returns the signs that the acts give.
type fakeSigns struct{ processes []*fakeProcess }

func (f fakeSigns) samples(workers []*worker, _ []heartbeat) ([]watch.Sample, error) {
	samples := make([]watch.Sample, len(workers))
	for i, p := range f.processes {
		samples[i].Ended = !workers[i].ended.IsZero()
		for _, span := range p.act.alive {
			samples[i].Logged += int64(max(0, min(time.Since(p.begun), span[1])-span[0]))
		}
	}
	return samples, nil
}

func (f fakeSigns) where(*worker) watch.Condition { return watch.Condition{Text: "in futex"} }

// play runs one round of agents in memory, one for each list of acts, in the bubble's time. It returns the verdict that all of them
// have, how long the round took, and the signals that each worker got, by rank.
func play(t *testing.T, ctx context.Context, c Config, acts ...[]act) (v rundir.Verdict, took time.Duration, signals [][]string) {
	t.Helper()
	l := &rendezvous.Layout{Count: len(acts), Host: "n1", MasterPort: 1}
	for i, list := range acts {
		host := fmt.Sprintf("n%d", i+1)
		l.Members = append(l.Members, rendezvous.Member{Index: i, Host: host, First: l.World, Nproc: len(list)})
		if i > 0 {
			l.Participants = append(l.Participants, &rendezvous.Participant{Index: i, Host: host})
		}
		l.World += len(list)
	}
	shared, begun := store.NewMemory(), time.Now()
	var processes []*fakeProcess
	verdicts := make([]rundir.Verdict, len(acts))
	var agents sync.WaitGroup
	for i, list := range acts {
		own := c
		own.World = rendezvous.World{Index: i, Count: len(acts), Host: l.Members[i].Host, Nproc: len(list)}
		s := agentOf(t, complete(own), &met{store: shared}).newSupervisor(ctx, l)
		s.exits = make(chan *worker, len(list))
		var signs fakeSigns
		for _, ranks := range l.NumbersOf(own.World) {
			signs.processes = append(signs.processes, s.addFake(t, ranks, list[ranks.LocalRank]))
		}
		processes = append(processes, signs.processes...)
		endWatch := s.watchForHangs()
		if s.hangWatch != nil {
			s.hangWatch.signs = signs
		}
		agents.Go(func() {
			s.run(ctx)
			if i == 0 {
				var err error
				verdicts[i], err = s.Verdict(context.WithoutCancel(ctx))
				must(t, err)
				must(t, s.PublishVerdict(context.WithoutCancel(ctx), verdicts[i], false))
			} else {
				verdicts[i], _, _ = s.ReceivedVerdict()
			}
			endWatch()
			s.Close()
		})
	}
	agents.Wait()
	for i, other := range verdicts {
		if !sameVerdict(other, verdicts[0]) {
			t.Errorf("agent %d says %+v, agent 0 %+v", i, other, verdicts[0])
		}
	}
	for _, p := range processes {
		signals = append(signals, p.signals)
	}
	return verdicts[0], time.Since(begun), signals
}

// addFake gives an agent a simulated worker.
func (s *Supervisor) addFake(t *testing.T, ranks rendezvous.RankNumbers, a act) *fakeProcess {
	t.Helper()
	mux, err := output.NewMux(output.Config{}, output.To{}, nil)
	must(t, err)
	w := &worker{numbers: ranks, cmd: &exec.Cmd{}}
	w.out, w.errs, err = mux.Worker(output.Worker{}, output.Paths{})
	must(t, err)
	w.out.Drop()
	w.errs.Drop()
	p := &fakeProcess{begun: time.Now(), act: a}
	p.end = func(exit int, sig syscall.Signal) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.ended {
			p.ended, w.exit, w.signal = true, exit, sig
			s.exits <- w
		}
	}
	w.process = p
	s.workers = append(s.workers, w)
	s.alive++
	if a.ends > 0 {
		time.AfterFunc(a.ends, func() { p.end(a.exit, 0) })
	}
	return p
}

// between is a worker that gives signs of life from one time to another.
func between(from, to time.Duration) act { return act{alive: [][2]time.Duration{{from, to}}} }

// Workers hang once those of all nodes have been silent for HangAfter. The verdict blames the node that fell silent first. An agent whose
// workers have ended does not count.
func TestHangIsThatOfTheFirstSilentNode(t *testing.T) {
	done := act{ends: time.Second}
	turns := func(first, ends time.Duration) act { // silent for 28 s of each minute: its agent reports that, and takes it back
		a := act{ends: ends}
		for from := first; from < ends; from += time.Minute {
			a.alive = append(a.alive, [2]time.Duration{from, from + 32*time.Second})
		}
		return a
	}
	for name, tc := range map[string]struct {
		after time.Duration
		acts  [][]act
		cause string
		rank  int
		host  string
		most  time.Duration // longest time that it may take
		least time.Duration
	}{
		"one": {20 * time.Second, [][]act{{{}}}, causeHang, 0, "n1", 25 * time.Second, 20 * time.Second},
		"the second is the first": {20 * time.Second, [][]act{{between(0, 30*time.Second)}, {{}}}, causeHang, 1, "n2",
			55 * time.Second, 50 * time.Second},
		"the first is the first": {20 * time.Second, [][]act{{{}}, {between(0, 30*time.Second)}}, causeHang, 0, "n1",
			55 * time.Second, 50 * time.Second},
		"of three nodes": {20 * time.Second, [][]act{{between(0, 9*time.Second)}, {between(0, 30*time.Second)}, {{}}}, causeHang,
			2, "n3", 55 * time.Second, 50 * time.Second},
		"the other node has ended": {20 * time.Second, [][]act{{{}}, {done}}, causeHang, 0, "n1", 27 * time.Second, 20 * time.Second},
		"agent 0's have ended":     {20 * time.Second, [][]act{{done}, {{}}}, causeHang, 1, "n2", 27 * time.Second, 20 * time.Second},
		"all have ended":           {20 * time.Second, [][]act{{done}, {done}}, causeDone, -1, "", 2 * time.Second, time.Second},
		"in turns": {20 * time.Second, [][]act{{turns(0, time.Hour)}, {turns(30*time.Second, time.Hour)}}, causeDone, -1, "",
			time.Hour + time.Second, time.Hour},
		"reported later": {20 * time.Second, [][]act{{between(0, 10*time.Second)}, {{}, between(0, 30*time.Second)}}, causeHang, 1, "n2",
			55 * time.Second, 50 * time.Second},
		"beside a silent one": {20 * time.Second,
			[][]act{{{ends: time.Hour}, {alive: [][2]time.Duration{{0, time.Hour}}, ends: time.Hour}}}, causeDone, -1, "",
			time.Hour + time.Second, time.Hour},
		"nobody asked": {0, [][]act{{{ends: time.Hour}}, {{ends: time.Hour}}}, causeDone, -1, "", time.Hour + time.Second, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, took, signals := play(t, t.Context(), Config{Limits: Limits{HangAfter: tc.after}}, tc.acts...)
				if v.Cause != tc.cause || v.FirstRank != tc.rank || v.Host != tc.host || took < tc.least || took > tc.most {
					t.Errorf("after %v the verdict is %+v", took, v)
				}
				if tc.cause == causeHang &&
					(!slices.ContainsFunc(signals, func(s []string) bool { return len(s) == 1 && strings.HasPrefix(s[0], "SIGTERM") }) ||
						!slices.Equal(v.Nodes, []string{tc.host})) {
					t.Errorf("the nodes are %q, and workers got %q", v.Nodes, signals)
				}
			})
		})
	}
}

// The first failure ends the workers of all nodes: they get TERM at once, and KILL after the grace. If a worker agreed to stop, the others
// have the grace to end by themselves before they get TERM.
func TestFirstFailureEndsWorkersAfterTheGrace(t *testing.T) {
	const grace = 30 * time.Second
	crash := act{ends: 10 * time.Second, exit: 3}
	agreed := act{ends: 10 * time.Second, exit: 75}
	for name, tc := range map[string]struct {
		acts    [][]act
		cause   string
		rank    int
		signals []string // of each rank
		took    time.Duration
	}{
		"a crash": {[][]act{{crash}, {{}}}, causeCrash, 0, []string{"", "SIGTERM at 10s"}, 10 * time.Second},
		"a crash elsewhere": {[][]act{{{}, {}}, {crash}}, causeCrash, 2, []string{"SIGTERM at 10s", "SIGTERM at 10s", ""},
			10 * time.Second},
		"a worker is deaf": {[][]act{{crash, {}}, {{deaf: true}}}, causeCrash, 0,
			[]string{"", "SIGTERM at 10s", "SIGTERM at 10s, SIGKILL at 40s"}, 40 * time.Second},
		"agreed to stop": {[][]act{{agreed}, {{ends: 12 * time.Second, exit: 75}}}, causeStopped, 0,
			[]string{"", ""}, 12 * time.Second},
		"one does not follow": {[][]act{{agreed}, {{}}}, causeStopped, 0, []string{"", "SIGTERM at 40.2s"}, 40200 * time.Millisecond},
		"one fails while others save": {[][]act{{agreed, {ends: 12 * time.Second, exit: 4}},
			{{ends: 14 * time.Second, exit: 5}, {ends: 38 * time.Second, exit: 75}}}, causeCrash, 1,
			[]string{"", "", "", ""}, 38 * time.Second},
		"one fails while others save, and is reported last": {[][]act{{agreed, {ends: 14 * time.Second, exit: 4}},
			{{ends: 12 * time.Second, exit: 5}, {ends: 38 * time.Second, exit: 75}}}, causeCrash, 2,
			[]string{"", "", "", ""}, 38 * time.Second},
		"one fails while the workers of agent 0 save": {[][]act{{{ends: 14 * time.Second, exit: 5}, {ends: 38 * time.Second, exit: 75}},
			{agreed, {ends: 12 * time.Second, exit: 4}}}, causeCrash, 3, []string{"", "", "", ""}, 38 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, took, signals := play(t, t.Context(), Config{Limits: Limits{Grace: grace}}, tc.acts...)
				if v.Cause != tc.cause || v.FirstRank != tc.rank || took != tc.took {
					t.Errorf("after %v the verdict is %+v", took, v)
				}
				for rank, want := range tc.signals {
					if got := strings.Join(signals[rank], ", "); got != want {
						t.Errorf("rank %d got %q, want %q", rank, got, want)
					}
				}
			})
		})
	}
}

// A signal is passed on to the workers of all agents once, and TermGrace bounds the time that they have to end.
func TestSignalIsPassedOnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(rendezvous.SignalError{Sig: syscall.SIGINT}) })
		v, took, signals := play(t, ctx, Config{Limits: Limits{Grace: time.Hour, TermGrace: 20 * time.Second}},
			[]act{{}}, []act{{deaf: true}})
		if v.Cause != causeCancelled || v.Signal != int(syscall.SIGINT) || v.Exit != 130 || took != 80*time.Second {
			t.Errorf("after %v the verdict is %+v", took, v)
		}
		if got := fmt.Sprint(signals); got != "[[SIGINT at 1m0s] [SIGINT at 1m0s SIGKILL at 1m20s]]" {
			t.Errorf("workers got %s", got)
		}
	})
}

// The exit codes of workers that a signal stopped show whether they saved.
func TestExitCodesSayWhetherWorkersSaved(t *testing.T) {
	for name, tc := range map[string]struct {
		exits []int // by rank
		exit  int
		saved bool
	}{
		"all saved":                      {[]int{75, 75, 75}, 75, true},
		"all are done":                   {[]int{-1, -1, -1}, 0, true},
		"some saved, some had ended":     {[]int{-1, 75, -1}, 75, true},
		"some saved, some just ended":    {[]int{75, 143, 143}, 75, true},
		"none saved":                     {[]int{143, 1, -1}, 143, false},
		"none saved, all ended by error": {[]int{1, 1, 1}, 143, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(rendezvous.SignalError{Sig: syscall.SIGTERM}) })
				v, _, _ := play(t, ctx, Config{}, []act{{onSignal: tc.exits[0]}}, []act{{onSignal: tc.exits[1]}, {onSignal: tc.exits[2]}})
				cause := causeCancelled
				if tc.exit == 0 {
					cause = causeDone
				}
				if v.Cause != cause || v.Exit != tc.exit || v.Saved != tc.saved || v.Requeue != (tc.exit == 75) {
					t.Errorf("verdict is %+v", v)
				}
			})
		})
	}
}

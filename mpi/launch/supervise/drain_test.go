package supervise

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/store"
)

// drains simulates a Slurm that drains nodes, each with a reason.
func drains(reasons map[string]string) func(context.Context) (map[string]string, error) {
	return func(context.Context) (map[string]string, error) { return reasons, nil }
}

// drainAgent returns agent 0 of a run on n1 and n2, in the first attempt of dir.
func drainAgent(t *testing.T, dir *rundir.Dir, c Config, log *bytes.Buffer) (*Agent, *met) {
	m := &met{store: store.NewMemory()}
	c.RunDir, c.Attempt, c.Host, c.Log = dir, 1, "n1", slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	a := agentOf(t, complete(c), m)
	l := twoMembers()
	l.Attempt = 1
	a.layout.Store(l)
	return a, m
}

// watchesDrain runs watchDrain for a limited time.
func watchesDrain(a *Agent, limit time.Duration) {
	end := time.AfterFunc(limit, a.cancel)
	defer end.Stop()
	a.watchDrain()
}

// An agent asks Slurm for drained nodes at most once a minute, first within a minute. Agents that begin together ask at different times.
func TestDrainIsAskedForOnceAMinute(t *testing.T) {
	first := map[time.Duration]bool{}
	const agents = 100
	for range agents {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			var asked []time.Duration
			c := Config{JobEnd: JobEnd{FindDrain: func(context.Context) (map[string]string, error) {
				asked = append(asked, time.Since(begin))
				time.Sleep(time.Duration(len(asked)%3) * time.Second) // a busy controller
				if len(asked)%5 == 0 {
					return nil, errors.New("no answer")
				}
				return map[string]string{"n9": "of another job"}, nil
			}}}
			a, _ := drainAgent(t, nil, c, &bytes.Buffer{})
			watchesDrain(a, 2*time.Hour)
			first[asked[0]] = true
			if n := len(asked); n < 90 || n > 121 || asked[0] > time.Minute {
				t.Errorf("asked %d times in two hours, first after %v", n, asked[0])
			}
			for i, at := range asked[1:] {
				if pause := at - asked[i]; pause < time.Minute || pause > 78*time.Second {
					t.Errorf("asked %v after the question before", pause)
				}
			}
		})
	}
	if len(first) < agents*9/10 {
		t.Errorf("%d agents asked first at %d different times", agents, len(first))
	}
}

// Without Slurm, the agent asks only once. If a controller does not answer, the agent logs that once and goes on asking.
func TestDrainThatIsNotKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		once bool
		said int
	}{
		"no Slurm":  {errors.ErrUnsupported, true, 0},
		"no answer": {errors.New("silence"), false, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked, log := 0, &bytes.Buffer{}
			a, m := drainAgent(t, nil, Config{JobEnd: JobEnd{FindDrain: func(context.Context) (map[string]string, error) {
				asked++
				return nil, tc.err
			}}}, log)
			watchesDrain(a, time.Hour)
			if (asked == 1) != tc.once || strings.Count(log.String(), "silence") != tc.said ||
				strings.Count(log.String(), "\n") != tc.said {
				t.Errorf("%s: asked %d times, and said %q", name, asked, log)
			}
			if warned, err := m.store.Check(t.Context(), keyDrain); err != nil || warned {
				t.Errorf("%s: warned %t, %v", name, warned, err)
			}
		})
	}
}

// The workers are asked to leave a node that Slurm drains only if the job would be started again without it.
func TestWorkersAreAskedToLeaveDrainedNodes(t *testing.T) {
	node := recovery.Policy{On: []recovery.Cause{recovery.Node}}
	used := rundir.Event{Event: rundir.EventRequeue, Attempt: 1, Cause: "node"}
	saved := rundir.Event{Event: rundir.EventRequeue, Attempt: 1, Cause: "stopped"}
	answers := func(whys ...string) func(calls int) (string, error) { // "?": an error
		return func(calls int) (string, error) {
			why := whys[min(calls, len(whys))-1]
			if why == "?" {
				return "", errors.New("no controller")
			}
			return why, nil
		}
	}
	for name, tc := range map[string]struct {
		policy  recovery.Policy
		history []rundir.Event
		drains  map[string]string
		spares  func(calls int) (string, error)
		warns   string // the warning; "": none
		nodes   []string
		logged  string // part of the only line; "": none
		asked   int    // how often it asks whether the job can do without the nodes
	}{
		"a node": {node, nil, map[string]string{"n2": "Kill task failed"}, answers(""), "Slurm drains n2 (Kill task failed)",
			[]string{"n2"}, "", 1},
		"both": {node, nil, map[string]string{"n2": "", "n1": "x"}, answers(""), "Slurm drains n1 (x), n2",
			[]string{"n1", "n2"}, "", 1},
		"nobody to ask":     {node, nil, map[string]string{"n2": "x"}, nil, "Slurm drains n2 (x)", []string{"n2"}, "", 0},
		"none":              {node, nil, nil, answers(""), "", nil, "", 0},
		"one that was lost": {node, nil, map[string]string{"n3": "x"}, answers(""), "", nil, "", 0},
		"not named": {recovery.Policy{On: []recovery.Cause{recovery.Timeout}}, nil, map[string]string{"n2": "x"}, answers(""),
			"", nil, `requeue.on does not name`, 0},
		"the budget of nodes is used": {recovery.Policy{On: node.On, Max: map[recovery.Cause]int{recovery.Node: 1}}, []rundir.Event{used},
			map[string]string{"n2": "x"}, answers(""), "Slurm drains n2 (x)", []string{"n2"}, "", 1},
		"no requeue is left": {recovery.Policy{On: node.On, Max: map[recovery.Cause]int{recovery.Saved: 1}}, []rundir.Event{saved},
			map[string]string{"n2": "x"}, answers(""), "", nil, "requeue.max.stopped = 1 is used up", 0},
		"it is needed": {node, nil, map[string]string{"n2": "x"}, answers("the job has no other"), "", nil, "the job has no other", 2},
		"another comes back": {node, nil, map[string]string{"n2": "x"}, answers("the job has no other", ""),
			"Slurm drains n2 (x)", []string{"n2"}, "the job has no other", 2},
		"Slurm answers later": {node, nil, map[string]string{"n2": "x"}, answers("?", "?", ""),
			"Slurm drains n2 (x)", []string{"n2"}, "no controller", 3},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newRunDir(t)
			must(t, dir.Append(rundir.Event{Event: rundir.EventBegin, Attempt: 1, Job: "12",
				Time: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)}))
			for _, e := range tc.history {
				must(t, dir.Append(e))
			}
			synctest.Test(t, func(t *testing.T) {
				log, calls := &bytes.Buffer{}, 0
				c := Config{Policy: tc.policy, JobEnd: JobEnd{FindDrain: drains(tc.drains)}}
				if tc.spares != nil {
					c.Spares = func(context.Context, []string) (string, error) {
						calls++
						return tc.spares(calls)
					}
				}
				a, m := drainAgent(t, dir, c, log)
				watchesDrain(a, time.Hour)
				warned, err := m.store.Check(t.Context(), keyDrain)
				must(t, err)
				if warned != (tc.warns != "") || calls != tc.asked {
					t.Errorf("warned %t, and asked %d times whether the job can do without; logged %q", warned, calls, log)
				}
				if warned {
					got, err := rendezvous.GetJSON[warning](t.Context(), m.store, keyDrain)
					if err != nil || got.Why != tc.warns || !slices.Equal(got.Nodes, tc.nodes) || got.Host != "n1" {
						t.Errorf("the warning is %+v, %v", got, err)
					}
				}
				lines := strings.Count(log.String(), "\n")
				if !strings.Contains(log.String(), tc.logged) || (tc.logged == "") != (lines == 0) || lines > 1 {
					t.Errorf("logged %q, want %q, once", log, tc.logged)
				}
			})
		})
	}
}

// leaving runs one worker on n1 while Slurm drains n2. It returns agent 0's verdict, the worker's process and agent 0.
func leaving(t *testing.T, c Config, a act) (rundir.Verdict, *fakeProcess, *Agent) {
	t.Helper()
	c.FindDrain, c.Policy.On = drains(map[string]string{"n2": "test"}), []recovery.Cause{recovery.Node}
	agent, _ := drainAgent(t, c.RunDir, c, &bytes.Buffer{})
	agent.cfg.World.Nproc = 1
	l := &rendezvous.Layout{
		Attempt: 1, Host: "n1", MasterPort: 1, World: 1, Members: []rendezvous.Member{{Host: "n1", Nproc: 1}, {Index: 1, Host: "n2"}},
	}
	agent.listenForWarnings()
	s := agent.newSupervisor(t.Context(), l)
	s.exits = make(chan *worker, 1)
	p := s.addFake(t, rendezvous.RankNumbers{WorldSize: 1}, a)
	s.run(t.Context())
	v, err := s.Verdict(t.Context())
	must(t, err)
	s.Close()
	agent.cancel()
	agent.Wait()
	return v, p, agent
}

// If a run saves because a node is drained, the verdict names that node, and not the one on which the first rank ended. The agents do not
// count the stop file that they make themselves as a person's warning.
func TestDrainedNodeIsTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		act   act
		cause string
		nodes []string
	}{
		"it saves":                     {act{ends: 3 * time.Minute, exit: 75}, causeNode, []string{"n2"}},
		"it ends before it is drained": {act{ends: time.Millisecond, exit: 75}, causeStopped, nil},
		"it is done":                   {act{ends: 3 * time.Minute}, causeDone, nil},
		"it fails":                     {act{ends: 3 * time.Minute, exit: 3}, causeCrash, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newRunDir(t)
			synctest.Test(t, func(t *testing.T) {
				v, _, agent := leaving(t, Config{Identity: rendezvous.Identity{RunDir: dir}}, tc.act)
				if v.Cause != tc.cause || v.Exit != tc.act.exit || !slices.Equal(v.Nodes, tc.nodes) || v.Drain != (tc.nodes != nil) ||
					agent.IsWarned() || v.WarnedS != 0 {
					t.Errorf("the verdict is %+v", v)
				}
				if tc.nodes != nil &&
					(v.Host != "n2" || !v.Saved || !strings.HasPrefix(v.Message, "Slurm drains n2 (test): rank 0 on n1 stopped")) {
					t.Errorf("the verdict is %+v", v)
				}
			})
			if _, err := os.Stat(dir.StopPath(1)); (err == nil) != (tc.act.ends > time.Second) {
				t.Errorf("the stop file: %v", err)
			}
		})
	}
}

// If a node is drained, workers that are restarted after a failure are asked to leave at once. The stop file of the previous round does not
// count as a person's warning either.
func TestLaterRoundLeavesDrainedNodes(t *testing.T) {
	dir := newRunDir(t)
	_, err := dir.ClaimAttempt()
	must(t, errors.Join(err, touch(dir.StopPath(1))))
	synctest.Test(t, func(t *testing.T) {
		a, m := drainAgent(t, dir, Config{}, &bytes.Buffer{})
		a.cfg.World.Nproc = 1
		a.leaves.Store(true)
		a.drain = warning{Host: "n1", Why: "Slurm drains n2", Nodes: []string{"n2"}}
		close(a.drained)
		s := a.newSupervisor(t.Context(), &rendezvous.Layout{
			Round: 1, Attempt: 2, Host: "n1", MasterPort: 1, World: 1,
			Members: []rendezvous.Member{{Host: "n1", Nproc: 1}, {Index: 1, Host: "n2"}},
		})
		s.exits = make(chan *worker, 1)
		p := s.addFake(t, rendezvous.RankNumbers{WorldSize: 1}, act{ends: time.Minute, exit: 75, receives: true})
		s.run(t.Context())
		v, err := s.Verdict(t.Context())
		must(t, err)
		s.Close()
		if v.Cause != causeNode || v.Attempt != 2 || !slices.Equal(v.Nodes, []string{"n2"}) ||
			!slices.Equal(p.signals, []string{"warned at 0s"}) {
			t.Errorf("the worker was %q, and the verdict is %+v", p.signals, v)
		}
		if warned, err := m.store.Check(t.Context(), keyWarn); warned || err != nil {
			t.Errorf("a person's warning: %t, %v", warned, err)
		}
	})
	if _, err := os.Stat(dir.StopPath(2)); err != nil {
		t.Error(err)
	}
}

// Workers that go on after the warning of a drain are warned again before the job's end. The job's end is then the reason for the stop, and
// WarnedS counts from the second warning.
func TestDrainedRunIsWarnedBeforeItsEnd(t *testing.T) {
	dirs := []*rundir.Dir{newRunDir(t), newRunDir(t)}
	synctest.Test(t, func(t *testing.T) {
		c := Config{Identity: rendezvous.Identity{RunDir: dirs[0]}, Policy: recovery.Policy{Lead: time.Minute}}
		c.Deadline = time.Now().Add(time.Hour)
		v, p, _ := leaving(t, c, act{ends: 59*time.Minute + 10*time.Second, exit: 75, receives: true})
		if len(p.signals) != 2 || p.signals[1] != "warned at 59m0s" {
			t.Errorf("the worker was %q, want twice, and then a minute before the end", p.signals)
		}
		if v.Cause != causeStopped || v.WarnedS < 10 || v.WarnedS > 15 || v.Drain || len(v.Nodes) > 0 {
			t.Errorf("the verdict is %+v", v)
		}
		c.RunDir, c.Deadline = dirs[1], time.Now().Add(10*time.Hour)
		if _, p, _ := leaving(t, c, act{ends: 9 * time.Hour}); p.looks < 60 || p.looks > 130 {
			t.Errorf("a worker without a handler was looked at %d times in nine hours", p.looks)
		}
	})
}

package recovery

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
)

// In a chain, a time-out ends the link, whatever requeue.on and the budgets say. Other causes are handled as without a chain. Attempts
// without progress are counted across links.
func TestDecideInAChain(t *testing.T) {
	link := func(job string) rundir.Event { return rundir.Event{Event: rundir.EventLink, Detail: "job " + job} }
	ends := func(jobs ...string) []rundir.Event {
		ledger := []rundir.Event{{Event: rundir.EventSubmit, Detail: "job 1"}, link("2"), link("3"), link("4")}
		for i, job := range jobs {
			ledger = append(ledger, rundir.Event{Event: rundir.EventBegin, Attempt: i + 1, Job: job, Time: noon},
				rundir.Event{Event: rundir.EventEnd, Attempt: i + 1, Cause: "timeout", Step: 7, Time: noon})
		}
		return ledger
	}
	none, usual := Policy{Chain: true}, DefaultPolicy()
	usual.Chain, usual.Max = true, map[Cause]int{Timeout: 0}
	limit := func(attempt int, step int64) rundir.Verdict {
		return rundir.Verdict{Attempt: attempt, Cause: "timeout", Exit: 143, Step: step, Time: noon}
	}
	for _, test := range []struct {
		name    string
		policy  Policy
		ledger  []rundir.Event
		verdict rundir.Verdict
		want    Action
	}{
		{"the limit", none, ends("1"), limit(1, 7), EndLink},
		{"the limit, without budget", usual, ends("1"), limit(1, 7), EndLink},
		{"saved at the warning", none, ends("1"), rundir.Verdict{Attempt: 1, Cause: "timeout", Exit: 75, Saved: true, Step: 7}, EndLink},
		{"a wish", none, ends("1"), rundir.Verdict{Attempt: 1, Cause: "stopped", Exit: 75, Saved: true, Step: 7}, Requeue},
		{"a crash", none, ends("1"), rundir.Verdict{Attempt: 1, Cause: "crash", Exit: 1, Step: 7}, GiveUp},
		{"a preemption", usual, ends("1"), rundir.Verdict{Attempt: 1, Cause: "preempt", Exit: 143, Step: 7}, Requeue},
		{"done", none, ends("1"), rundir.Verdict{Attempt: 1, Cause: "done"}, Finish},
		{"cancelled", none, append(ends("1"), rundir.Event{Event: rundir.EventCancel, Job: "1"}), limit(1, 7), GiveUp},
		{"no further, in each link", none, ends("1", "2", "3", "4"), limit(4, 7), GiveUp},
		{"further in the last", none, ends("1", "2", "3", "4"), limit(4, 8), EndLink},
		{"no further, but resumed", none, append(ends("1", "2", "3"), ends("5")[0], rundir.Event{Event: rundir.EventBegin, Attempt: 4,
			Job: "1"}), limit(4, 7), EndLink},
	} {
		if got := Decide(test.policy, test.ledger, test.verdict, false, 0); got.Action != test.want {
			t.Errorf("%s: %+v, want %s", test.name, got, test.want)
		}
	}
}

// The reason of a run that is given up because a budget is used up says that the error came twice.
func TestSameErrorTwiceIsSaid(t *testing.T) {
	crash := func(attempt int, text string) rundir.Verdict {
		return rundir.Verdict{Attempt: attempt, Cause: "crash", Exit: 1, Step: int64(attempt), Error: text, Time: noon}
	}
	begin := func(attempt int) rundir.Event {
		return rundir.Event{Event: rundir.EventBegin, Attempt: attempt, Job: "1", Time: noon}
	}
	requeues, restarts := Policy{On: []Cause{Crash}, Max: map[Cause]int{Crash: 0}}, Policy{MaxRestarts: 1}
	const same = "; the last two attempts ended with the same error"
	for name, test := range map[string]struct {
		first, last string
		resumed     bool
		twice       bool
	}{
		"the same":       {"KeyError: 'lr'", "KeyError: 'lr'", false, true},
		"another":        {"KeyError: 'x'", "KeyError: 'lr'", false, false},
		"no error":       {"", "", false, false},
		"resumed before": {"KeyError: 'lr'", "KeyError: 'lr'", true, false},
	} {
		ledger := []rundir.Event{begin(1), crash(1, test.first).Event()}
		if test.resumed {
			ledger = append(ledger, rundir.Event{Event: rundir.EventResume, Detail: "job 2"})
		}
		ledger = append(ledger, begin(2))
		for _, policy := range []Policy{requeues, restarts} {
			got := Decide(policy, ledger, crash(2, test.last), true, policy.MaxRestarts)
			if got.Action != GiveUp || !strings.Contains(got.Why, "is used up") || strings.HasSuffix(got.Why, same) != test.twice {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

func TestDecide(t *testing.T) {
	all := Policy{On: Causes(), MaxRestarts: 2}
	usual := DefaultPolicy()
	for _, test := range []struct {
		name     string
		policy   Policy
		story    *story
		verdict  rundir.Verdict
		room     bool
		restarts int
		want     Action
		says     string
		cause    Cause
	}{
		{"done", usual, new(story), ended(Done), true, 0, Finish, "done", ""},
		{"93", all, new(story), rundir.Verdict{Cause: "crash", Exit: 93}, true, 0, GiveUp, "93 forbids", ""},
		{"cancelled", all, new(story), rundir.Verdict{Cause: "cancelled", Exit: 143}, true, 0, GiveUp, "cancelled", ""},
		{"cancelled, and saved", all, new(story), savedFor(Cancelled, 5), true, 0, GiveUp, "cancelled", ""},
		{"saved of its own", Policy{}, new(story), savedFor(Saved, 5), true, 0, Requeue, "ask to be started again", Saved},
		{"saved before the limit", usual, new(story), savedFor(Timeout, 5), false, 0, Requeue,
			"time limit came, and the workers saved: requeue 1 of 20", Timeout},
		{"saved, and nobody asked for that cause", Policy{}, new(story), savedFor(Timeout, 5), false, 0, Requeue, "1 of 20", Timeout},
		{"saved, no more of it", Policy{Max: map[Cause]int{Timeout: 1}}, new(story).requeued(1, Timeout, 4), savedFor(Timeout, 9), false, 0,
			GiveUp, "requeue.max.timeout = 1 is used up", ""},
		{"crash, restarts left", Policy{MaxRestarts: 1}, new(story), ended(Crash), true, 0, Restart, "restart 1 of 1", ""},
		{"crash, no restart left", Policy{MaxRestarts: 1}, new(story), ended(Crash), true, 1, GiveUp,
			"launch.max_restarts = 1 is used up", ""},
		{"crash, no room", all, new(story), ended(Crash), false, 0, Requeue, "requeue 1 of 3", Crash},
		{"crash, never asked", usual, new(story), ended(Crash), true, 0, GiveUp,
			`requeue.on does not name "crash"; if the program is at fault, correct it first`, ""},
		{"crashes enough", Policy{On: []Cause{Crash}}, new(story).requeued(3, Crash, 9),
			rundir.Verdict{Cause: "crash", Exit: 137, Step: 99}, false, 0, GiveUp, "requeue.max.crash = 3", ""},
		{"saves do not count as crashes", Policy{On: []Cause{Crash}}, new(story).requeued(3, Saved, 9),
			rundir.Verdict{Cause: "crash", Exit: 1, Step: 99}, false, 0, Requeue, "1 of 3", Crash},
		{"memory", all, new(story), rundir.Verdict{Cause: "crash", Exit: 137, OOM: true}, false, 0, Requeue,
			"memory ran out: requeue 1 of 1", OOM},
		{"a lost node", usual, new(story), rundir.Verdict{Cause: "node", Exit: 1, Host: "n2"}, true, 0, Requeue,
			"a node was lost (n2): requeue 1 of 5", Node},
		{"a lost node, restart", Policy{MaxRestarts: 3}, new(story), rundir.Verdict{Cause: "node", Exit: 1}, true, 2,
			Restart, "restart 3 of 3", ""},
		{"preempted for the hundredth time", usual, new(story).requeued(99, Preempt, 0), ended(Preempt), true, 0, Requeue,
			"requeue 100", Preempt},
		{"no restart mends it", all, new(story),
			rundir.Verdict{Cause: "crash", Exit: 1, Host: "n1", Final: true, Error: "No module named 'x'", Advice: "install x"},
			true, 0, GiveUp, "a worker failed (n1), and no restart mends that: install x", ""},
		{"no restart mends it, and nobody asked for one", usual, new(story),
			rundir.Verdict{Cause: "crash", Exit: 1, Final: true, Error: "No module"}, true, 0, GiveUp,
			"no restart mends that: No module", ""},
		{"memory that is never there", all, new(story), rundir.Verdict{Cause: "crash", OOM: true, Exit: 1, Final: true, Advice: "buy some"},
			true, 0, GiveUp, "memory ran out, and no restart", ""},
		{"a node lacks what others had", all, new(story).lived(time.Hour, Crash, 7, "n2"),
			rundir.Verdict{Cause: "crash", Exit: 1, Final: true},
			true, 0, Restart, "restart 1 of", ""},
		{"a rank's wish counts more", all, new(story), rundir.Verdict{Cause: "crash", Exit: 75, Final: true}, true, 0, Requeue, "", Crash},
		{"so does a preemption", usual, new(story), rundir.Verdict{Cause: "preempt", Exit: 1, Final: true}, true, 0, Requeue, "", Preempt},
		{"a node of which a rank says so", usual, new(story),
			rundir.Verdict{Cause: "node", Exit: 1, FirstRank: 3, Host: "n2", Error: "ECC", Class: "infrastructure"}, false, 0,
			Requeue, "a node failed (n2): requeue 1 of 5", Node},
		{"a node that Slurm drains", usual, new(story), drainedOf("n2"), true, 0,
			Requeue, "Slurm drains n2, and the workers saved: requeue 1", Saved},
		{"drained, after as many failures of nodes as may be", usual, new(story).requeued(5, Node, 1), drainedOf("n2"), true, 0,
			Requeue, "and the workers saved: requeue 1", Saved},
		{"drained for the hundredth time", usual, new(story).requeued(99, Saved, 0), drainedOf("n2"), true, 0,
			Requeue, "requeue 100", Saved},
		{"drained, and no further", usual,
			new(story).lived(time.Hour, Crash, 9, "").lived(time.Hour, Saved, 7, "").lived(time.Hour, Saved, 8, ""),
			drainedOf("n2"), true, 0, GiveUp, "no progress: 3 attempts", ""},
		{"timeout with room", Policy{MaxRestarts: 9}, new(story), ended(Timeout), true, 0, GiveUp, "the time limit came", ""},
		{"never started", all, new(story), rundir.Verdict{Cause: "start", Exit: 127}, true, 0, GiveUp, "were not started", ""},
		{"nobody knows", all, new(story), ended(Unknown), true, 0, GiveUp, "no agent reported", ""},
		{"a cause of a later version", all, new(story), rundir.Verdict{Cause: "fire", Exit: 1}, true, 0, GiveUp, "fire", ""},
		{"a refused requeue was none", Policy{On: []Cause{Node}, Max: map[Cause]int{Node: 1}},
			new(story).requeued(1, Node, 3).then(rundir.EventRefused, Node).then(rundir.EventResume, ""),
			rundir.Verdict{Cause: "node", Exit: 1, Step: 9}, false, 0, Requeue, "1 of 1", Node},
		{"budgets outlive a resume", Policy{On: []Cause{Node}, Max: map[Cause]int{Node: 1}},
			new(story).requeued(1, Node, 3).then(rundir.EventResume, ""), rundir.Verdict{Cause: "node", Exit: 1, Step: 9}, false, 0, GiveUp,
			"requeue.max.node = 1", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			history, v := test.story.last(test.verdict)
			got := Decide(test.policy, history, v, test.room, test.restarts)
			if got.Action != test.want || !strings.Contains(got.Why, test.says) || got.Cause != test.cause {
				t.Errorf("got %+v, want %s (%q, cause %q)", got, test.want, test.says, test.cause)
			}
			// agents decide before the end is in the ledger, and "ddpbatch attempt end" decides after that
			if again := Decide(test.policy, append(history, v.Event()), v, test.room, test.restarts); again.Action != got.Action ||
				again.Why != got.Why {
				t.Errorf("with the end in the ledger: %+v, without: %+v", again, got)
			}
		})
	}
}

func TestRunWithoutProgressEnds(t *testing.T) {
	p := Policy{On: Causes(), MaxRestarts: 100, Max: map[Cause]int{Crash: 100}}
	crash := func(step int64) rundir.Verdict { return rundir.Verdict{Cause: "crash", Exit: 1, Step: step} }
	steps := func(causes string, steps ...int64) *story {
		s := new(story)
		for i, c := range strings.Fields(causes) {
			s.lived(time.Hour, Cause(c), steps[i], "")
		}
		return s
	}
	short := func(n int, c Cause) *story {
		s := new(story)
		for range n {
			s.lived(time.Minute, c, 0, "")
		}
		return s
	}
	for _, test := range []struct {
		name    string
		story   *story
		verdict rundir.Verdict
		room    bool
		want    Action
	}{
		{"the first one came to its step", steps("crash crash", 7, 7), crash(7), false, Requeue},
		{"three that came no further", steps("crash crash crash", 7, 7, 7), crash(7), false, GiveUp},
		{"three that came no further, with restarts left", steps("crash crash crash", 7, 7, 7), crash(7), true, GiveUp},
		{"three that never began a step, after one that did", steps("crash crash crash", 7, 0, 0), crash(0), false, GiveUp},
		{"short of the step does not count as progress either", steps("crash node node", 7, 5, 6), crash(6), false, GiveUp},
		{"beyond it is", steps("crash crash crash", 7, 7, 7), crash(8), false, Requeue},
		{"and counts from there", steps("crash crash crash crash crash", 7, 7, 7, 8, 8), crash(8), false, Requeue},
		{"a preemption tells nothing", steps("crash crash preempt crash", 7, 7, 7, 7), crash(7), false, GiveUp},
		{"preemptions are not counted", steps("preempt preempt preempt preempt", 7, 7, 7, 7),
			rundir.Verdict{Cause: "preempt", Exit: 143, Step: 7}, false, Requeue},
		{"a save that got on", steps("crash crash crash stopped", 7, 7, 7, 8), crash(8), false, Requeue},
		{"saves that did not", steps("stopped stopped", 7, 7), savedFor(Saved, 7), false, Requeue},
		{"saves that did not, three", steps("stopped stopped stopped", 7, 7, 7), savedFor(Saved, 7), false, GiveUp},
		{"saves that get on", steps("stopped stopped stopped", 7, 8, 9), savedFor(Saved, 10), false, Requeue},
		{"a person's hand", steps("crash crash crash", 7, 7, 7).then(rundir.EventResume, ""), crash(7), false, Requeue},
		{"another job, which a person submitted", steps("crash crash crash", 7, 7, 7).inJob("12_3").lastIn("13_3"),
			crash(7), false, Requeue},
		{"the same job, which Slurm started again", steps("crash crash crash", 7, 7, 7).inJob("12_3").lastIn("12_3"),
			crash(7), false, GiveUp},
		{"no steps, long lives", steps("crash crash crash crash", 0, 0, 0, 0), crash(0), false, Requeue},
		{"no steps, short lives", short(2, Crash).lived(time.Minute, Crash, 0, ""), crash(0), false, Requeue}, // the last one lived an hour
	} {
		t.Run(test.name, func(t *testing.T) {
			history, v := test.story.last(test.verdict)
			if got := Decide(p, history, v, test.room, 0); got.Action != test.want || got.Action == GiveUp &&
				!strings.Contains(got.Why, "no progress") {
				t.Errorf("got %+v, want %s", got, test.want)
			}
		})
	}
	history, v := short(2, Crash).last(rundir.Verdict{Cause: "crash", Exit: 1})
	v.Time = v.Time.Add(-59 * time.Minute)
	if got := Decide(p, history, v, false, 0); got.Action != GiveUp || !strings.Contains(got.Why, "first 5m") {
		t.Errorf("three short lives: %+v", got)
	}
	if got := Decide(p, history, v, true, 0); got.Action != Restart { // MaxRestarts bounds these, as with torchrun
		t.Errorf("three short lives, with room for a restart: %+v", got)
	}
	if got := Decide(Policy{On: Causes(), NoProgress: 4}, history, v, false, 0); got.Action != Requeue {
		t.Errorf("three short lives, where four are borne: %+v", got)
	}
}

// A traceback that ends two attempts before their first step ends the run, whatever happens between the two, unless an attempt got further
// or a person started the run again.
func TestSameTracebackEndsTheRun(t *testing.T) {
	const a, b = "00000000000000aa", "00000000000000bb"
	crashed := func(trace string, step int64, lived time.Duration) func(*story) {
		return func(s *story) {
			s.lived(lived, Crash, step, "n1")
			s.events[len(s.events)-1].Trace = trace
		}
	}
	early := func(trace string) func(*story) { return crashed(trace, 0, time.Minute) }
	preempted := func(s *story) { s.lived(time.Minute, Preempt, 0, "").then(rundir.EventRequeue, Preempt) }
	resumed := func(s *story) { s.then(rundir.EventResume, "") }
	for name, test := range map[string]struct {
		before []func(*story)
		trace  string
		step   int64
		late   bool // the last attempt lived for an hour
		ends   bool
	}{
		"once":                          {nil, a, 0, false, false},
		"twice":                         {[]func(*story){early(a)}, a, 0, false, true},
		"another one":                   {[]func(*story){early(b)}, a, 0, false, false},
		"none, twice":                   {[]func(*story){early("")}, "", 0, false, false},
		"with a preemption between":     {[]func(*story){early(a), preempted}, a, 0, false, true},
		"with another one between":      {[]func(*story){early(a), early(b)}, a, 0, false, true},
		"after steps":                   {[]func(*story){crashed(a, 7, time.Minute)}, a, 9, false, false},
		"after steps, then before":      {[]func(*story){crashed(a, 7, time.Minute)}, a, 0, false, false},
		"before, in a run with steps":   {[]func(*story){crashed("", 7, time.Hour), crashed(a, 0, time.Hour)}, a, 0, true, true},
		"with progress between":         {[]func(*story){early(a), crashed("", 3, time.Hour)}, a, 0, false, false},
		"late, where nobody counts":     {[]func(*story){crashed(a, 0, time.Hour)}, a, 0, true, false},
		"resumed between":               {[]func(*story){early(a), resumed}, a, 0, false, false},
		"resumed, and twice after that": {[]func(*story){resumed, early(a)}, a, 0, false, true},
	} {
		s := new(story)
		for _, before := range test.before {
			before(s)
		}
		history, v := s.last(rundir.Verdict{Cause: string(Crash), Exit: 1, FirstRank: 0, Step: test.step, Trace: test.trace})
		if !test.late {
			v.Time = v.Time.Add(-59 * time.Minute)
		}
		for _, room := range []bool{true, false} {
			got := Decide(Policy{On: Causes(), MaxRestarts: 9, NoProgress: 9}, history, v, room, 0)
			if ends := got.Action == GiveUp; ends != test.ends || ends && !strings.Contains(got.Why, "same traceback") {
				t.Errorf("%s, room %v: %+v", name, room, got)
			}
		}
	}
}

func TestFailedNodesAreExcluded(t *testing.T) {
	p := Policy{On: Causes()}
	node := rundir.Verdict{Cause: "node", Exit: 1, Step: 99, Host: "n3", Nodes: []string{"n9", "n3"}}
	for _, test := range []struct {
		name  string
		story *story
		v     rundir.Verdict
		want  []string
	}{
		{"the present one's", new(story), node, []string{"n3", "n9"}},
		{"those before", new(story).lived(time.Hour, Hang, 1, "n1").lived(time.Hour, Node, 2, "n3"), node, []string{"n1", "n3", "n9"}},
		{"one that failed a check", new(story), rundir.Verdict{Cause: "node", Exit: 1, Step: 9, Host: "n2", Nodes: []string{"n2"},
			Unfit: []string{"n2"}}, []string{"n2"}},
		{"one that was left out", new(story), rundir.Verdict{Cause: "timeout", Exit: 1, Step: 9, Unfit: []string{"n4", "n2"}},
			[]string{"n2", "n4"}},
		{"one that was left out before", new(story).leftOut("n2"), rundir.Verdict{Cause: "hang", Exit: 1, Step: 9, Host: "n1"},
			[]string{"n1", "n2"}},
		{"one that Slurm drains", new(story), drainedOf("n2"), []string{"n2"}},
		{"one that it drained before", new(story).drainedBefore("n1"), drainedOf("n2"), []string{"n2"}},
		{"one that it drained before, and that failed", new(story).drainedBefore("n1").lived(time.Hour, Node, 2, "n1"), drainedOf("n2"),
			[]string{"n1", "n2"}},
		{"a crash blames nobody", new(story).lived(time.Hour, Crash, 1, "n1"), rundir.Verdict{Cause: "hang", Exit: 1, Step: 9}, nil},
		{"crashes on one node do", new(story).lived(time.Hour, Crash, 1, "n1"),
			rundir.Verdict{Cause: "crash", Exit: 1, Host: "n1", Step: 9}, []string{"n1"}},
		{"crashes on several do not", new(story).lived(time.Hour, Crash, 1, "n1").lived(time.Hour, Crash, 2, "n1"),
			rundir.Verdict{Cause: "crash", Exit: 1, Host: "n2", Step: 9}, nil},
		{"nor does memory", new(story).lived(time.Hour, OOM, 1, "n1"), rundir.Verdict{Cause: "oom", Exit: 1, Host: "n1", Step: 9}, nil},
		{"a job that a person submitted forgives", new(story).lived(time.Hour, Node, 1, "n1").inJob("12").lastIn("13"),
			rundir.Verdict{Cause: "timeout", Exit: 1, Step: 9}, nil},
		{"a resume forgives", new(story).lived(time.Hour, Node, 1, "n1").then(rundir.EventResume, ""),
			rundir.Verdict{Cause: "timeout", Exit: 1, Step: 9}, nil},
	} {
		history, v := test.story.last(test.v)
		if got := Decide(p, history, v, false, 0); got.Action != Requeue || !slices.Equal(got.Exclude, test.want) {
			t.Errorf("%s: %+v, want %q", test.name, got, test.want)
		}
	}
}

// A job that uses most of a short time limit before it saves makes progress. One that saves soon after its start does not.
func TestMinLifetimeFollowsAShortLimit(t *testing.T) {
	for _, test := range []struct {
		name  string
		limit time.Duration
		lived time.Duration
		exit  int
		saved bool
		want  Action
	}{
		{"most of a short limit", 4 * time.Minute, 3 * time.Minute, 75, true, Requeue},
		{"little of a short limit", 4 * time.Minute, time.Minute, 75, true, GiveUp},
		{"little of a long limit", time.Hour, 4 * time.Minute, 75, true, GiveUp},
		{"enough of a long limit", time.Hour, 5 * time.Minute, 75, true, Requeue},
		{"no limit", 0, 4 * time.Minute, 75, true, GiveUp},
		{"nothing saved", 4 * time.Minute, 3 * time.Minute, 143, false, GiveUp},
		{"killed while it saved", 4 * time.Minute, 3 * time.Minute, 75, false, GiveUp},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := DefaultPolicy()
			p.Limit = test.limit
			var history []rundir.Event
			now := noon
			for attempt := 1; attempt <= 6; attempt++ {
				history = append(history, rundir.Event{Time: now, Event: rundir.EventBegin, Attempt: attempt})
				now = now.Add(test.lived)
				v := rundir.Verdict{Attempt: attempt, Cause: string(Timeout), Exit: test.exit, Saved: test.saved, Time: now}
				d := Decide(p, history, v, false, 0)
				if d.Action == GiveUp {
					if test.want != GiveUp || attempt != 3 {
						t.Errorf("attempt %d: %+v", attempt, d)
					}
					return
				}
				history = append(history, v.Event(),
					rundir.Event{Time: now, Event: rundir.EventRequeue, Attempt: attempt, Cause: string(d.Cause)})
			}
			if test.want == GiveUp {
				t.Error("goes on for ever")
			}
		})
	}
}

// Exit code 75 asks for a requeue. The reason says that the workers saved, and later decisions count a save, only if all workers saved.
func TestRequeueIsCalledSavedOnlyIfAllSaved(t *testing.T) {
	unstarted := rundir.Verdict{Cause: string(Unknown), FirstRank: -1, Exit: 75, Unstarted: true}
	killed := rundir.Verdict{Cause: string(Saved), Exit: 75, Message: "rank 3 was killed before it had ended"}
	running := Evidence{Asked: true, State: "RUNNING", Now: noon, Signals: []string{"USR1"}}
	limit := Evidence{Asked: true, State: "COMPLETING", Reason: "TimeLimit", Now: noon, Signals: []string{"USR1", "TERM"}}
	for _, test := range []struct {
		name     string
		verdict  rundir.Verdict
		evidence Evidence
		why      string
	}{
		{"warned before the workers were started", unstarted, running,
			"the job was told to end before its workers were started: requeue 1"},
		{"the limit came before they were", unstarted, limit, "the time limit came: requeue 1 of 20 for this cause"},
		{"srun's code, and no agent lived", rundir.Verdict{Cause: string(Unknown), Exit: 75}, running,
			"no agent reported how the attempt ended: requeue 1"},
		{"one killed at its save", killed, running, "workers ask to be started again, and not all of them saved: requeue 1"},
		{"one killed at its save, near the limit", killed, limit, "the time limit came: requeue 1 of 20 for this cause"},
		{"all saved", savedFor(Saved, 5), running, "the workers saved and ask to be started again: requeue 1"},
		{"all saved, near the limit", savedFor(Saved, 5), limit,
			"the time limit came, and the workers saved: requeue 1 of 20 for this cause"},
		{"nobody asks", rundir.Verdict{Cause: string(Unknown), Exit: 143, Unstarted: true}, running,
			"the job was told to end before its workers were started"},
	} {
		t.Run(test.name, func(t *testing.T) {
			history, v := new(story).last(test.verdict)
			v = Refine(v, test.evidence)
			got := Decide(DefaultPolicy(), history, v, false, 0)
			if want := map[bool]Action{true: Requeue, false: GiveUp}[v.Exit == 75]; got.Action != want || got.Why != test.why {
				t.Errorf("got %+v, want %s: %q", got, want, test.why)
			}
			event := v.Event()
			if later := endOf(event, noon); event.Saved != v.Saved || later.saved != v.Saved {
				t.Errorf("saved: %t, in the ledger %t, and later %t", v.Saved, event.Saved, later.saved)
			}
		})
	}
}

func TestWasCancelled(t *testing.T) {
	begin := func(job string, start int) rundir.Event {
		return rundir.Event{Event: rundir.EventBegin, Job: job, Start: start}
	}
	event := func(name string) rundir.Event { return rundir.Event{Event: name} }
	alone := func(element int) rundir.Event { return rundir.Event{Event: rundir.EventResume, Element: &element} }
	recorded := func(job string) rundir.Event { return rundir.Event{Event: rundir.EventResume, Detail: "job " + job} }
	cancel := func(job string) rundir.Event { return rundir.Event{Event: rundir.EventCancel, Job: job} }
	for _, test := range []struct {
		name   string
		events []rundir.Event
		want   bool
	}{
		{"nobody did", []rundir.Event{begin("12", 0)}, false},
		{"this job", []rundir.Event{begin("12", 0), cancel("12")}, true},
		{"before its first beginning", []rundir.Event{event(rundir.EventSubmit), cancel("12")}, true},
		{"before its first beginning, which came all the same", []rundir.Event{event(rundir.EventSubmit), cancel("12"), begin("12", 0)},
			true},
		{"while it was in the queue again", []rundir.Event{begin("12", 0), event(rundir.EventRequeue), cancel("12"), begin("12", 1)}, true},
		{"while its agents started again", []rundir.Event{begin("12", 0), cancel("12"), event(rundir.EventRestart), begin("12", 0)}, true},
		{"the job before", []rundir.Event{begin("12", 0), cancel("12"), begin("13", 0)}, false},
		{"the job before, when this one ran", []rundir.Event{begin("12", 0), begin("13", 0), cancel("12")}, false},
		{"and went on", []rundir.Event{begin("12", 0), cancel("12"), event(rundir.EventResume)}, false},
		{"before it was recorded", []rundir.Event{event(rundir.EventSubmitting), cancel("12"), recorded("12"), begin("12", 0)}, true},
		{"an element, before the array was recorded",
			[]rundir.Event{event(rundir.EventSubmitting), cancel("12_3"), recorded("12"), begin("12_3", 0)}, true},
		{"and another job was submitted", []rundir.Event{cancel("12"), recorded("13"), begin("12", 0)}, false},
		{"and a rebuilt cluster gave that number again",
			[]rundir.Event{cancel("12"), event(rundir.EventSubmitting), recorded("12"), begin("12", 0)}, false},
		{"the array that it is of", []rundir.Event{begin("12_3", 0), cancel("12")}, true},
		{"another array", []rundir.Event{begin("12_3", 0), cancel("1")}, false},
		{"and it went on alone", []rundir.Event{cancel("12"), alone(3), begin("12_3", 0)}, false},
		{"and another element went on alone", []rundir.Event{cancel("12"), alone(30), begin("12_3", 0)}, true},
		{"and one element went on alone", []rundir.Event{cancel("12"), alone(3)}, true},
		{"another element", []rundir.Event{begin("12_3", 0), cancel("12_30")}, false},
	} {
		if got := WasCancelled(test.events); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
		v := rundir.Verdict{Cause: string(Preempt), Exit: 75, Saved: true, Attempt: 9}
		if d := Decide(DefaultPolicy(), test.events, v, false, 0); (d.Action == GiveUp) != test.want {
			t.Errorf("%s: %+v", test.name, d)
		}
	}
}

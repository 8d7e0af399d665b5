package attempt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

func TestAttemptEndDecidesByTheVerdict(t *testing.T) {
	crash := rundir.Verdict{Cause: "crash", Exit: 7, Host: "n2", Message: "rank 1 crashed"}
	lost := rundir.Verdict{Cause: "node", Exit: 1, Host: "n2", Nodes: []string{"n2"}, Message: "lost"}
	stopped := rundir.Verdict{Cause: "cancelled", Exit: 143, Message: "told"}
	drained := rundir.Verdict{Cause: "node", Exit: 75, Saved: true, Drain: true, Host: "n2", Nodes: []string{"n2"},
		Message: "Slurm drains n2: saved"}
	for _, test := range []struct {
		name    string
		requeue string
		verdict *rundir.Verdict
		code    int
		signals string
		says    map[string]string
		cause   string
		want    []string // events after the attempt's beginning
		calls   []string
		exit    int
	}{
		{"done", "", &rundir.Verdict{Cause: "done"}, 0, "", nil, "done", nil, nil, 0},
		{"nobody left a verdict, and all is well", "", nil, 0, "", nil, "done", []string{"end"}, nil, 0},
		{"crash", "", &crash, 1, "", map[string]string{"scontrol.out": fmt.Sprintf(fakeslurm.Facts, "RUNNING Reason=None", 0, "(null)")},
			"crash", []string{"end", "give-up"}, nil, 7},
		{"preempted", "", &stopped, 143, "",
			map[string]string{"scontrol.out": fmt.Sprintf(fakeslurm.Facts, "RUNNING Reason=None PreemptTime=2026-11-21T00:55:18", 0,
				"(null)")},
			"preempt", []string{"end", "requeue"}, []string{"scontrol requeue 12"}, 75},
		{"requeued by Slurm", "", &stopped, 143, "TERM",
			map[string]string{"scontrol.out": fmt.Sprintf(fakeslurm.Facts, "PENDING Reason=BeginTime", 1, "(null)")},
			"preempt", []string{"end", "requeue"}, nil, 75},
		{"requeued by Slurm, and not to be", "max.node = 0", &lost, 1, "TERM",
			map[string]string{"scontrol.out": fmt.Sprintf(fakeslurm.Facts, "PENDING Reason=BeginTime", 1, "(null)")},
			"node", []string{"end", "give-up"}, []string{"scancel 12"}, 1},
		{"cancelled", "", &stopped, 143, "TERM",
			map[string]string{"scontrol.out": fmt.Sprintf(fakeslurm.Facts, "COMPLETING Reason=None", 0, "(null)")}, "cancelled",
			[]string{"end", "give-up"}, nil, 143},
		{"cancelled after a node was lost", "", &lost, 1, "",
			map[string]string{"scontrol.out": fmt.Sprintf(fakeslurm.Facts, "COMPLETING Reason=None", 0, "(null)")}, "node",
			[]string{"end", "give-up"}, nil, 1},
		{"time limit", "", &stopped, 143, "TERM",
			map[string]string{"scontrol.out": fmt.Sprintf(fakeslurm.Facts, "COMPLETING Reason=TimeLimit", 0, "(null)")},
			"timeout", []string{"end", "requeue"}, []string{"scontrol requeue 12"}, 75},
		{"a node", "", &lost, 1, "", map[string]string{"scontrol.out": fmt.Sprintf(fakeslurm.Facts, "RUNNING Reason=None", 0, "n9")},
			"node", []string{"end", "requeue"},
			[]string{"sbatch --test-only --exclude=n[2,9] SCRIPT", "scontrol requeue 12", "scontrol update JobId=12 ExcNodeList=n[2,9]"},
			75},
		{"a node that the job needs", "", &lost, 1, "",
			map[string]string{"scontrol.out": fmt.Sprintf(fakeslurm.Facts, "RUNNING Reason=None", 0, "(null)"),
				"sbatch.err": "allocation failure: Requested node configuration is not available\n"},
			"node", []string{"end", "requeue"}, []string{"sbatch --test-only --exclude=n2 SCRIPT", "scontrol requeue 12"}, 75},
		{"a node, Slurm silent", "", &lost, 1, "TERM", map[string]string{"scontrol.err": "Unable to contact slurm controller\n"}, "node",
			[]string{"end", "requeue"}, []string{"scontrol requeue 12"}, 75},
		{"a node that is drained", "", &drained, 75, "",
			map[string]string{"scontrol.out": fmt.Sprintf(fakeslurm.Facts, "RUNNING Reason=None", 0, "n9")}, "node",
			[]string{"end", "requeue"},
			[]string{"sbatch --test-only --exclude=n[2,9] SCRIPT", "scontrol requeue 12", "scontrol update JobId=12 ExcNodeList=n[2,9]"},
			75},
		{"a node that is drained, and a cancelled job", "", &drained, 75, "TERM",
			map[string]string{"scontrol.out": fmt.Sprintf(fakeslurm.Facts, "COMPLETING Reason=None", 0, "(null)")},
			"cancelled", []string{"end", "give-up"}, nil, 93},
		{"refused", "", &rundir.Verdict{Cause: "stopped", Exit: 75}, 75, "",
			map[string]string{"scontrol.out": fmt.Sprintf(fakeslurm.Facts, "RUNNING Reason=None", 0, "(null)"),
				"requeue.err": "Requested operation is presently disabled for job 12\n"},
			"stopped", []string{"end", "requeue", "refused"}, []string{"scontrol requeue 12"}, 75},
		{"93", "on = [\"crash\"]", &rundir.Verdict{Cause: "crash", Exit: 93}, 93, "", nil, "crash", []string{"end", "give-up"}, nil, 93},
		{"nobody lived", "", nil, 0, "TERM", nil, "unknown", []string{"end", "give-up"}, nil, 1},
		{"nobody lived, a node is down", "", nil, 137, "",
			map[string]string{"scontrol.out": fmt.Sprintf(fakeslurm.Facts, "RUNNING Reason=None", 0, "(null)"),
				"sinfo.out": "n1\x1fidle\nn2\x1fdown*\n"},
			"node", []string{"end", "end", "requeue"},
			[]string{"sbatch --test-only --exclude=n2 SCRIPT", "scontrol requeue 12", "scontrol update JobId=12 ExcNodeList=n2"}, 75},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, run := newPretendSlurm(t), fakeslurm.Run(t, test.requeue)
			e, _, errs := p.env(0, 1)
			for name, text := range test.says {
				if p.Says(name, text); name == "scontrol.err" {
					e.Environ = append(e.Environ, fakeslurm.Impatient)
				}
			}
			if err := e.begin(t, run); err != nil {
				t.Fatal(err)
			}
			if test.verdict != nil {
				v := *test.verdict
				v.Attempt, v.JobID, v.Time = 1, "12", e.Now()
				if err := run.WriteVerdict(v); err != nil {
					t.Fatal(err)
				}
			}
			err := e.end(t, run, SrunEnd{Code: test.code, Signals: strings.Fields(test.signals)})
			if exitCode(err) != test.exit {
				t.Errorf("exit code %d (%v), want %d; said %s", exitCode(err), err, test.exit, errs)
			}
			if v, err := run.Verdict(1); err != nil || v.Cause != test.cause || v.Requeue != slices.Contains(test.want, "requeue") {
				t.Errorf("verdict %+v, %v; want the cause %s", v, err, test.cause)
			}
			history, err := run.Ledger()
			var events []string
			for _, event := range history {
				events = append(events, event.Event)
			}
			if err != nil || !slices.Equal(events, append([]string{"begin"}, test.want...)) {
				t.Errorf("ledger %q, %v; want begin and %q", events, err, test.want)
			}
			calls := p.Calls()
			for i := range calls {
				calls[i] = strings.ReplaceAll(calls[i], run.ScriptPath(), "SCRIPT")
			}
			if !slices.Equal(calls, test.calls) {
				t.Errorf("ran %q, want %q", calls, test.calls)
			}
		})
	}
}

// The log says how to continue a run that is given up, and what to do if it needs more time.
func TestAttemptEndSaysHowToContinue(t *testing.T) {
	// The path of the run is between the two parts.
	const correct = "; to continue: correct it, then ddpbatch resume "
	const after = " (with --set KEY=VALUE for what job.toml says), or submit anew\n"
	for name, test := range map[string]struct {
		v             rundir.Verdict
		facts         string
		before, after string
	}{
		"a fault of the job": {rundir.Verdict{Cause: "crash", Exit: 1, Final: true, Advice: "install x"}, "RUNNING Reason=None", correct,
			after},
		"a bug":   {rundir.Verdict{Cause: "crash", Exit: 1, Trace: "00ff"}, "RUNNING Reason=None", correct, after},
		"a crash": {rundir.Verdict{Cause: "crash", Exit: 1}, "RUNNING Reason=None", "; to continue: ddpbatch resume ", "\n"},
		"the time limit": {rundir.Verdict{Cause: "cancelled", Exit: 143}, "COMPLETING Reason=TimeLimit",
			"ddpbatch: if the job needs more time: ddpbatch resume ", " --set slurm.time=TIME"},
	} {
		p := newPretendSlurm(t)
		run, e := p.begun(`on = ["preempt"]`, test.v)
		p.Says("scontrol.out", fmt.Sprintf(fakeslurm.Facts, test.facts, 0, "(null)"))
		err := e.end(t, run, SrunEnd{Code: test.v.Exit})
		if !strings.Contains(e.Err.String(), test.before+run.Path()+test.after) {
			t.Errorf("%s: %v, and the log\n%s", name, err, e.Err)
		}
	}
}

// Slurm 25.11 reports a failed node while it ends the job, and by then it has put the job into the queue again (Restarts=1). sinfo may not
// show the failure, because the node may be up again.
func TestAttemptEndKnowsAFailedNode(t *testing.T) {
	facts, err := os.ReadFile(filepath.Join("..", "..", "slurm", "testdata", "25.11", "nodefail.txt"))
	if err != nil {
		t.Fatal(err)
	}
	p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
	p.Says("scontrol.out", strings.Replace(string(facts), "JobId=37 ", "JobId=12 ", 1))
	p.Says("sinfo.out", "n1\x1fidle\nn2\x1fidle\n")
	e, _, errs := p.env(0, 1)
	if err := e.begin(t, run); err != nil {
		t.Fatal(err)
	}
	err = e.end(t, run, SrunEnd{Code: 143, Signals: []string{"TERM"}})
	if exitCode(err) != exit.Requeue {
		t.Errorf("exit code %d (%v), want 75; said %s", exitCode(err), err, errs)
	}
	if v, err := run.Verdict(1); err != nil || v.Cause != "node" || !slices.Equal(v.Nodes, []string{"n2"}) || !v.Requeue {
		t.Errorf("verdict %+v, %v; want the cause node, of n2", v, err)
	}
	if calls := p.Calls(); slices.Contains(calls, "scontrol requeue 12") || slices.Contains(calls, "scancel 12") {
		t.Errorf("ran %q of a job that Slurm starts again by itself", calls)
	}
}

// If the setup fails, the setup is the cause of the attempt's end, whatever requeue.on names. The verdict has the setup's message, without
// what may be secret in it.
func TestSetupFailureIsTheCause(t *testing.T) {
	p, run := newPretendSlurm(t), fakeslurm.Run(t, `on = ["crash", "node"]`)
	p.Says("scontrol.out", fmt.Sprintf(fakeslurm.Facts, "RUNNING Reason=None", 0, "(null)"))
	e, _, errs := p.env(0, 1)
	if err := errors.Join(run.SetJobID("12"), e.begin(t, run)); err != nil {
		t.Fatal(err)
	}
	err := e.end(t, run, SrunEnd{Code: 1, Failure: "setup.script: exit code 2 from: MY_TOKEN=s3cret ls /x"})
	if exitCode(err) != exit.Failed {
		t.Errorf("exit code %d (%v), want 1", exitCode(err), err)
	}
	const message = "setup.script: exit code 2 from: MY_TOKEN=*** ls /x"
	if v, err := run.Verdict(1); err != nil || v.Cause != "start" || v.Message != message || v.Exit != 1 || v.FirstRank != -1 || v.Requeue {
		t.Errorf("verdict %+v, %v", v, err)
	}
	if said := errs.String(); !strings.Contains(said, message) || strings.Contains(said, "s3cret") {
		t.Errorf("said %s", said)
	}
}

// TestAttemptEndReadsSlurm25_11 uses what Slurm 25.11.7 reported at the moment of TERM (slurm/testdata/25.11): the state is only
// COMPLETING, and the cause is in other fields. Workers that saved at that TERM ask to be started again, whatever ends the job.
func TestAttemptEndReadsSlurm25_11(t *testing.T) {
	stopped := rundir.Verdict{Cause: "cancelled", Exit: 143, Signal: 15, Host: "n1", Message: "told"}
	saved := rundir.Verdict{Cause: "cancelled", Exit: 75, Signal: 15, Host: "n1", Saved: true, Message: "told"}
	for file, test := range map[string]struct {
		cause    string
		verdicts []rundir.Verdict
		want     []string
		calls    []string
	}{
		"cancel":  {"cancelled", []rundir.Verdict{stopped, saved}, []string{"end", "give-up"}, nil},
		"timeout": {"timeout", []rundir.Verdict{stopped, saved}, []string{"end", "requeue"}, []string{"scontrol requeue 12"}},
		"nodefail": {"node", []rundir.Verdict{stopped}, []string{"end", "requeue"},
			[]string{"sbatch --test-only --exclude=n2 SCRIPT", "scontrol update JobId=12 ExcNodeList=n2"}},
		"preempt": {"preempt", []rundir.Verdict{stopped, saved}, []string{"end", "requeue"}, nil},
	} {
		for _, v := range test.verdicts {
			t.Run(fmt.Sprintf("%s, exit code %d", file, v.Exit), func(t *testing.T) {
				line, err := os.ReadFile(filepath.Join("..", "..", "slurm", "testdata", "25.11", file+".txt"))
				if err != nil {
					t.Fatal(err)
				}
				p := newPretendSlurm(t)
				run, e := p.begun("", v)
				_, rest, _ := strings.Cut(string(line), " ")
				p.Says("scontrol.out", "JobId=12 "+rest)
				// TestAttemptEndDecidesByTheVerdict checks the exit codes
				_ = e.end(t, run, SrunEnd{Code: v.Exit, Signals: []string{"TERM"}})
				if got, err := run.Verdict(1); err != nil || got.Cause != test.cause {
					t.Errorf("verdict %+v, %v; want the cause %s", got, err, test.cause)
				}
				if got := fakeslurm.Events(t, run); !slices.Equal(got[len(got)-len(test.want):], test.want) {
					t.Errorf("ledger %q, want %q at its end", got, test.want)
				}
				calls := p.Calls()
				for i, call := range calls {
					calls[i] = strings.ReplaceAll(call, run.ScriptPath(), "SCRIPT")
				}
				if !slices.Equal(calls, test.calls) {
					t.Errorf("calls %q, want %q", calls, test.calls)
				}
			})
		}
	}
}

// Agents that restart their workers claim further attempts. The newest attempt of this start of the job counts. An attempt of another start
// makes this script a zombie, which changes nothing.
func TestAttemptEndFollowsTheNewestAttempt(t *testing.T) {
	for _, test := range []struct {
		name  string
		event rundir.Event
		exit  int
	}{
		{"a restart in the job", rundir.Event{Job: "12"}, 5},
		{"a later start of the job", rundir.Event{Job: "12", Start: 1}, exit.Never},
		{"another job", rundir.Event{Job: "13"}, exit.Never},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
			e, _, _ := p.env(0, 1)
			if err := e.begin(t, run); err != nil {
				t.Fatal(err)
			}
			n, err := run.ClaimAttempt()
			test.event.Event, test.event.Attempt = rundir.EventBegin, n
			if err := errors.Join(err, run.Append(test.event),
				run.WriteVerdict(rundir.Verdict{Attempt: n, Cause: "crash", Exit: 5})); err != nil {
				t.Fatal(err)
			}
			before, err := run.Ledger()
			if err != nil {
				t.Fatal(err)
			}
			err = e.end(t, run, SrunEnd{Code: 1})
			after, ledgerErr := run.Ledger()
			if exitCode(err) != test.exit || ledgerErr != nil || (len(after) == len(before)) != (test.exit == exit.Never) {
				t.Errorf("exit code %d (%v), want %d; ledger %+v", exitCode(err), err, test.exit, after)
			}
			if calls := p.Calls(); len(calls) > 0 {
				t.Errorf("ran %q", calls)
			}
		})
	}
}

// Slurm restarts a job whose batch script died with its node. Such starts count, and a limit ends them.
func TestAttemptBeginCountsALostStart(t *testing.T) {
	p, run := newPretendSlurm(t), fakeslurm.Run(t, "max.node = 2\nno_progress = 9")
	for start := range 4 {
		e, out, _ := p.env(start, 0)
		err := e.begin(t, run)
		if start < 3 && (err != nil || !strings.Contains(out.String(), fmt.Sprintf("DDPBATCH_ATTEMPT=%d\n", start+1))) {
			t.Fatalf("start %d: %v, %s", start, err, out)
		}
		if start == 3 && (exitCode(err) != exit.Never || !strings.Contains(err.Error(), "requeue.max.node = 2")) {
			t.Errorf("start %d: %v, %s", start, err, out)
		}
	}
	for attempt := 1; attempt <= 3; attempt++ {
		if v, err := run.Verdict(attempt); err != nil || v.Cause != "node" {
			t.Errorf("verdict %d: %+v, %v", attempt, v, err)
		}
	}
	// a person may requeue a run that was given up
	e, _, _ := p.env(4, 0)
	if err := e.begin(t, run); err != nil {
		t.Fatal(err)
	}
	history, err := run.Ledger()
	if err != nil || history[len(history)-2].Event != rundir.EventResume {
		t.Errorf("ledger %+v, %v", history, err)
	}
}

// The time limit of a job may change while the job runs. The limit that Slurm reports at the end counts, and not the one that it reported
// at the beginning.
func TestAttemptEndKnowsTheLimitThatHolds(t *testing.T) {
	zone := time.Local
	at := func(clock string) time.Time {
		end, err := time.ParseInLocation("15:04:05 2006-01-02", clock+" 2026-11-21", zone)
		if err != nil {
			t.Fatal(err)
		}
		return end
	}
	for name, tc := range map[string]struct {
		state, limit, end string
		want              time.Time
	}{
		"put off":                     {"RUNNING", "01:00:00", "05:00:00", at("05:00:00")},
		"taken away":                  {"RUNNING", "UNLIMITED", "Unknown", time.Time{}},
		"put off, and being signaled": {"SIGNALING", "01:00:00", "05:00:00", at("05:00:00")},
		"over, which is not a limit":  {"COMPLETING", "01:00:00", "03:30:00", at("04:00:00")},
		"not said":                    {"RUNNING", "01:00:00", "Unknown", at("04:00:00")},
	} {
		p := newPretendSlurm(t)
		e, _, _ := p.env(0, 1)
		e.Environ = append(e.Environ, fmt.Sprintf("SLURM_JOB_END_TIME=%d", at("04:00:00").Unix()))
		p.Says("scontrol.out",
			fmt.Sprintf("JobId=12 JobName=x UserId=u(1) JobState=%s Reason=None Restarts=0 TimeLimit=%s EndTime=2026-11-21T%s "+
				"PreemptTime=None\n", tc.state, tc.limit, tc.end))
		s := &slurmScheduler{&Attempt{Env: e.env(), JobID: "12"}}
		if got := s.Ask(t.Context(), time.Minute); !got.Asked || !got.EndTime.Equal(tc.want) {
			t.Errorf("%s: asked %t, the end is %v, want %v", name, got.Asked, got.EndTime, tc.want)
		}
	}
}

// The lead that the agents report is the one that counts: the agents know when the job ends, and the job file does not say it.
func TestAttemptEndBelievesTheLead(t *testing.T) {
	for lead, cause := range map[float64]string{240: "stopped", 600: "timeout"} {
		p, run := newPretendSlurm(t), fakeslurm.Run(t, `lead = "2m"`)
		e, _, _ := p.env(1, 2)
		end := e.Now().Add(8 * time.Minute).Format("2006-01-02T15:04:05")
		p.Says("scontrol.out",
			fmt.Sprintf("JobId=12 JobName=x UserId=u(1) JobState=RUNNING Reason=None Restarts=1 TimeLimit=01:00:00 "+
				"EndTime=%s PreemptTime=None\n", end))
		for n := 1; n <= 2; n++ {
			if _, err := run.ClaimAttempt(); err != nil {
				t.Fatal(err)
			}
			v := rundir.Verdict{Attempt: n, JobID: "12", Cause: "stopped", Exit: 75, Saved: true, Time: e.Now(), WarnedS: 400, LeadS: lead}
			begin := rundir.Event{Time: e.Now().Add(-time.Hour), Event: rundir.EventBegin, Attempt: n, Job: "12", Start: n - 1}
			if err := errors.Join(run.Append(begin), run.WriteVerdict(v), run.Append(v.Event())); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.end(t, run, SrunEnd{Code: 75}); exitCode(err) != 75 {
			t.Errorf("ended with %v", err)
		}
		if v, err := run.Verdict(2); err != nil || v.Cause != cause || v.LeadS != lead {
			t.Errorf("of agents that went by %v s: %+v, %v; want the cause %s", lead, v, err, cause)
		}
	}
}

// A save long before the limit counts as a save because of the limit if the attempt was warned that early. An attempt is warned early if
// those before it took long to save.
func TestAttemptEndKnowsTheLead(t *testing.T) {
	for took, cause := range map[float64]string{0: "stopped", 400: "timeout"} {
		p, run := newPretendSlurm(t), fakeslurm.Run(t, `lead = "2m"`)
		e, _, _ := p.env(1, 2)
		end := e.Now().Add(8 * time.Minute).Format("2006-01-02T15:04:05")
		p.Says("scontrol.out",
			fmt.Sprintf("JobId=12 JobName=x UserId=u(1) JobState=RUNNING Reason=None Restarts=1 TimeLimit=01:00:00 "+
				"EndTime=%s PreemptTime=None\n", end))
		for n := 1; n <= 2; n++ {
			if _, err := run.ClaimAttempt(); err != nil {
				t.Fatal(err)
			}
			v := rundir.Verdict{Attempt: n, JobID: "12", Cause: "stopped", Exit: 75, Saved: true, Time: e.Now(), WarnedS: took}
			begin := rundir.Event{Time: e.Now().Add(-time.Hour), Event: rundir.EventBegin, Attempt: n, Job: "12", Start: n - 1}
			if err := errors.Join(run.Append(begin), run.WriteVerdict(v), run.Append(v.Event())); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.end(t, run, SrunEnd{Code: 75}); exitCode(err) != 75 {
			t.Errorf("ended with %v", err)
		}
		if v, err := run.Verdict(2); err != nil || v.Cause != cause {
			t.Errorf("after an attempt that took %v s: %+v, %v; want the cause %s", took, v, err, cause)
		}
	}
}

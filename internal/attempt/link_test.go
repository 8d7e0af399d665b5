package attempt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// chained records jobs 11 to 14 as the links of a run's chain.
func chained(t *testing.T, run *rundir.Dir) {
	t.Helper()
	for i, id := range []string{"11", "12", "13", "14"} {
		event := rundir.Event{Event: rundir.EventLink, Link: i + 1, Links: 4, Detail: "job " + id}
		if i == 0 {
			event.Event = rundir.EventSubmit
		}
		if err := run.Append(event); err != nil {
			t.Fatal(err)
		}
	}
}

// last returns the events that a run's ledger got after its chain was submitted.
func last(t *testing.T, run *rundir.Dir) []string {
	t.Helper()
	return fakeslurm.Events(t, run)[4:]
}

// facts returns what scontrol prints about a job in a state and with a reason.
func facts(id, state string) string {
	return strings.Replace(fmt.Sprintf(fakeslurm.Facts, state, 0, "(null)"), "JobId=12", "JobId="+id, 1)
}

func TestEndOfALink(t *testing.T) {
	running := map[string]string{"scontrol.out": facts("12", "RUNNING Reason=None")}
	limit := map[string]string{"scontrol.out": facts("12", "COMPLETING Reason=TimeLimit")}
	soon := map[string]string{"scontrol.out": strings.Replace(facts("12", "RUNNING Reason=None"), "2099-01-01T00:00:00",
		"2020-01-01T00:00:00", 1)}
	stopped := rundir.Verdict{Cause: "cancelled", Exit: 143, Message: "told"}
	const cancels = "scancel 13 14"
	for _, test := range []struct {
		name    string
		requeue string
		verdict rundir.Verdict
		code    int
		signals string
		says    map[string]string
		want    []string // events after the attempt's beginning
		calls   []string
		exit    int
		log     string
	}{
		{"done", "", rundir.Verdict{Cause: "done"}, 0, "", nil, nil, []string{cancels}, 0,
			"link 2 of 4: the run is done, so that the links after it are cancelled: jobs 13, 14"},
		{"crash", "", rundir.Verdict{Cause: "crash", Exit: 7}, 7, "", running, []string{"end", "give-up"}, []string{cancels}, 7,
			"link 2 of 4: the run is given up"},
		{"crash with a budget", `on = ["crash"]`, rundir.Verdict{Cause: "crash", Exit: 7}, 7, "", running, []string{"end", "requeue"},
			[]string{"scontrol requeue 12"}, 75, "requeued: "},
		{"93", "", rundir.Verdict{Cause: "crash", Exit: 93}, 93, "", running, []string{"end", "give-up"}, []string{cancels}, 93, ""},
		{"cancelled", "", stopped, 143, "TERM", map[string]string{"scontrol.out": facts("12", "COMPLETING Reason=None")}, []string{"end",
			"give-up"}, []string{cancels}, 143, ""},
		{"time limit", "", stopped, 143, "TERM", limit, []string{"end", "link-end"}, nil, 75,
			"link 2 of 4 ends: the time limit came; link 3 goes on (job 13)"},
		{"time limit, not to be requeued for", "on = []", stopped, 143, "TERM", limit, []string{"end", "link-end"},
			nil, 75, "link 3 goes on"},
		{"time limit, without budget", "max.timeout = 0", stopped, 143, "TERM", limit, []string{"end", "link-end"},
			nil, 75, "link 3 goes on"},
		{"saved at the warning", "on = []", fakeslurm.Saved, 75, "USR2", soon, []string{"end", "link-end"}, nil, 75, "link 3 goes on"},
		{"saved, and the end is far", "", fakeslurm.Saved, 75, "", running, []string{"end", "requeue"},
			[]string{"scontrol requeue 12"}, 75, ""},
		{"preempted", "", stopped, 143, "",
			map[string]string{"scontrol.out": facts("12", "RUNNING Reason=None PreemptTime=2026-11-21T00:55:18")},
			[]string{"end", "requeue"}, []string{"scontrol requeue 12"}, 75, ""},
		{"a requeue that is refused", "", fakeslurm.Saved, 75, "", map[string]string{"scontrol.out": running["scontrol.out"],
			"requeue.err": "Requested operation is presently disabled for job 12\n"},
			[]string{"end", "requeue", "refused"}, []string{"scontrol requeue 12"}, 75, ""},
		{"a lost node, which the links after it do without, too", "", fakeslurm.Lost, 1, "", running, []string{"end", "requeue"},
			[]string{"sbatch --test-only --exclude=n2 SCRIPT", "scontrol requeue 12", "scontrol update JobId=12 ExcNodeList=n2",
				"scontrol update JobId=13 ExcNodeList=n2", "scontrol update JobId=14 ExcNodeList=n2"}, 75, "requeued: "},
		{"no progress", "no_progress = 1", stopped, 143, "TERM", limit, []string{"end", "give-up"}, []string{cancels}, 143, "no progress"},
		{"done, and scancel fails", "", rundir.Verdict{Cause: "done"}, 0, "", map[string]string{"scancel.err": "scancel: error: no\n"}, nil,
			[]string{cancels}, 0, "each ends as it begins"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, run := newPretendSlurm(t), fakeslurm.Run(t, test.requeue)
			chained(t, run)
			e, _, errs := p.env(0, 1)
			p.Must(e.begin(t, run))
			for name, text := range test.says {
				p.Says(name, text)
			}
			v := test.verdict
			v.Attempt, v.JobID, v.Time = 1, "12", e.Now()
			p.Must(run.WriteVerdict(v))
			err := e.end(t, run, SrunEnd{Code: test.code, Signals: strings.Fields(test.signals)})
			if exitCode(err) != test.exit {
				t.Errorf("exit code %d (%v), want %d", exitCode(err), err, test.exit)
			}
			// the end may be recorded twice
			if got := slices.Compact(last(t, run)); !slices.Equal(got, append([]string{"begin"}, test.want...)) {
				t.Errorf("ledger: %q, want begin and %q", got, test.want)
			}
			calls := p.Calls()
			for i := range calls {
				calls[i] = strings.ReplaceAll(calls[i], run.ScriptPath(), "SCRIPT")
			}
			if !slices.Equal(calls, test.calls) {
				t.Errorf("called %q, want %q", calls, test.calls)
			}
			if said := errs.String() + fmt.Sprint(err); !strings.Contains(said, test.log) {
				t.Errorf("said %s, want %q", said, test.log)
			}
		})
	}
}

// The last link ends as a run that can be resumed.
func TestEndOfTheLastLink(t *testing.T) {
	p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
	chained(t, run)
	e, _, errs := p.env(0, 1)
	e.Environ = append(slices.DeleteFunc(e.Environ, func(s string) bool { return strings.HasPrefix(s, "SLURM_JOB_ID=") }),
		"SLURM_JOB_ID=14")
	p.Must(e.begin(t, run))
	p.Says("scontrol.out", facts("14", "COMPLETING Reason=TimeLimit"))
	p.Must(run.WriteVerdict(rundir.Verdict{Attempt: 1, JobID: "14", Cause: "cancelled", Exit: 143, Time: e.Now()}))
	err := e.end(t, run, SrunEnd{Code: 143, Signals: []string{"TERM"}})
	if exitCode(err) != exit.Requeue || !strings.Contains(errs.String(),
		"link 4 of 4 ends: the time limit came; it is the last; to continue: ddpbatch resume ") || len(p.Calls()) > 0 {
		t.Errorf("%v, %s; called %q", err, errs, p.Calls())
	}
}

// TestBeginOfALink checks what link 2, job 12, does if link 1, job 11, began an attempt before it.
func TestBeginOfALink(t *testing.T) {
	for _, test := range []struct {
		name    string
		verdict *rundir.Verdict
		events  []rundir.Event // after the attempt's beginning
		other   string         // the state of job 11; "": Slurm does not know it
		over    bool
		exit    int
		want    []string // events after "events"
		cancels bool
		says    string
	}{
		{"timed out", nil, []rundir.Event{{Event: "end", Attempt: 1, Cause: "timeout"}, {Event: "link-end", Attempt: 1}},
			"TIMEOUT Reason=TimeLimit", false, 0, []string{"begin"}, false, ""},
		{"timed out, and Slurm has forgotten it", nil, []rundir.Event{{Event: "link-end", Attempt: 1}}, "", false, 0, []string{"begin"},
			false, ""},
		{"done", &rundir.Verdict{Cause: "done"}, nil, "COMPLETED Reason=None", true, 0, nil, true, "link 2 of 4: the run is done"},
		{"given up", &rundir.Verdict{Cause: "crash", Exit: 7}, []rundir.Event{{Event: "give-up", Attempt: 1, Detail: "a worker failed"}},
			"FAILED Reason=None",
			false, 93, []string{"give-up"}, true, "a worker failed"},
		{"not requeued", nil, []rundir.Event{{Event: "requeue", Attempt: 1}, {Event: "refused", Attempt: 1}},
			"FAILED Reason=None", false, 0,
			[]string{"begin"}, false, ""},
		{"runs", nil, nil, "RUNNING Reason=None", false, 93, nil, false, "two links of a chain never run at once: job 11 is RUNNING"},
		{"was requeued, and waits", nil, []rundir.Event{{Event: "requeue", Attempt: 1}}, "PENDING Reason=BeginTime", false, 93, nil, false,
			"job 11 is PENDING"},
		{"killed at its limit", nil, nil, "TIMEOUT Reason=TimeLimit", false, 0, []string{"end", "link-end", "begin"}, false, ""},
		{"lost its node", nil, nil, "NODE_FAIL Reason=NodeDown", false, 0, []string{"end", "link-end", "begin"}, false, ""},
		{"gone, and Slurm does not say how", nil, nil, "", false, 0, []string{"end", "link-end", "begin"}, false, ""},
		{"cancelled", nil, nil, "CANCELLED Reason=None", false, 93, []string{"end", "give-up"}, true, "the run was cancelled"},
		{"killed", nil, nil, "FAILED Reason=None", false, 93, []string{"end", "give-up"}, true, "how the attempt ended"},
		{"crashed, and its script was killed", &rundir.Verdict{Cause: "crash", Exit: 7}, nil, "FAILED Reason=None",
			false, 93, []string{"end",
				"give-up"}, true, "a worker failed"},
		{"cancelled by id", nil, []rundir.Event{{Event: "link-end", Attempt: 1}, {Event: "cancel", Job: "12"}}, "TIMEOUT Reason=TimeLimit",
			false, 93, []string{"give-up"}, true, JobCancelled},
		{"another was cancelled by id", nil, []rundir.Event{{Event: "link-end", Attempt: 1}, {Event: "cancel", Job: "13"}},
			"TIMEOUT Reason=TimeLimit", false, 0, []string{"begin"}, false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
			chained(t, run)
			e, out, errs := p.env(0, 1)
			n, err := run.ClaimAttempt()
			p.Must(err)
			p.Must(run.Append(rundir.Event{Event: rundir.EventBegin, Attempt: n, Job: "11", Time: e.Now()}))
			if test.verdict != nil {
				v := *test.verdict
				v.Attempt, v.JobID, v.Time = 1, "11", e.Now()
				p.Must(run.WriteVerdict(v))
			}
			for _, event := range test.events {
				event.Time = e.Now()
				p.Must(run.Append(event))
			}
			if test.other == "" {
				p.Says("scontrol.err", "slurm_load_jobs error: Invalid job id specified\n")
			} else {
				p.Says("scontrol.out", facts("11", test.other))
			}
			err = e.begin(t, run)
			if exitCode(err) != test.exit || strings.Contains(out.String(), "exit 0") != test.over {
				t.Errorf("exit code %d (%v), want %d; printed %q", exitCode(err), err, test.exit, out)
			}
			if got := last(t, run)[1+len(test.events):]; !slices.Equal(got, test.want) {
				t.Errorf("ledger: %q, want %q", got, test.want)
			}
			if got := slices.Equal(p.Calls(), []string{"scancel 13 14"}); got != test.cancels || !test.cancels && len(p.Calls()) > 0 {
				t.Errorf("called %q; the later links are to be cancelled: %v", p.Calls(), test.cancels)
			}
			if said := errs.String() + fmt.Sprint(err); !strings.Contains(said, test.says) {
				t.Errorf("said %s, want %q", said, test.says)
			}
		})
	}
}

// A job that is not in the newest chain, because the run has been submitted again, cancels no job.
func TestLinkOfAnotherSubmission(t *testing.T) {
	p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
	chained(t, run)
	p.Must(run.Append(rundir.Event{Event: rundir.EventResume, Detail: "job 20"}))
	for _, id := range []string{"12", "20", "99"} {
		if link, err := LinkOf(run, id); err != nil || link.Number != 0 || len(link.Later) > 0 {
			t.Errorf("job %s is %v, %v", id, link, err)
		}
	}
}

// If Slurm starts a link again after its end, because the link was preempted earlier, the link goes on. It is not taken for a lost link.
func TestLinkStartsAgainAfterItsEnd(t *testing.T) {
	p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
	chained(t, run)
	e, _, _ := p.env(0, 1)
	p.Must(e.begin(t, run))
	p.Must(run.Append(rundir.Event{Event: rundir.EventLinkEnd, Attempt: 1, Time: e.Now()}))
	again, out, _ := p.env(1, 1)
	p.Must(again.begin(t, run))
	if got := last(t, run); !slices.Equal(got, []string{"begin", "link-end", "begin"}) || !strings.Contains(out.String(),
		"DDPBATCH_ATTEMPT=2") {
		t.Errorf("ledger %q; printed %s", got, out)
	}
}

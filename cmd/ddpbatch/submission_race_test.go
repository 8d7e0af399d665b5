package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
)

// first has a command of Slurm's do a line of shell before what it does.
func (q *queue) first(name, line string) {
	q.t.Helper()
	path := filepath.Join(q.dir, name)
	q.must(os.Remove(path))
	q.must(os.WriteFile(path, []byte("#!/bin/sh\n"+line+"\n"+queueCommands), 0o700))
}

// claimsLine is a line of shell by which another command takes the claim of runs, and gives it back.
func (q *queue) claimsLine(runs string) string {
	q.t.Helper()
	q.says("claim.json", `{"machine":"another","pid":7,"start":1,"host":"login2","doing":"resume",`+
		`"since":"2026-11-24T10:00:00Z","nonce":"x","done":true}`)
	return fmt.Sprintf(`umask 077; for run in %s; do mkdir -p "$run/claims/9" && cp '%s/claim.json' "$run/claims/9/"; done`, runs, q.dir)
}

const byAnother = "another command has claimed the run: resume by process 7 on login2, begun 2026-11-24 10:00:00"

func (q *queue) jobFile(parent string) {
	q.t.Helper()
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"), 0o600))
}

// begin is what the batch script of a job does first.
func (q *queue) begin(parent, run, job string) error {
	q.t.Helper()
	e, _, _ := q.env(parent)
	e.Environ = append(e.Environ, "SLURM_JOB_ID="+job)
	return runAttemptBegin(q.t.Context(), e, run)
}

func (q *queue) ledger(run string) []rundir.Event {
	q.t.Helper()
	history, err := must(q.t, rundir.Open, run).Ledger()
	q.must(err)
	return history
}

// events are those of a name in a run's ledger.
func (q *queue) events(run, name string) (found []rundir.Event) {
	q.t.Helper()
	for _, e := range q.ledger(run) {
		if e.Event == name {
			found = append(found, e)
		}
	}
	return found
}

// In a folder that others write to, with the sticky bit, they can take the names of links to runs. That stops no job.
func TestTakenLinkName(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.jobFile(parent)
	q.must(os.Mkdir(filepath.Join(parent, "runs"), 0o755))
	for _, id := range []string{"500", "501"} {
		q.must(os.WriteFile(filepath.Join(parent, "runs", "x-"+id), nil, 0o600))
	}
	const says = "the run is found by its path, and not by its job id"
	code, out, errs := q.run(parent, "submit", "job.toml")
	if code != 0 || !strings.HasPrefix(out, "submitted job 500") || strings.Count(errs, says) != 1 {
		t.Fatalf("submit: %d, %s%s", code, out, errs)
	}
	run := must(t, rundir.List, filepath.Join(parent, "runs"))[0].Path()
	if err := q.begin(parent, run, "500"); err != nil {
		t.Errorf("the job does not begin: %v", err)
	}
	q.rights(parent, run)
	if err := q.begin(parent, run, "501"); err != nil {
		t.Errorf("the resumed job does not begin: %v", err)
	}
}

// Who has lost the claim while it prepared the run submits nothing, and leaves what is in the run as it is, since another command may be
// submitting that.
func TestLostClaimSubmitsNothing(t *testing.T) {
	t.Run("submit", func(t *testing.T) {
		q := newQueue(t)
		parent := t.TempDir()
		q.jobFile(parent)
		e, out, errs := q.env(parent)
		claimed, line := filepath.Join(parent, "runs", "*", "claims", "1"), q.claimsLine(filepath.Join(parent, "runs", "x-*"))
		e.Now = func() time.Time {
			if found, _ := filepath.Glob(claimed); len(found) > 0 {
				q.must(exec.Command("/bin/sh", "-c", line).Run())
			}
			return time.Now()
		}
		if code := Main(t.Context(), e, []string{"ddpbatch", "submit", "job.toml"}); code != exitUsage ||
			!strings.Contains(errs.String(), byAnother) {
			t.Errorf("%d, %s%s", code, out, errs)
		}
		runs := must(t, rundir.List, filepath.Join(parent, "runs"))
		if len(runs) != 1 || len(q.events(runs[0].Path(), rundir.EventSubmitting)) > 0 || len(q.jobs()) > 0 {
			t.Errorf("runs %v, jobs %q", runs, q.jobs())
		}
	})
	t.Run("resume", func(t *testing.T) {
		q := newQueue(t)
		parent, run := q.resumable()
		d := must(t, rundir.Open, run)
		before := must(t, os.ReadFile, d.SpecPath())
		q.must(os.WriteFile(d.ScriptPath(), []byte("of another command"), 0o600))
		q.first("squeue", q.claimsLine(run))
		code, out, errs := q.run(parent, "resume", run, "--set", "slurm.nodes=2")
		if code != exitUsage || !strings.Contains(errs, byAnother) || strings.Contains(errs, "may have taken") {
			t.Errorf("%d, %s%s", code, out, errs)
		}
		if now := must(t, os.ReadFile, d.SpecPath()); string(now) != string(before) {
			t.Errorf("spec.json is now %s", now)
		}
		if now := must(t, os.ReadFile, d.ScriptPath()); string(now) != "of another command" {
			t.Errorf("the script is now %s", now)
		}
		if len(q.events(run, rundir.EventSubmitting)) > 0 || len(q.alive()) > 0 {
			t.Errorf("jobs %q", q.jobs())
		}
	})
}

// Who has lost the claim while sbatch ran undoes nothing of what is another command's by then, and its job does not begin.
func TestClaimIsLostDuringSbatch(t *testing.T) {
	t.Run("taken", func(t *testing.T) {
		q := newQueue(t)
		parent, run := q.resumable()
		q.first("sbatch", q.claimsLine(run))
		code, out, errs := q.run(parent, "resume", run)
		if code != exitUsage || !strings.Contains(errs, "job 500 was submitted too late: ") ||
			!strings.Contains(errs, byAnother+"; to take it back: scancel 500") {
			t.Errorf("%d, %s%s", code, out, errs)
		}
		if strings.Contains(errs, "may have taken") {
			t.Error(errs)
		}
		q.first("sbatch", "")
		if code, out, errs := q.run(parent, "resume", run); code != 0 || !strings.HasPrefix(out, "submitted job 501:") {
			t.Errorf("the other command: %d, %s%s", code, out, errs)
		}
		if err := q.begin(parent, run, "500"); exitCode(err) != exitNever || !strings.Contains(err.Error(), "submitted too late") {
			t.Errorf("the job that came too late begins: %v", err)
		}
		q.must(q.begin(parent, run, "501"))
		if row := q.status(parent, run); row.Job != "501" {
			t.Errorf("status: %+v", row)
		}
	})
	t.Run("refused", func(t *testing.T) {
		q := newQueue(t)
		parent := t.TempDir()
		q.jobFile(parent)
		q.says("mode", "refuse")
		q.first("sbatch", q.claimsLine(filepath.Join(parent, "runs", "x-*")))
		code, out, errs := q.run(parent, "submit", "job.toml")
		if code != exitUsage || !strings.Contains(errs, "Invalid partition") || !strings.Contains(errs, byAnother) {
			t.Errorf("%d, %s%s", code, out, errs)
		}
		runs := must(t, rundir.List, filepath.Join(parent, "runs"))
		if len(runs) != 1 || len(q.events(runs[0].Path(), rundir.EventNotTaken)) > 0 {
			t.Errorf("the run of another command was changed: %v", runs)
		}
	})
}

// A cancel between the moment when Slurm takes a job and that when it is recorded is not lost.
func TestCancelWhileSubmitted(t *testing.T) {
	for _, by := range []string{"the owner", "root"} {
		t.Run(by, func(t *testing.T) {
			q := newQueue(t)
			parent, run := q.resumable()
			d := must(t, rundir.Open, run)
			submitting := rundir.Event{Time: time.Now(), Event: rundir.EventSubmitting, Detail: rundir.EventResume}
			q.must(d.Append(submitting))
			q.says("jobs/500", "PENDING "+d.ScriptPath())
			if by == "root" { // who records nothing in a run of somebody else
				e, _, _ := q.env(parent)
				noteCancel(e, d, "500")
			} else {
				e, _, _ := q.env(parent)
				cancelled := false
				e.Now = func() time.Time {
					if !cancelled {
						cancelled = true
						if code, out, errs := q.run(parent, "cancel", run); code != 0 {
							t.Errorf("cancel: %d, %s%s", code, out, errs)
						}
					}
					return time.Now()
				}
				q.must(e.submitEnv().Record(d, "500", submitting))
				if found := q.events(run, rundir.EventResume); !cancelled || len(found) != 1 {
					t.Errorf("recorded %d times: %+v", len(found), found)
				}
			}
			if err := q.begin(parent, run, "500"); exitCode(err) != exitNever || !strings.Contains(err.Error(), "cancelled") {
				t.Errorf("the cancelled job begins: %v", err)
			}
			if history := q.ledger(run); !recovery.WasCancelled(append(history, rundir.Event{Event: rundir.EventBegin, Job: "500"})) {
				t.Errorf("the cancel is lost: %+v", history)
			}
			q.is("500", "CANCELLED")
			if code, out, errs := q.run(parent, "resume", run); code != 0 ||
				!strings.HasPrefix(out, "submitted job 501:") && !strings.HasPrefix(out, "submitted job 500:") {
				t.Fatalf("resume: %d, %s%s", code, out, errs)
			}
			q.must(q.begin(parent, run, q.alive()[0]))
		})
	}
}

// After a submission that was lost a person may submit the script by hand, as at all times: ids rise, so that this is not the lost job.
func TestJobByHandAfterLostSubmission(t *testing.T) {
	q := newQueue(t)
	parent, run := q.resumable()
	d := must(t, rundir.Open, run)
	q.must(d.Append(rundir.Event{Time: time.Now(), Event: rundir.EventSubmitting, Detail: rundir.EventResume}))
	if code, _, errs := q.run(parent, "resume", run); code != 0 || !slices.Equal(q.alive(), []string{"500"}) {
		t.Fatalf("resume: %d, %s", code, errs)
	}
	if err := q.begin(parent, run, "499"); exitCode(err) != exitNever {
		t.Errorf("the lost job begins: %v", err)
	}
	q.is("500", "COMPLETED")
	if err := q.begin(parent, run, "1001"); err != nil {
		t.Errorf("a job by hand does not begin: %v", err)
	}
	if id, err := d.JobID(); id != "1001" || err != nil {
		t.Errorf("recorded is %q, %v", id, err)
	}
}

// A run that cannot be claimed, be it that the disk is full, is not left behind; one that another command has found is.
func TestSubmitThatCannotClaim(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.jobFile(parent)
	e, out, errs := q.env(parent)
	e.Now = func() time.Time {
		if found, _ := filepath.Glob(filepath.Join(parent, "runs", "*", "spec.json")); len(found) > 0 {
			q.must(os.WriteFile(filepath.Join(filepath.Dir(found[0]), "claims"), nil, 0o600))
		}
		return time.Now()
	}
	if code := Main(t.Context(), e, []string{"ddpbatch", "submit", "job.toml"}); code != exitFailed ||
		!strings.Contains(errs.String(), "not a directory") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	if runs := must(t, rundir.List, filepath.Join(parent, "runs")); len(runs) > 0 {
		t.Errorf("left behind: %v", runs)
	}
}

// What keeps a run from being claimed is told, also where a process simulates it just now.
func TestResumeSaysWhatKeepsItFromClaiming(t *testing.T) {
	q := newQueue(t)
	run, _ := pretendRun(t)
	id := fmt.Sprint(os.Getpid())
	q.must(run.SetJobID(id))
	log, err := os.Create(run.SlurmLogPath(id)) // by which this process is that which simulates the run
	q.must(err)
	defer log.Close()
	q.must(os.WriteFile(filepath.Join(run.Path(), "claims"), nil, 0o600))
	code, _, errs := q.run(filepath.Dir(run.Path()), "resume", run.Path())
	if code != exitFailed || !strings.Contains(errs, "claim the run") || !strings.Contains(errs, "not a directory") {
		t.Errorf("%d, %s", code, errs)
	}
}

// However many runs of a user have a submission that was cut short, Slurm is asked once for jobs of their scripts.
func TestStatusAsksOnceForLostJobs(t *testing.T) {
	q := newQueue(t)
	q.first("squeue", fmt.Sprintf(`echo "$*" >>'%s/asked'`, q.dir))
	var runs []*rundir.Dir
	for i := range 3 {
		_, run := q.resumable()
		d := must(t, rundir.Open, run)
		q.must(d.Append(rundir.Event{Time: time.Now(), Event: rundir.EventSubmitting, Detail: rundir.EventResume}))
		q.says(fmt.Sprintf("jobs/50%d", i), "PENDING "+d.ScriptPath())
		runs = append(runs, d)
	}
	e, _, _ := q.env(t.TempDir())
	rows, err := e.viewer().Statuses(t.Context(), runs)
	q.must(err)
	for i, row := range rows {
		if want := fmt.Sprintf("50%d", i); row.Job != want || row.State != "PENDING" {
			t.Errorf("run %d: %+v; want job %s", i, row, want)
		}
	}
	asked := string(must(t, os.ReadFile, filepath.Join(q.dir, "asked")))
	if strings.Count(asked, "--me") != 1 || strings.Count(asked, "\n") != 2 {
		t.Errorf("squeue was asked:\n%s", asked)
	}
}

// A cancel starts nothing of the run: its owner may do that whatever has become of the run's program.
func TestOwnerCancelsDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string][]string{
		"its program is gone":    {"rm", "bin/ddpbatch"},
		"others can write to it": {"chmod", "g+w", "."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			run := l.submit(victim)
			l.must(victim, "sh", append([]string{"-c", `cd "$0" && exec "$@"`, run}, damage...)...)
			if out, code := l.as(attacker, l.program, "cancel", run); code == 0 {
				t.Errorf("another user cancelled it:\n%s", out)
			}
			l.must(victim, l.program, "cancel", run)
			if calls := l.calls(); calls != "scancel by 4242 500\n" {
				t.Errorf("scancel was called so: %q", calls)
			}
		})
	}
}

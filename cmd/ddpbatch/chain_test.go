package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
)

// sbatchCalls returns the options of all calls of sbatch.
func (q *queue) sbatchCalls() (calls []string) {
	q.t.Helper()
	text := must(q.t, os.ReadFile, filepath.Join(q.dir, "calls"))
	for line := range strings.Lines(string(text)) {
		calls = append(calls, strings.TrimSpace(line))
	}
	return calls
}

// chainFile writes the job file of a chain, with additional lines in [slurm].
func (q *queue) chainFile(parent string, slurm ...string) {
	q.t.Helper()
	text := "name = \"x\"\n[slurm]\nchain = 3\n" + strings.Join(slurm, "\n") + "\n[launch]\ncommand = [\"true\"]\n"
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte(text), 0o600))
}

// Each link depends on all links before it. Only the first also depends on what the user named.
func TestSubmitsTheLinksOfAChain(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.chainFile(parent, `dependency = "afterok:7"`)
	q.says("jobs/450", "RUNNING elsewhere")
	code, out, errs := q.run(parent, "submit", "job.toml", "--after", "450:notok", "--", "--qos=high")
	if code != 0 || !strings.HasPrefix(out, "submitted job 500: ") || !strings.Contains(out, "\nchain of 3: then jobs 501, 502, each ") {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	want := []string{
		"--parsable --qos=high --dependency=afterok:7,afternotok:450",
		"--parsable --qos=high --dependency=afterany:500",
		"--parsable --qos=high --dependency=afterany:500:501",
	}
	if calls := q.sbatchCalls(); !slices.Equal(calls, want) {
		t.Errorf("called sbatch with %q, want %q", calls, want)
	}
	for _, id := range []string{"500", "501", "502"} {
		if row := q.status(parent, filepath.Join(parent, "runs", ".job-x-"+id)); row.Job != "500" || row.Link != 1 || row.Links != 3 {
			t.Errorf("status of job %s: %+v", id, row)
		}
	}

	// logs shows the output of links in their order
	run := filepath.Join(parent, "runs", ".job-x-500")
	for _, id := range []string{"501", "500"} {
		q.must(os.WriteFile(filepath.Join(run, "slurm-"+id+".log"), []byte("by "+id+"\n"), 0o600))
	}
	code, out, errs = q.run(parent, "logs", "502")
	if code != 0 || out != "by 500\nby 501\n" || errs != "==> link 1 of 3, job 500 <==\n==> link 2 of 3, job 501 <==\n" {
		t.Errorf("logs: %d, %q, %q", code, out, errs)
	}

	// any link's id means the whole chain; another job waits for all links that are left
	q.is("500", "TIMEOUT")
	q.must(q.begin(parent, run, "501"))
	q.is("501", "RUNNING")
	if code, out, errs := q.run(parent, "status", "502"); code != 0 || !strings.HasPrefix(out, "501\tx\tRUNNING\t1\t") ||
		!strings.HasSuffix(out, "\tlink 2 of 3\n") {
		t.Errorf("status: %d, %q, %s", code, out, errs)
	}
	for word, want := range map[string]string{
		"502":       "--dependency=afterany:501:502",
		"x-500:any": "--dependency=afterany:501:502",
		"500:ok":    "--dependency=afterok:501?afterok:502",
		"501:notok": "--dependency=afternotok:501,afternotok:502",
	} {
		code, out, errs := q.run(parent, "submit", "job.toml", "--set", "slurm.chain=1", "--set", "slurm.skip=['dependency']", "--dry-run",
			"--after", word)
		if code != 0 || !strings.Contains(errs, want) {
			t.Errorf("--after %s: %d, %s%s; want %s", word, code, out, errs, want)
		}
	}
	code, _, errs = q.run(parent, "resume", "x-501")
	if code != exit.Usage || !strings.Contains(errs, "links of its chain have not ended (501 RUNNING, 502 PENDING)") {
		t.Errorf("resume: %d, %s", code, errs)
	}
	code, out, errs = q.run(parent, "cancel", "500")
	if code != 0 || !strings.HasPrefix(out, "cancelled job 501\ncancelled job 502\nresume: ") || len(q.alive()) > 1 {
		t.Errorf("cancel: %d, %s%s; alive are %q", code, out, errs, q.alive())
	}
	if code, _, errs := q.run(parent, "logs", "-f", "500"); code != exit.Failed || !strings.Contains(errs, "job 501 ended as CANCELLED") {
		t.Errorf("logs -f: %d, %s", code, errs)
	}
	code, out, errs = q.run(parent, "resume", "502", "--set", "slurm.chain=2")
	if code != 0 || !strings.Contains(out, "chain of 2: then job 504, each") {
		t.Errorf("resume as a chain of two: %d, %s%s", code, out, errs)
	}
	if row := q.status(parent, run); row.Job != "503" || row.State != "PENDING" || row.Link != 1 || row.Links != 2 {
		t.Errorf("status of the resumed chain: %+v", row)
	}
}

// If Slurm refuses a link of a chain, the first or a later one, submit leaves nothing of the chain behind.
func TestRefusedLinkLeavesNothing(t *testing.T) {
	for _, at := range []string{"500", "501", "502"} {
		q := newQueue(t)
		parent := t.TempDir()
		q.chainFile(parent)
		q.says("mode", "refuse@"+at)
		code, out, errs := q.run(parent, "submit", "job.toml", "--parsable")
		if code != exit.Refused || out != "" || !strings.Contains(errs, "Invalid partition name specified") {
			t.Errorf("link %s: %d, %s%s", at, code, out, errs)
		}
		left, err := os.ReadDir(filepath.Join(parent, "runs"))
		if err != nil || len(left) > 0 || len(q.alive()) > 0 {
			t.Errorf("link %s: left behind are %v, jobs %q (%v)", at, left, q.jobs(), err)
		}
		if cancelled := strings.Contains(errs, "were canceled"); cancelled != (at != "500") {
			t.Errorf("link %s: %s", at, errs)
		}
	}
}

// If Slurm refuses a later link of a resume, the run still exists and has ended.
func TestRefusedLinkOfAResume(t *testing.T) {
	q := newQueue(t)
	parent, run := q.resumable()
	before := must(t, os.ReadFile, filepath.Join(run, "spec.json"))
	q.says("mode", "refuse@502")
	code, _, errs := q.run(parent, "resume", run, "--set", "slurm.chain=3")
	after := must(t, os.ReadFile, filepath.Join(run, "spec.json"))
	if code != exit.Refused || len(q.alive()) > 0 || !slices.Equal(before, after) {
		t.Errorf("%d, %s; alive are %q", code, errs, q.alive())
	}
	q.says("mode", "")
	if row := q.status(parent, run); !row.Ended || row.State != "CANCELLED" {
		t.Errorf("status: %+v", row)
	}
	if code, out, errs := q.run(parent, "resume", run); code != 0 || !strings.HasPrefix(out, "submitted job 502: ") {
		t.Errorf("resume: %d, %s%s", code, out, errs)
	}
}

// If a submit of a chain is killed, the other commands find, show and cancel each job that it has submitted. No job is lost.
func TestSubmitOfAChainKilled(t *testing.T) {
	for _, mode := range []string{"before@501", "after@501", "told@501", "before@502", "after@502", "told@500"} {
		t.Run(mode, func(t *testing.T) {
			q := newQueue(t)
			parent := t.TempDir()
			q.chainFile(parent)
			q.says("mode", mode)
			if err := q.command(parent, "submit", "job.toml").Run(); err == nil {
				t.Fatal("it was not killed")
			}
			q.says("mode", "")
			run := must(t, rundir.List, filepath.Join(parent, "runs"))[0].Path()
			jobs := q.alive()
			if row := q.status(parent, run); row.Job != "500" || row.State != "PENDING" || row.Links != 3 || row.Ended {
				t.Errorf("status of the jobs %q: %+v", jobs, row)
			}
			if code, _, errs := q.run(parent, "resume", run); code != exit.Usage || !slices.Equal(q.alive(), jobs) {
				t.Errorf("resume: %d, %s; alive are %q", code, errs, q.alive())
			}
			code, out, errs := q.run(parent, "cancel", run)
			if code != 0 || strings.Count(out, "cancelled job ") != len(jobs) || len(q.alive()) > 0 {
				t.Errorf("cancel: %d, %s%s; alive are %q", code, out, errs, q.alive())
			}
			if code, out, errs := q.run(parent, "resume", run); code != 0 || len(q.alive()) != 3 {
				t.Errorf("resume: %d, %s%s; alive are %q", code, out, errs, q.alive())
			}
		})
	}
}

// submit rejects an --after that makes no sense before it submits anything.
func TestAfterWhatCannotBe(t *testing.T) {
	q := newQueue(t)
	parent, run := q.resumable() // canceled
	q.jobFile(parent)
	q.says("jobs/450", "RUNNING elsewhere")
	either := `slurm.dependency="afterok:1?afterok:2"`
	for _, row := range []struct {
		after, set, says string
	}{
		{"460", "", "Slurm does not know this job"},
		{"450:done", "", "after the colon write how the job must end: any, ok or notok"},
		{":ok", "", "name a job id or a run directory"},
		{"nowhere", "", `no such run as "nowhere"`},
		{"12+1", "", "name the whole heterogeneous job: 12"},
		{"400:ok", "", "this can no longer happen: the run has ended as CANCELLED"},
		{run + ":ok", "", "this can no longer happen: the run has ended as CANCELLED"},
		{"450", either, "cannot be joined with the other conditions"},
	} {
		args := []string{"submit", "job.toml", "--set", "run_dir=.", "--after", row.after}
		if row.set != "" {
			args = append(args, "--set", row.set)
		}
		code, out, errs := q.run(parent, args...)
		if code != exit.Usage || !strings.Contains(errs, row.says) || out != "" || len(q.sbatchCalls()) > 0 {
			t.Errorf("%q: %d, %s%s; want %q", args, code, out, errs, row.says)
		}
	}
	for _, after := range []string{"400", "400:notok"} {
		code, out, errs := q.run(parent, "submit", "job.toml", "--set", "run_dir=.", "--after", after)
		if code != 0 || !strings.Contains(errs, "--after "+after+": the condition is already met") {
			t.Errorf("--after %s, which has ended: %d, %s%s", after, code, out, errs)
		}
	}
	if calls := q.sbatchCalls(); len(calls) != 2 || calls[0] != "--parsable" || calls[1] != "--parsable" {
		t.Errorf("called sbatch with %q", calls)
	}
}

// --after also waits for a job that Slurm accepted although its submit was killed before it recorded the job. The earlier job of that run
// has ended.
func TestAfterAnUnrecordedJob(t *testing.T) {
	for _, test := range []struct{ mode, links, want string }{
		{"after", "1", "--dependency=afterany:500"},
		{"after@501", "2", "--dependency=afterany:500:501"},
	} {
		q := newQueue(t)
		parent, run := q.resumable()
		q.jobFile(parent)
		q.says("mode", test.mode)
		if err := q.command(parent, "resume", run, "--set", "slurm.chain="+test.links).Run(); err == nil {
			t.Fatalf("%s: it was not killed", test.mode)
		}
		q.says("mode", "")
		code, _, errs := q.run(parent, "submit", "job.toml", "--dry-run", "--after", run)
		if code != 0 || !strings.Contains(errs, test.want+" ") {
			t.Errorf("%s: %d, %s; want %s", test.mode, code, errs, test.want)
		}
	}
}

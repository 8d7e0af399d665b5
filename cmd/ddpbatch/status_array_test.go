package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
)

// arrayWorld is an array whose elements, and Slurm, a test plays.
type arrayWorld struct {
	*pretendSlurm
	run *rundir.Dir
}

func newArrayWorld(t *testing.T, array string) *arrayWorld {
	w := &arrayWorld{newPretendSlurm(t), attemptRun(t, fmt.Sprintf("[slurm]\narray = %q\n", array))}
	w.must(os.WriteFile(filepath.Join(w.dir, "sacct"), []byte("#!/bin/sh\necho Slurm accounting storage is disabled >&2\nexit 1\n"), 0o700))
	return w
}

func (w *arrayWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// submitted is what submit and resume leave behind: of one element, in its ledger, too.
func (w *arrayWorld) submitted(id string, elements ...*rundir.Dir) {
	w.t.Helper()
	w.must(w.run.SetJobID(id))
	all := rundir.Event{Time: time.Now(), Event: rundir.EventResume, Detail: "job " + id}
	for _, run := range elements {
		w.must(run.Append(all))
		index, _ := run.Index()
		all.Element = &index
	}
	w.must(w.run.Append(all))
}

// ran has an element run in a job, to its end with that exit code.
func (w *arrayWorld) ran(index int, job string, exit int) *rundir.Dir {
	w.t.Helper()
	element, err := w.run.Task(index)
	w.must(err)
	id := fmt.Sprintf("%s_%d", job, index)
	w.must(element.SetJobID(id))
	n, err := element.ClaimAttempt()
	w.must(err)
	w.must(element.Append(rundir.Event{Time: time.Now(), Event: rundir.EventBegin, Attempt: n, Job: id}))
	w.must(element.WriteVerdict(rundir.Verdict{Attempt: n, JobID: id, Cause: "crash", Exit: exit, Message: fmt.Sprintf("code %d", exit)}))
	return element
}

// slurm is what squeue shows: "12_1 RUNNING".
func (w *arrayWorld) slurm(jobs ...string) {
	var out strings.Builder
	for _, job := range jobs {
		id, state, _ := strings.Cut(job, " ")
		fmt.Fprintf(&out, "%s|1|%s|None|1|n1|N/A|N/A|1:00|%s\n", id, state, w.run.Spec().Name)
	}
	w.says("squeue.out", strings.ReplaceAll(out.String(), "|", "\x1f"))
}

func (w *arrayWorld) status(state string, exit int, message string) runview.RunStatus {
	w.t.Helper()
	e, _, _ := w.env(0, 0)
	row, err := statusOf(w.t.Context(), e, w.run)
	w.must(err)
	got := -1
	if row.Exit != nil {
		got = *row.Exit
	}
	if row.State != state || got != exit || row.Message != message {
		w.t.Errorf("status is %s, exit code %d, %q; want %s, %d, %q", row.State, got, row.Message, state, exit, message)
	}
	return row
}

// ends is what --wait for the job id ends with.
func (w *arrayWorld) ends(row runview.RunStatus, id string, code int, message string) {
	w.t.Helper()
	row = row.OfJob(id)
	err := runview.EndOf(id, row)
	if !row.Ended || exitCode(err) != code || err != nil && err.Error() != message {
		w.t.Errorf("the wait for job %s ends (%v) with %d, %v; want %d, %s", id, row.Ended, exitCode(err), err, code, message)
	}
}

// The state of an array is that of its elements: what Slurm knows of each, and else what it has left.
func TestStatusOfArray(t *testing.T) {
	w := newArrayWorld(t, "0-3%2")
	w.submitted("12")
	w.slurm("12_[0-3%2] PENDING")
	w.status("PENDING", -1, "0 of 4 elements are done")
	w.ran(0, "12", 0)
	one := w.ran(1, "12", 3)
	w.slurm("12_[2-3%2] PENDING", "12_0 COMPLETED", "12_1 RUNNING") // it has left its verdict, and is about to end
	if row := w.status("RUNNING", -1, "1 of 4 elements are done"); row.Ended || row.Attempt != 1 {
		t.Errorf("status is %+v", row)
	}
	w.ran(2, "12", 7)
	w.slurm("12_2 FAILED", "12_0 COMPLETED", "12 CANCELLED") // the last had not begun
	row := w.status("FAILED", 7, "1 of 4 elements are done, 3 did not end well; element 2: code 7")
	w.ends(row, "12", 7, "job 12: 3 of 4 elements did not end well\n  job 12_1: code 3\n  job 12_2: code 7\n"+
		"  job 12_3 ended as CANCELLED: no agent left a verdict; see ddpbatch logs 12")
	w.slurm() // has forgotten it
	row = w.status("FAILED", 7, "1 of 4 elements are done, 2 did not end well; element 2: code 7")

	// one alone
	w.submitted("13", one)
	w.slurm("13_1 PENDING")
	w.status("PENDING", -1, "1 of 4 elements are done; element 2: code 7")
	w.ran(1, "13", 0)
	w.status("PENDING", -1, "1 of 4 elements are done; element 2: code 7")
	w.slurm("13_1 COMPLETED")
	row = w.status("FAILED", 7, "2 of 4 elements are done; element 2: code 7")
	w.ends(row, "13", 0, "")
	w.ends(row, "12", 7, "job 12: 2 of 4 elements did not end well\n  job 12_2: code 7\n  job 12_3 ended as UNKNOWN: no agent left a verdict; see ddpbatch logs 12")

	// all of them once more, of which two wait
	w.submitted("14")
	w.ran(0, "14", 0)
	w.ran(2, "14", 0)
	w.slurm("14_0 COMPLETED", "14_2 COMPLETED", "14_[1,3] PENDING")
	w.status("PENDING", -1, "2 of 4 elements are done")
	w.ran(1, "14", 0)
	w.ran(3, "14", 0)
	w.slurm()
	row = w.status("COMPLETED", 0, "all 4 elements are done")
	w.ends(row, "14", 0, "")
}

// A person's cancel of an element that waits is known from the ledger: Slurm forgets such an element at once.
func TestStatusOfCancelledElement(t *testing.T) {
	w := newArrayWorld(t, "1,2")
	w.submitted("12")
	w.ran(1, "12", 0)
	w.must(w.run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventCancel, Job: "12_2"}))
	w.slurm("12_1 COMPLETED")
	row := w.status("CANCELLED", 1, "1 of 2 elements are done; element 2 ended as CANCELLED: it was cancelled before it began")
	w.ends(row, "12", 1, "job 12: 1 of 2 elements did not end well\n  job 12_2 ended as CANCELLED: it was cancelled before it began")
}

// Who resumes one element alone takes nobody's cancel back but its own.
func TestStatusOfCancelledSiblings(t *testing.T) {
	w := newArrayWorld(t, "1,2")
	w.submitted("12")
	one := w.ran(1, "12", 3)
	w.must(w.run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventCancel, Job: "12"}))
	w.submitted("13", one)
	w.slurm("13_1 PENDING")
	w.status("PENDING", -1, "0 of 2 elements are done; element 2 ended as CANCELLED: it was cancelled before it began")
	w.submitted("14") // all of them
	w.slurm("14_1 RUNNING", "14_2 PENDING")
	w.status("RUNNING", -1, "0 of 2 elements are done")
}

// A resume of one element says in the array's ledger which one it is of.
func TestResumeElement(t *testing.T) {
	w := newArrayWorld(t, "1,2")
	w.submitted("12")
	one := w.ran(1, "12", 3)
	w.slurm("12_1 FAILED", "12_2 CANCELLED")
	w.says("sbatch.out", "13\n")
	e, _, _ := w.env(0, 0)
	w.must(runResume(t.Context(), e, one, resumeOptions{}))
	history, err := w.run.Ledger()
	w.must(err)
	last := history[len(history)-1]
	if last.Event != rundir.EventResume || last.Detail != "job 13" || last.Element == nil || *last.Element != 1 {
		t.Errorf("the array's ledger ends with %+v; want the resume of element 1", last)
	}
}

// Of an array that is larger than this program can tell, Slurm tells what has not begun.
func TestStatusOfLargeArray(t *testing.T) {
	w := newArrayWorld(t, "0-5000")
	w.submitted("12")
	one := w.ran(0, "12", 7)
	w.submitted("13", one)
	w.ran(0, "13", 0)
	w.slurm("12_0 FAILED", "12_[1-5000] PENDING", "13_0 COMPLETED")
	if row := w.status("PENDING", -1, "1 of its elements are done"); row.Ended {
		t.Errorf("status is %+v", row)
	}
}

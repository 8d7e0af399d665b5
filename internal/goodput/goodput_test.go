package goodput

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// at returns the time that many seconds after noon.
func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// made returns a run of two nodes that was created at noon, with the given ledger and metrics.
func made(t testing.TB, events []rundir.Event, metrics string) *rundir.Dir {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "program")
	must(t, os.WriteFile(binary, []byte("#!/bin/sh\n"), 0o755))
	run, err := rundir.Create(rundir.CreateConfig{
		Parent:  t.TempDir(),
		Spec:    rundir.Spec{Name: "made", Kind: "slurm", Version: "v0", WorkDir: "/w", Nodes: 2, Job: json.RawMessage(`{"a":1}`)},
		JobFile: []byte("schema = 1\n"), Binary: binary, Now: noon,
	})
	must(t, err)
	for _, e := range events {
		must(t, run.Append(e))
	}
	if metrics != "" {
		must(t, os.WriteFile(run.MetricsPath(), []byte(metrics), 0o600))
	}
	return run
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func submit(s float64, job string) rundir.Event {
	return rundir.Event{Time: at(s), Event: rundir.EventSubmit, Detail: "job " + job}
}

func begin(s float64, attempt int, job string, start int) rundir.Event {
	return rundir.Event{Time: at(s), Event: rundir.EventBegin, Attempt: attempt, Job: job, Start: start}
}

func end(s float64, attempt int, cause string) rundir.Event {
	return rundir.Event{Time: at(s), Event: rundir.EventEnd, Attempt: attempt, Cause: cause}
}

func event(s float64, name string, attempt int) rundir.Event {
	return rundir.Event{Time: at(s), Event: name, Attempt: attempt}
}

// trained returns the lines of an attempt, one every 10 steps and every 10 seconds, the first at s seconds. Each begins with {"time":...,
// "attempt":...}.
func trained(s float64, attempt, from, to int, more ...string) string {
	var all strings.Builder
	for step := from; step <= to; step += 10 {
		fmt.Fprintf(&all, `{"time":%q,"attempt":%d,"step":%d,"loss":0.5%s}`+"\n",
			at(s).Format(time.RFC3339Nano), attempt, step, strings.Join(more, ""))
		more = nil
		s += 10
	}
	return all.String()
}

// parts returns the parts of a breakdown in whole seconds, without those that are 0.
func parts(b Breakdown) string {
	var all []string
	add := func(name string, d time.Duration) {
		if d != 0 {
			all = append(all, fmt.Sprintf("%s %.0f", name, d.Seconds()))
		}
	}
	add("queued", b.Queued)
	add("starting", b.Starting)
	add("productive", b.Productive)
	add("saving", b.Saving)
	for _, cause := range []string{"preempt", "timeout", "node", "hang", "oom", "crash", "stopped", "cancelled", "start", "unknown", Anew} {
		add("lost/"+cause, b.Lost[cause])
	}
	add("unknown", b.Unknown)
	add("other", b.Other)
	add("idle", b.Idle)
	return strings.Join(all, ", ")
}

func TestTimeGoesToItsParts(t *testing.T) {
	const stall, resume = `,"save_stall_s":4`, `,"resume_find_s":2,"resume_load_s":3,"resume_step":50`
	whole := trained(130, 1, 10, 100) // the steps begin at 120
	tests := []struct {
		name    string
		events  []rundir.Event
		metrics string
		now     float64
		want    string
	}{
		{"a run that nobody has submitted", nil, "", 50, ""},
		{"a job that waits", []rundir.Event{submit(0, "7")}, "", 50, "queued 50"},
		{"a job that was cancelled while it waited", []rundir.Event{submit(0, "7"), event(20, rundir.EventCancel, 0)}, "", 50, "queued 20"},
		{"an attempt that has no line yet, of a program that may write none", []rundir.Event{submit(0, "7"), begin(100, 1, "7", 0)}, "",
			110,
			"queued 100, unknown 10"},
		{"an attempt that trains", []rundir.Event{submit(0, "7"), begin(100, 1, "7", 0)}, whole, 225,
			"queued 100, starting 20, productive 105"},
		{"one that is done", []rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(225, 1, "done")}, whole, 999,
			"queued 100, starting 20, productive 100, other 5"},
		{"a save", []rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(225, 1, "done")}, trained(134, 1, 10, 100, stall), 999,
			"queued 100, starting 20, productive 100, saving 4, other 1"},
		{
			"a crash, a restart in the job: steps 51 to 100, the time until it was seen, the restart",
			[]rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(225, 1, "crash"),
				event(227, rundir.EventRestart, 1), begin(228, 2, "7", 0),
				end(325, 2, "done")},
			whole + trained(255, 2, 60, 120, resume), 999,
			"queued 100, starting 20, productive 120, lost/crash 75, other 10",
		},
		{
			"a lost node, a requeue: the job waits once more",
			[]rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(225, 1, "unknown"), end(226, 1, "node"),
				event(230, rundir.EventRequeue, 1),
				begin(300, 2, "7", 1), end(400, 2, "done")},
			whole + trained(330, 2, 60, 120, resume), 999,
			"queued 170, starting 40, productive 120, lost/node 60, other 10",
		},
		{
			"the batch script died with its node, and Slurm started the job again",
			[]rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(225, 1, "node"),
				{Time: at(299), Event: rundir.EventRequeue, Attempt: 1, Detail: rundir.RequeuedBySlurm},
				begin(300, 2, "7", 1), end(400, 2, "done")},
			whole + trained(330, 2, 60, 120, resume), 999,
			"queued 175, starting 40, productive 120, lost/node 55, other 10",
		},
		{
			"given up, and resumed by a person",
			[]rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(225, 1, "crash"), event(226, rundir.EventGiveUp, 1),
				{Time: at(500), Event: rundir.EventResume, Detail: "job 8"}, begin(510, 2, "8", 0), end(600, 2, "done")},
			whole + trained(530, 2, 60, 120, resume), 999,
			"queued 110, starting 30, productive 120, lost/crash 56, other 10, idle 274",
		},
		{
			"done, and resumed without a submission, as simulate does",
			[]rundir.Event{begin(100, 1, "", 0), end(225, 1, "done"), begin(300, 2, "", 1), end(400, 2, "done")},
			whole + trained(330, 2, 110, 170, `,"resume_step":100`), 999,
			"queued 100, starting 40, productive 170, other 15, idle 75",
		},
		{
			"done, and others of its array were canceled later",
			[]rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(225, 1, "done"), event(500, rundir.EventCancel, 0)}, whole, 999,
			"queued 100, starting 20, productive 100, other 5",
		},
		{
			"no end in the ledger, and a resume",
			[]rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), {Time: at(500), Event: rundir.EventResume, Detail: "job 8"},
				begin(510, 2, "8", 0), end(600, 2, "done")},
			whole + trained(530, 2, 60, 120, resume), 999,
			"queued 110, starting 30, productive 120, lost/unknown 50, other 10, idle 280",
		},
		{
			"an attempt that failed before its first line",
			[]rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(110, 1, "oom"),
				event(111, rundir.EventRestart, 1), begin(112, 2, "7", 0),
				end(235, 2, "done")},
			trained(142, 2, 10, 100), 999,
			"queued 100, productive 100, lost/oom 32, other 3",
		},
		{
			"nobody writes metrics",
			[]rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(110, 1, "crash"),
				event(111, rundir.EventRestart, 1), begin(112, 2, "7", 0),
				end(235, 2, "start"), event(240, rundir.EventGiveUp, 2)},
			"", 999,
			"queued 100, lost/crash 2, lost/start 128, unknown 10",
		},
		{
			"where it went on is not said: a line before its first one",
			[]rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(220, 1, "preempt"),
				event(220, rundir.EventRequeue, 1), begin(300, 2, "7", 1),
				end(390, 2, "done")},
			whole + trained(330, 2, 60, 120), 999,
			"queued 180, starting 40, productive 120, lost/preempt 50",
		},
		{
			"clocks that differ by more than all that happened",
			[]rundir.Event{submit(1000, "7"), begin(100, 1, "7", 0), end(90, 1, "crash"),
				event(80, rundir.EventRestart, 1), begin(70, 2, "7", 0),
				end(2000, 2, "done")},
			whole, 3000,
			"other 1000",
		},
		{
			"lines that are none, or of no time and no step",
			[]rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(225, 1, "done")},
			"\x00{}\n{\"attempt\":1}\n{\"attempt\": 1, \"step\":-4,\"time\":\"x\"}\n" + whole + strings.Repeat("x", 1<<17) + "\n" +
				`{"attempt":1,"st`, 999,
			"queued 100, starting 20, productive 100, other 5",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run := made(t, tt.events, tt.metrics)
			got, err := new(Accounts).Of(run, false, at(tt.now))
			must(t, err)
			if parts(got) != tt.want {
				t.Errorf("the parts are %q, want %q", parts(got), tt.want)
			}
		})
	}
}

// The nodes are those that each attempt had, whatever a later resume asks for.
func TestNodesAreThoseOfTheAttempts(t *testing.T) {
	with := func(e rundir.Event, nodes int) rundir.Event {
		e.NodeCount = nodes
		return e
	}
	resumed := rundir.Event{Time: at(7200), Event: rundir.EventResume, Detail: "job 8"}
	canceled := rundir.Event{Time: at(7300), Event: rundir.EventCancel, Job: "8"}
	for name, test := range map[string]struct {
		events []rundir.Event
		nodes  int
		hours  float64
		says   string
	}{
		"the resume waits": {[]rundir.Event{submit(0, "7"), with(begin(0, 1, "7", 0), 2), end(3600, 1, "crash"), resumed, canceled},
			2, 2, " with 2 nodes:"},
		"a ledger without numbers of nodes": {[]rundir.Event{submit(0, "7"), begin(0, 1, "7", 0), end(3600, 1, "crash"), resumed, canceled},
			2, 2, " with 2 nodes:"},
		"the resume has run": {[]rundir.Event{submit(0, "7"), with(begin(0, 1, "7", 0), 2), end(3600, 1, "crash"), resumed,
			with(begin(7200, 2, "8", 0), 4), end(10800, 2, "crash")}, 4, 6, " with 2 to 4 nodes:"},
		"a restart within the job": {[]rundir.Event{submit(0, "7"), with(begin(0, 1, "7", 0), 3), end(3600, 1, "crash"),
			event(3600, rundir.EventRestart, 1), begin(3600, 2, "7", 0), end(7200, 2, "crash")}, 3, 6, " with 3 nodes:"},
		"before the first": {[]rundir.Event{submit(0, "7")}, 4, 0, "queued for 3h00m"},
	} {
		run := made(t, test.events, "")
		spec := run.Spec()
		must(t, run.WriteSpec(spec.Override(rundir.Overridden{WorkDir: spec.WorkDir, Nodes: 4, Job: spec.Job})))
		got, err := new(Accounts).Of(run, false, at(10800))
		must(t, err)
		var all Summary
		all.Add(got)
		if hours := got.NodeHours(Breakdown.Running); got.Nodes != test.nodes || hours != test.hours || all.Total != test.hours ||
			!strings.Contains(got.String(), test.says) {
			t.Errorf("%s: %d nodes, %g hours, %g in the summary, %q", name, got.Nodes, hours, all.Total, got)
		}
	}
}

// If the time of the last sign of life of an ended run is unknown, its time goes on until now.
func TestAnEndedRunWithoutASign(t *testing.T) {
	waited, err := made(t, []rundir.Event{submit(0, "7")}, "").Task(1) // its submission is recorded in the array's ledger
	must(t, err)
	unreadable := made(t, []rundir.Event{submit(0, "7"), begin(100, 1, "7", 0)}, trained(130, 1, 10, 100))
	must(t, os.RemoveAll(filepath.Join(unreadable.Path(), "attempts")))
	for run, want := range map[*rundir.Dir]string{waited: "queued 225", unreadable: "queued 100, starting 20, productive 105"} {
		got, err := new(Accounts).Of(run, true, at(225))
		if err != nil || parts(got) != want {
			t.Errorf("the parts are %q, %v; want %q", parts(got), err, want)
		}
	}
}

func TestRunBegunAnewHasLostWhatWasBefore(t *testing.T) {
	run := made(t, []rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(225, 1, "done"),
		{Time: at(300), Event: rundir.EventResume, Detail: "job 8"}, begin(310, 2, "8", 0), end(450, 2, "done")},
		trained(130, 1, 10, 100)+trained(340, 2, 10, 100))
	spec := run.Spec()
	spec.Anew = 2
	must(t, run.WriteSpec(spec))
	got, err := new(Accounts).Of(run, false, at(999))
	must(t, err)
	if want := "queued 110, starting 40, productive 100, lost/anew 100, other 25, idle 75"; parts(got) != want {
		t.Errorf("the parts are %q, want %q", parts(got), want)
	}
}

// Adding to a breakdown leaves the parts that it consists of as they were: each is counted with its own nodes.
func TestSumKeepsItsParts(t *testing.T) {
	all := Breakdown{Nodes: 2, Lost: map[string]time.Duration{"crash": time.Hour}}
	all.Add(Breakdown{Nodes: 4, Lost: map[string]time.Duration{"crash": time.Hour}})
	all.Add(Breakdown{Nodes: 1, Lost: map[string]time.Duration{"crash": time.Hour}})
	if hours := all.NodeHours(Breakdown.LostTime); hours != 7 || all.LostTime() != 3*time.Hour {
		t.Errorf("%v node-hours of %v lost, want 7 of 3h", hours, all.LostTime())
	}
}

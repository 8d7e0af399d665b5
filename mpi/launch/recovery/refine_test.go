package recovery

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
)

// corpusLine returns the first line of a recorded time line (testdata/22.05/README.md) that contains all words.
func corpusLine(t *testing.T, file string, words ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "22.05", file))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return line
		}
	}
	t.Fatalf("%s has no line with %q", file, words)
	return ""
}

// evidenceOf parses a line of a recorded time line. It contains the state of a job, as in "JobState=RUNNING Reason=None Restarts=0
// PreemptTime=None", and that of its nodes, as in "n1=mixed n2=down*". The job was started for the first time.
func evidenceOf(line string) Evidence {
	e := Evidence{Asked: true, Now: noon, EndTime: noon.Add(time.Hour), Lead: 2 * time.Minute}
	for word := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case key == "JobState" && e.State == "": // another job's state may follow
			e.State = value
		case key == "Reason":
			e.Reason = value
		case key == "Restarts":
			e.Requeued = value != "0"
		case key == "PreemptTime":
			e.Preempted = value != "None"
		case strings.HasPrefix(key, "n") && strings.HasSuffix(value, "*"):
			e.Down = append(e.Down, key)
		}
	}
	return e
}

// unmet returns e for an attempt whose agents have not started any rank.
func unmet(e Evidence) Evidence {
	e.Unmet = true
	return e
}

func TestRefine(t *testing.T) {
	cancelled := rundir.Verdict{Cause: "cancelled", Exit: 143, Signal: 15, Host: "n1", Message: "told"}
	nobody := rundir.Verdict{Cause: "unknown", Exit: 137, Message: "nobody"}
	asked, drained := savedFor(Saved, 7), drainedOf("n2")
	line := func(file string, words ...string) Evidence { return evidenceOf(corpusLine(t, file, words...)) }
	// scontrol printed this inside jobs on Slurm 22.05 after srun had ended, in the few seconds before KILL.
	limit := evidenceOf("JobState=COMPLETING Reason=TimeLimit Restarts=0")
	cancel := evidenceOf("JobState=COMPLETING Reason=None Restarts=0")
	requeued := evidenceOf("JobState=COMPLETING Reason=None Restarts=1")
	nodeDown := evidenceOf("JobState=PENDING Reason=None Restarts=1")
	running := evidenceOf("JobState=RUNNING Reason=None Restarts=0")
	near := running
	near.EndTime = near.Now.Add(170 * time.Second) // a lead of 120 s, and up to 60 s early
	unasked := Evidence{Now: noon, Lead: 2 * time.Minute}
	unasked.Signals = []string{"USR2"}
	failing := evidenceOf("JobState=NODE_FAIL Reason=NodeDown Restarts=0 n2=down*")
	over := Evidence{Now: noon, EndTime: noon, Signals: []string{"TERM"}}
	for _, test := range []struct {
		name string
		v    rundir.Verdict
		e    Evidence
		want Cause
	}{
		{"saved when told to end, Slurm silent", savedFor(Cancelled, 7),
			Evidence{Now: noon, EndTime: noon.Add(time.Hour), Signals: []string{"TERM"}}, Saved},
		{"told to end, nothing saved, Slurm silent", cancelled, Evidence{Now: noon, Signals: []string{"TERM"}}, Cancelled},
		{"saved when told to end, cancelled", savedFor(Cancelled, 7), cancel, Cancelled},
		{"preempted, in the grace", cancelled, line("pre-requeue-stay.txt", "PreemptTime=2026", "JobState=RUNNING"), Preempt},
		{"preempted, and saved", savedFor(Cancelled, 7), line("pre-requeue-stay.txt", "PreemptTime=2026", "JobState=RUNNING"), Preempt},
		{"preempted, warned by USR2", asked, line("pre-requeue-stay.txt", "PreemptTime=2026", "JobState=RUNNING"), Preempt},
		{"preempted, to be cancelled", cancelled, line("pre-cancel-stay.txt", "COMPLETING"), Preempt},
		{"preempted, requeued by Slurm", cancelled, line("pre-requeue-stay.txt", "COMPLETING"), Preempt},
		{"preempted, back in the queue", nobody, line("pre-requeue-stay.txt", "JobState=PENDING"), Preempt},
		{"crash of a node, requeued", cancelled, line("nf-crash-n2.txt", "JobState=PENDING"), Node},
		{"crash of a node, nobody lived", nobody, line("nf-crash-n2.txt", "JobState=PENDING"), Node},
		{"crash of a node, not noticed by Slurm yet", nobody, line("nf-crash-n2.txt", "mixed*"), Node},
		{"crash of a node, an agent noticed", rundir.Verdict{Cause: "node", Exit: 1, Host: "n2"}, line("nf-crash-n2.txt", "mixed*"), Node},
		{"stopped slurmd", cancelled, line("nf-stopd.txt", "JobState=PENDING"), Node},
		{"a node set down, and up again at once", cancelled, line("nf-scontrol-down.txt", "COMPLETING"), Preempt},
		{"set down, seen by the script itself", cancelled, nodeDown, Preempt},
		{"time limit", cancelled, limit, Timeout},
		{"time limit, saved", savedFor(Cancelled, 7), limit, Timeout},
		{"time limit, nobody lived", nobody, limit, Timeout},
		{"time limit, a worker died of TERM first", rundir.Verdict{Cause: "crash", Signal: 15, Exit: 143}, limit, Timeout},
		{"scancel", cancelled, cancel, Cancelled},
		{"scancel after a save", asked, cancel, Cancelled},
		{"scancel, nobody lived", nobody, cancel, Cancelled},
		{"requeued by hand", cancelled, requeued, Preempt},
		{"a plain TERM", cancelled, running, Cancelled},
		{"srun's TERM, after an agent was lost", rundir.Verdict{Cause: "cancelled", Exit: 143, Nodes: []string{"n2"}}, running, Node},
		{"srun's TERM, as an agent could not be started", rundir.Verdict{Cause: "cancelled", Exit: 143}, running, Start},
		{"srun's TERM, before an agent could catch it", rundir.Verdict{Cause: "unknown", Exit: 143}, running, Start},
		{"srun's KILL, as its TERM found no agent yet", nobody, unmet(running), Start},
		{"srun's KILL, and Slurm silent", nobody, Evidence{Now: noon, Unmet: true}, Unknown},
		{"KILL before any rank was begun, by scancel", nobody, unmet(cancel), Cancelled},
		{"a node crashed before any rank was begun", nobody, unmet(line("nf-crash-n2.txt", "mixed*")), Node},
		{"scancel before the agents met", rundir.Verdict{Cause: "cancelled", Exit: 143}, cancel, Cancelled},
		{"a worker that got a plain TERM", rundir.Verdict{Cause: "crash", Signal: 15, Exit: 143}, running, Crash},
		{"agents killed", nobody, running, Unknown},
		{"saved long before the end", asked, running, Saved},
		{"saved near the end", asked, near, Timeout},
		{"warned, Slurm silent", asked, unasked, Timeout},
		{"told, Slurm silent", cancelled, Evidence{Now: noon, Signals: []string{"TERM"}}, Cancelled},
		{"told, Slurm silent, time over", cancelled, over, Timeout},
		{"a crash stays one", rundir.Verdict{Cause: "crash", Exit: 3}, limit, Crash},
		{"so does a kill", rundir.Verdict{Cause: "crash", Signal: 9, Exit: 137}, limit, Crash},
		{"and a hang", rundir.Verdict{Cause: "hang", Exit: 1}, line("pre-requeue-stay.txt", "JobState=PENDING"), Hang},
		{"and 93", rundir.Verdict{Cause: "cancelled", Exit: 93}, limit, Cancelled},
		{"done is done", rundir.Verdict{Cause: "done"}, limit, Done},
		{"saved as a node is drained", drained, running, Node},
		{"the same near the end", drained, near, Node},
		{"the same, Slurm silent", drained, Evidence{Now: noon, Lead: 2 * time.Minute}, Node},
		{"the same, and cancelled", drained, cancel, Cancelled},
		{"the same, and preempted", drained, line("pre-requeue-stay.txt", "PreemptTime=2026", "JobState=RUNNING"), Preempt},
		{"the same, and its node fails", drained, failing, Node},
		{"agents that did not meet", rundir.Verdict{Cause: "timeout", Exit: 124}, running, Start},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Refine(test.v, test.e)
			if Cause(got.Cause) != test.want {
				t.Errorf("cause %s, want %s; evidence %+v", got.Cause, test.want, test.e)
			}
			if got.Exit != test.v.Exit || got.Saved != test.v.Saved || !strings.HasSuffix(got.Message, test.v.Message) {
				t.Errorf("became %+v, from %+v", got, test.v)
			}
			drain := test.v.Drain && test.want == Node && !test.e.has("NODE_FAIL")
			if got.Drain != drain || test.v.Drain && !drain && (got.Message == test.v.Message || test.want != Node && got.Nodes != nil) {
				t.Errorf("drained: %t, nodes %q, %q", got.Drain, got.Nodes, got.Message)
			}
			if test.want == Node && !slices.Equal(got.Nodes, []string{"n2"}) {
				t.Errorf("blames %q, want n2", got.Nodes)
			}
			if strings.Contains(got.Message, "the job lost n2") && got.Host != "n2" {
				t.Errorf("the host is %q, want n2", got.Host)
			}
			if again := Refine(got, test.e); again.Message != got.Message || again.Cause != got.Cause {
				t.Errorf("refined again: %+v, once: %+v", again, got)
			}
		})
	}
}

// Refine understands Slurm 25.11, which reports only COMPLETING while it ends a job, whatever the reason, and names a node that failed. Its
// output is recorded in slurm/testdata/25.11, which package slurm reads.
func TestRefineReadsSlurm25_11(t *testing.T) {
	cancelled := rundir.Verdict{Cause: "cancelled", Exit: 143, Signal: 15, Host: "n1", Message: "told"}
	failed := evidenceOf("JobState=COMPLETING Reason=None FailedNode=n2 Restarts=1")
	failed.Down = []string{"n2"}
	for _, test := range []struct {
		name string
		e    Evidence
		want Cause
	}{
		{"scancel", evidenceOf("JobState=COMPLETING Reason=None Restarts=0"), Cancelled},
		{"the time limit", evidenceOf("JobState=COMPLETING Reason=TimeLimit Restarts=0"), Timeout},
		{"a node failed", failed, Node},
		{"preempted, in the grace", evidenceOf("JobState=RUNNING Reason=None Restarts=0 PreemptTime=2026-11-23T16:53:24"), Preempt},
		{"preempted, after it", evidenceOf("JobState=COMPLETING Reason=None Restarts=1 PreemptTime=None"), Preempt},
	} {
		test.e.Signals = []string{"TERM"}
		for _, v := range []rundir.Verdict{cancelled, savedFor(Cancelled, 7), savedFor(Saved, 7)} {
			if v.Exit == exit.Requeue && test.want == Node {
				continue // workers that ask for a restart get one, on the nodes that are left
			}
			if got := Refine(v, test.e); CauseOf(got) != test.want {
				t.Errorf("%s, from %s: %s, want %s", test.name, v.Cause, got.Cause, test.want)
			}
		}
	}
}

// If the time limit came before the workers had saved, the advice begins with the time limit. If they were warned, it ends with the
// key that gives them more time to save.
func TestRefineSaysThatTheLeadIsShort(t *testing.T) {
	limit := evidenceOf("JobState=COMPLETING Reason=TimeLimit Restarts=0")
	limit.Resume = "ddpbatch resume /runs/x"
	cancelled := rundir.Verdict{Cause: "cancelled", Exit: 143, Signal: 15, WarnedS: 139.6}
	saved := savedFor(Cancelled, 7)
	saved.WarnedS = 139.6
	for _, tc := range []struct {
		name string
		v    rundir.Verdict
		want bool
	}{
		{"not saved", cancelled, true},
		{"saved at the last moment", saved, false},
		{"never warned", rundir.Verdict{Cause: "cancelled", Exit: 143, Signal: 15}, false},
	} {
		v := Refine(tc.v, limit)
		if has := strings.Contains(v.Message, "2m20s after the warning") && strings.Contains(v.Advice, "requeue.lead"); has != tc.want ||
			!strings.HasPrefix(v.Message, "the time limit came") {
			t.Errorf("%s: %q (%q)", tc.name, v.Message, v.Advice)
		}
		if has := strings.HasPrefix(v.Advice, "if the job needs more time: ddpbatch resume /runs/x --set slurm.time="); has == v.Saved {
			t.Errorf("%s: saved: %t, but the advice is %q", tc.name, v.Saved, v.Advice)
		}
	}
}

// If no worker reports a save, the advice also names the warning, to which the program may not react.
func TestRefineSaysThatTheWarningMayBeIgnored(t *testing.T) {
	killed := rundir.RankEnd{Rank: 0, Host: "n1", Signal: 9}
	for _, tc := range []struct {
		name, signal string
		ranks        []rundir.RankEnd
		want         bool
	}{
		{"all were killed", "USR2", []rundir.RankEnd{killed}, true},
		{"their ends are not known", "USR1", nil, true},
		{"one has saved", "USR2", []rundir.RankEnd{killed, {Rank: 1, Host: "n2", Exit: exit.Requeue}}, false},
		{"the built-in trainer", "", []rundir.RankEnd{killed}, false},
	} {
		e := evidenceOf("JobState=COMPLETING Reason=TimeLimit Restarts=0")
		e.WarnSignal = tc.signal
		got := Refine(rundir.Verdict{Cause: "cancelled", Exit: 143, Signal: 15, WarnedS: 3, Ranks: tc.ranks}, e).Advice
		if has := strings.Contains(got, "If the program does not save at the warning: it must handle "+tc.signal); has != tc.want ||
			!strings.Contains(got, "If saving takes longer than 3s: a longer requeue.lead") {
			t.Errorf("%s: %q", tc.name, got)
		}
	}
}

// The advice of a run that may hang is short: the message says what to do about that.
func TestRefineOfARunThatMayHangIsShort(t *testing.T) {
	e := evidenceOf("JobState=COMPLETING Reason=TimeLimit Restarts=0")
	e.WarnSignal, e.Resume = "USR2", "ddpbatch resume /runs/x"
	v := rundir.Verdict{Cause: "cancelled", Exit: 143, Signal: 15, WarnedS: 3, Message: "told to stop; no sign of life" + MayHang}
	if got, want := Refine(v, e).Advice, "if the job needs more time: ddpbatch resume /runs/x --set slurm.time=TIME"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A job that a person has canceled is never requeued, whatever the agents say.
func TestCancelledRunIsNeverRequeued(t *testing.T) {
	for line, want := range map[string]bool{
		"JobState=COMPLETING Reason=None Restarts=0":                                 true,
		"JobState=CANCELLED Reason=None Restarts=0":                                  true,
		"JobState=CANCELLED,COMPLETING Reason=None Restarts=0":                       true,
		"JobState=COMPLETING Reason=TimeLimit Restarts=0":                            false,
		"JobState=COMPLETING Reason=NodeDown Restarts=0":                             false,
		"JobState=COMPLETING Reason=None Restarts=1":                                 false,
		"JobState=COMPLETING Reason=None Restarts=0 PreemptTime=2026-11-21T00:56:31": false,
		"JobState=RUNNING Reason=None Restarts=0":                                    false,
	} {
		if got := evidenceOf(line).Cancelled(); got != want {
			t.Errorf("%s: %t", line, got)
		}
	}
}

package attempt

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/mpi/launch/recovery"
)

// hook returns a requeue table with a launch.on_end that appends its DDPBATCH_ variables and its input to a file, and that file.
func hook(t *testing.T, script string) (requeue, notes string) {
	t.Helper()
	notes = filepath.Join(t.TempDir(), "told")
	script = fmt.Sprintf("{ env | grep ^DDPBATCH_ | sort; cat; } >>%s; %s", notes, script)
	words, err := json.Marshal([]string{"sh", "-c", script})
	if err != nil {
		t.Fatal(err)
	}
	return "on = [\"node\", \"preempt\"]\n[launch]\non_end = " + string(words) + "\n", notes
}

// ended ends an attempt of a job with such a launch.on_end.
func ended(t *testing.T, p *pretendSlurm, requeue string, v rundir.Verdict, signals ...string) (run *rundir.Dir, said string, err error) {
	t.Helper()
	run = fakeslurm.Run(t, requeue)
	e, _, errs := p.env(0, 1)
	e.Environ = append(e.Environ, "DDPBATCH_SECRET=hush", "DDPBATCH_SETUP_FAILURE=hush")
	if err := e.begin(t, run); err != nil {
		t.Fatal(err)
	}
	v.Attempt, v.JobID, v.Time = 1, "12", e.Now()
	if err := run.WriteVerdict(v); err != nil {
		t.Fatal(err)
	}
	err = e.end(t, run, SrunEnd{Code: v.Exit, Signals: signals})
	return run, errs.String(), err
}

// launch.on_end runs once, when nothing follows the attempt. It does not run at any other end.
func TestOnEndRunsOnceNothingFollows(t *testing.T) {
	requeue, notes := hook(t, "echo said")
	for name, tc := range map[string]struct {
		verdict rundir.Verdict
		facts   string
		exit    int
		cause   string
		message string // "": launch.on_end does not run
	}{
		"done": {rundir.Verdict{Cause: "done", Message: "all is well"}, "", 0, "done", "all is well"},
		"crash": {rundir.Verdict{Cause: "crash", Exit: 7, Step: 41, Message: "rank 0\nexited with 7"}, "RUNNING Reason=None", 7, "crash",
			"not started again: "},
		"requeued": {rundir.Verdict{Cause: "node", Exit: 1, Host: "n2", Message: "lost"}, "RUNNING Reason=None", 75, "", ""},
		"given up": {rundir.Verdict{Cause: "stopped", Exit: 75, Message: "saved"}, "COMPLETING Reason=None", 93, "cancelled",
			"not started again: the run was cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(notes) // the file of the row before
			p := newPretendSlurm(t)
			if tc.facts != "" {
				p.Says("scontrol.out", fmt.Sprintf(fakeslurm.Facts, tc.facts, 0, "(null)"))
			}
			run, said, err := ended(t, p, requeue, tc.verdict)
			if exitCode(err) != tc.exit {
				t.Errorf("exit code %d (%v), want %d", exitCode(err), err, tc.exit)
			}
			text, err := os.ReadFile(notes)
			if tc.message == "" {
				if !errors.Is(err, os.ErrNotExist) {
					t.Errorf("it ran for a job that goes on: %s", text)
				}
				return
			}
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			for _, want := range []string{
				"DDPBATCH_RUN_DIR=" + run.Path(), "DDPBATCH_JOB_NAME=x", "DDPBATCH_JOB_ID=12", "DDPBATCH_CAUSE=" + tc.cause,
				fmt.Sprint("DDPBATCH_EXIT=", tc.exit),
				"DDPBATCH_ATTEMPT=1", fmt.Sprint("DDPBATCH_STEP=", tc.verdict.Step),
			} {
				if !slices.Contains(lines, want) {
					t.Errorf("%s is missing in\n%s", want, text)
				}
			}
			if !strings.Contains(string(text), tc.message) || strings.Contains(string(text), "hush") || !strings.Contains(said, "said\n") {
				t.Errorf("told\n%s\nsaid %s", text, said)
			}
			var v rundir.Verdict
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &v); err != nil || v.Exit != tc.verdict.Exit || v.Cause != tc.cause {
				t.Errorf("on its standard input: %+v, %v", v, err)
			}
		})
	}
}

// If a failing file system hides how the attempt ended, launch.on_end gets the cause "unknown", whatever srun's exit code is.
func TestOnEndOfAnUnknownEnd(t *testing.T) {
	requeue, notes := hook(t, "true")
	for _, code := range []int{0, 7} {
		_ = os.Remove(notes)
		p, run := newPretendSlurm(t), fakeslurm.Run(t, requeue)
		e, _, _ := p.env(0, 1)
		if err := e.begin(t, run); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"ledger.jsonl", "attempts/1/verdict.json"} { // reading a folder fails
			file := filepath.Join(run.Path(), name)
			_ = os.Remove(file)
			if err := os.Mkdir(file, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.end(t, run, SrunEnd{Code: code}); err == nil {
			t.Error("nothing is wrong")
		}
		text, err := os.ReadFile(notes)
		for _, want := range []string{"DDPBATCH_CAUSE=unknown\n", "DDPBATCH_MESSAGE=cannot find out how the attempt ", `"attempt":1,`} {
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("code %d: %q is missing in\n%s%v", code, want, text, err)
			}
		}
	}
}

// A failure of launch.on_end is a warning, and changes nothing else.
func TestOnEndMayFail(t *testing.T) {
	for name, tc := range map[string]struct{ command, says string }{
		"an exit code": {`["sh", "-c", "exit 3"]`, "exit status 3"},
		"no such":      {`["no-such-program"]`, "executable file not found"},
		"too slow":     {`["sleep", "60"]`, "had not ended after"},
		"not its own":  {`["sh", "-c", "sleep 60 & exit 0"]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPretendSlurm(t)
			p.Says("scontrol.out", fmt.Sprintf(fakeslurm.Facts, "COMPLETING Reason=None", 0, "(null)"))
			begin := time.Now()
			_, said, err := ended(t, p, "[launch]\non_end = "+tc.command+"\n",
				rundir.Verdict{Cause: "cancelled", Exit: 143, Message: "told"}, "TERM")
			if exitCode(err) != 143 || strings.Contains(said, "launch.on_end failed") != (tc.says != "") ||
				!strings.Contains(said, tc.says) {
				t.Errorf("exit code %d, said %s", exitCode(err), said)
			}
			if took := time.Since(begin); took > 25*time.Second {
				t.Errorf("it took %v, and KillWait is 30 s", took)
			}
		})
	}
}

func TestIsLast(t *testing.T) {
	first, last := Link{Number: 1, Of: 2, Later: []string{"13"}}, Link{Number: 2, Of: 2}
	for name, tc := range map[string]struct {
		link   Link
		action recovery.Action
		err    error
		want   bool
	}{
		"done":                       {action: recovery.Finish, want: true},
		"given up":                   {link: first, action: recovery.GiveUp, want: true},
		"requeued":                   {action: recovery.Requeue},
		"not requeued":               {action: recovery.Requeue, err: errNotRequeued, want: true},
		"not requeued, but a link":   {link: first, action: recovery.Requeue, err: errNotRequeued},
		"the last link not requeued": {link: last, action: recovery.Requeue, err: errNotRequeued, want: true},
		"a link":                     {link: first, action: recovery.EndLink},
		"the last link":              {link: last, action: recovery.EndLink, want: true},
		"another's":                  {action: recovery.GiveUp, err: rundir.ErrSuperseded},
	} {
		if got := (&Attempt{Link: tc.link}).IsLast(Ending{Decision: recovery.Decision{Action: tc.action}}, tc.err); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

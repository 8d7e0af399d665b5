package resume

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

// world is a run whose job 12 has ended, and a simulated Slurm.
type world struct {
	*fakeslurm.Slurm
	t   *testing.T
	run *rundir.Dir
}

func newWorld(t *testing.T, kind string) *world {
	t.Helper()
	w := &world{fakeslurm.New(t), t, fakeslurm.RunOf(t, kind, "/bin/true", "")}
	w.WithoutAccounting()
	w.Must(w.run.SetJobID("12"))
	w.Must(w.run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventSubmit, Detail: "job 12"}))
	w.QueueOf(w.run, "12 FAILED")
	return w
}

// done adds an attempt of job 12 that has done everything.
func (w *world) done() {
	w.t.Helper()
	n, err := w.run.ClaimAttempt()
	w.Must(err)
	w.Must(w.run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventBegin, Attempt: n, Job: "12"}))
	w.Must(w.run.WriteVerdict(rundir.Verdict{Attempt: n, JobID: "12", Cause: "done", Message: "done", Time: time.Now()}))
}

// resumer returns a Resumer that renders no script, but writes down for which run and for which words it would.
func (w *world) resumer(sets, words []string) *Resumer {
	parent := filepath.Dir(w.run.Path())
	client, log := &slurm.Client{Environ: w.Environ(0, 0)}, slog.New(slog.DiscardHandler)
	return &Resumer{
		Env:  submission.Env{Hostname: "login1", Now: time.Now, Log: log, Slurm: client},
		View: &runview.Viewer{Slurm: client, Now: time.Now, From: text.Dir(parent), Out: io.Discard, Err: io.Discard, Log: log},
		Warn: func([]jobfile.Fault) {}, Sets: sets, Words: words,
		Write: func(run *rundir.Dir, _ *jobfile.Job, sbatch []string) error {
			return run.WriteScript(fmt.Sprintf("%s %q", run.Path(), sbatch))
		},
	}
}

func TestCheckSaysWhatForbidsAResume(t *testing.T) {
	const again = `; to run it again with other arguments: ddpbatch resume RUN --set 'launch.command=["true"]'`
	for name, test := range map[string]struct {
		done        bool     // job 12 has done everything
		lost        bool     // a later submission has no recorded result
		queue       []string // nil: Slurm does not answer
		none        bool     // none of Slurm's commands is on this machine
		sets, words []string
		finished    string
		says        string // of the error
		misused     bool
	}{
		"it has ended":       {queue: []string{}},
		"it runs":            {queue: []string{"12 RUNNING"}, says: "job 12 is still RUNNING; wait for its end", misused: true},
		"Slurm cleans up":    {queue: []string{"12 COMPLETING"}, says: "job 12 is still COMPLETING; wait for its end", misused: true},
		"another of its own": {queue: []string{"12 FAILED", "9 PENDING"}, says: "job 9 is still PENDING", misused: true},
		"no answer":          {says: "cannot reach"},
		"no Slurm":           {queue: []string{}, none: true, says: slurm.ErrNoSlurm.Error()},
		"lost, and runs": {lost: true, queue: []string{"12 FAILED", "13 RUNNING"},
			says: "job 13 is still RUNNING", misused: true},
		"lost, and no answer":      {lost: true, says: "cannot reach"},
		"lost, and Slurm has none": {lost: true, queue: []string{"12 FAILED"}},

		"finished":                {done: true, queue: []string{"12 COMPLETED"}, finished: "x is finished" + again},
		"finished, and no answer": {done: true, says: "cannot reach"},
		"finished, another runs": {done: true, queue: []string{"12 COMPLETED", "13 RUNNING"},
			says: "job 13 is still RUNNING", misused: true},
		"finished, and more to do": {done: true, queue: []string{"12 COMPLETED"}, sets: []string{"launch.command=[\"false\"]"}},
		"finished, and words": {
			done: true, queue: []string{"12 COMPLETED"}, words: []string{"--qos=x"}, misused: true,
			says: "\"--qos=x\" has no effect (words after -- go to sbatch)" + again,
		},
		"finished, and nothing to do": {
			done: true, queue: []string{"12 COMPLETED"}, sets: []string{"slurm.nodes=2"},
			finished: "x is finished, and --set slurm.nodes=2 gives it nothing more to do" + again,
		},
		"finished, and how failures are treated": {
			done: true, queue: []string{"12 COMPLETED"}, sets: []string{"launch.max_restarts=2", "launch.hang=5m", "mpi.timeout=5m"},
			finished: "x is finished, and --set launch.max_restarts=2 gives it nothing more to do" + again,
		},
		"finished, and a misspelled key": { // the error follows
			done: true, queue: []string{"12 COMPLETED"}, sets: []string{"launch.comand=[\"false\"]"},
		},
		"finished, and the other kind's key": {
			done: true, queue: []string{"12 COMPLETED"}, sets: []string{"launch.command=[\"a\"]", "train.epochs=6"}, misused: true,
			says: "--set train.epochs has no effect: the run is of a command, and [train] is for the built-in trainer; " +
				"give the program other arguments: ddpbatch resume RUN --set 'launch.command=[\"true\"]'",
		},
		"the other kind's key": {
			queue: []string{}, sets: []string{"train.epochs=6"}, misused: true, says: "--set train.epochs has no effect",
		},
		"read of a command": {queue: []string{}, sets: []string{"train.evaluate.metric=loss"}},

		"anew, and some elements alone": {
			queue: []string{"12 FAILED"}, sets: []string{"checkpoint.resume=never"}, words: []string{"--array=1"},
			says: "for one element: ddpbatch resume RUN", misused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "slurm")
			if test.done {
				w.done()
			}
			if test.lost {
				fakeslurm.CutShort(t, w.run)
			}
			if w.QueueOf(w.run, test.queue...); test.queue == nil {
				w.Says("squeue.err", fakeslurm.Silence)
			}
			r := w.resumer(test.sets, test.words)
			if test.none { // this machine may have its own Slurm
				r.Env.Slurm.Environ = []string{"PATH=" + w.Dir}
				w.Must(os.Remove(filepath.Join(w.Dir, "squeue")))
			}
			finished, err := r.Check(t.Context(), w.run)
			said := ""
			if err != nil {
				said = err.Error()
			}
			named := strings.NewReplacer(filepath.Base(w.run.Path()), "RUN")
			finished, said = named.Replace(finished), named.Replace(said)
			unknown := errors.Is(err, slurm.ErrUnreachable) || errors.Is(err, slurm.ErrNoSlurm) // each has its own exit code
			if want := test.queue == nil || test.none; unknown != want {
				t.Errorf("error %q, and that Slurm cannot be asked: %v", said, unknown)
			}
			if strings.Contains(said, "COMPLETING") && strings.Contains(said, "cancel") {
				t.Errorf("there is nothing to cancel: %q", said)
			}
			_, misused := errors.AsType[*usage.Error](err)
			if finished != test.finished || misused != test.misused || !strings.Contains(said, test.says) || test.says == "" && said != "" {
				t.Errorf("finished %q, error %q (usage: %v); want %q, %q", finished, said, misused, test.finished, test.says)
			}
		})
	}
}

// If Slurm refused a submission, or was not asked, its settings are undone. If Slurm may have accepted it, they stay.
func TestSubmitUndoesWhatSlurmRefused(t *testing.T) {
	for name, test := range map[string]struct {
		sbatch  string // shell lines
		prepare func(*world, *Resumer)
		says    string
		code    int
		nodes   int // in the spec at the end
	}{
		"taken":   {sbatch: "echo 13; exit 0", nodes: 2},
		"refused": {sbatch: "echo 'Invalid partition' >&2; exit 1", says: "Invalid partition", nodes: 1},
		"perhaps taken": {
			sbatch: "echo 'Zero Bytes were transmitted or received' >&2; exit 1", nodes: 2,
			says: "Slurm may have accepted the job nevertheless: check with ddpbatch status ",
		},
		"no script": {
			prepare: func(_ *world, r *Resumer) {
				r.Write = func(*rundir.Dir, *jobfile.Job, []string) error { return errors.New("the script is too long") }
			},
			says: "the script is too long", nodes: 1,
		},
		"wrong settings": {prepare: func(_ *world, r *Resumer) { r.Sets = append(r.Sets, "slurm.nodes=none") },
			says: "slurm.nodes", nodes: 1},
		"another command's": {
			prepare: func(w *world, r *Resumer) {
				fakeslurm.ClaimByOther(w.t, w.run)
				r.Write = func(*rundir.Dir, *jobfile.Job, []string) error { w.t.Error("writes the script"); return nil }
			},
			says: "nothing was submitted: this process was stopped too long", code: exit.Usage, nodes: 1,
		},
		"another command's, which has it since the script": { // by then the spec belongs to the other command
			prepare: func(w *world, r *Resumer) {
				r.Write = func(*rundir.Dir, *jobfile.Job, []string) error { fakeslurm.ClaimByOther(w.t, w.run); return nil }
			},
			says: "nothing was submitted: this process was stopped too long", code: exit.Usage, nodes: 2,
		},
		"another command's, which has it since sbatch": {
			prepare: func(w *world, _ *Resumer) { w.First("sbatch", w.LinesClaimByOther(w.run)) },
			sbatch:  "echo 13; exit 0", says: "job 13 was submitted too late: ", code: exit.Usage, nodes: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "slurm")
			w.First("sbatch", test.sbatch)
			r := w.resumer([]string{"slurm.nodes=2"}, []string{"--qos=x"})
			release, claim, err := r.Claim(t.Context(), w.run)
			w.Must(err)
			defer release()
			if test.prepare != nil {
				test.prepare(w, r)
			}
			job, id, err := r.Submit(t.Context(), w.run, claim)
			said, code := "", 0
			if err != nil {
				said = err.Error()
				if coded, ok := errors.AsType[*exit.Error](err); ok {
					code = coded.Code
				}
			}
			perhaps := strings.Contains(said, "may have accepted")
			if !strings.Contains(said, test.says) || (said == "") != (test.says == "") ||
				perhaps != (name == "perhaps taken") || code != test.code {
				t.Errorf("exit code %d: %s", code, said)
			}
			if is := errors.Is(err, slurm.ErrRefused); is != (name == "refused") {
				t.Errorf("refused by Slurm: %v", is)
			}
			if (err == nil) != (len(id) == 1 && id[0] == "13") || (err == nil) != (job != nil && job.Nodes() == 2) {
				t.Errorf("job %q, %+v", id, job)
			}
			again, err := rundir.Open(w.run.Path())
			w.Must(err)
			if again.Spec().Nodes != test.nodes || again.Spec().Nodes != w.run.Spec().Nodes {
				t.Errorf("the spec has %d nodes, and here %d; want %d", again.Spec().Nodes, w.run.Spec().Nodes, test.nodes)
			}
			if calls := strings.Join(w.Calls(), "\n"); test.sbatch == "" && strings.Contains(calls, "sbatch") {
				t.Errorf("ran %q", calls)
			}
		})
	}
}

// To resume one element, the array is submitted for only that element: the script and the ledger are those of the array, and its settings
// return if Slurm refuses.
func TestSubmitOfOneElementIsTheArrays(t *testing.T) {
	w := newWorld(t, "slurm")
	element, err := w.run.Task(3)
	w.Must(err)
	for _, refused := range []bool{true, false} {
		answer := `echo "$*" >'` + w.Dir + `/asked'; echo 13`
		if refused {
			answer = "echo 'Invalid partition' >&2; exit 1"
		}
		w.Says("sbatch", "#!/bin/sh\n"+answer+"\n")
		r := w.resumer([]string{"slurm.nodes=2"}, []string{"--qos=x"})
		release, claim, err := r.Claim(t.Context(), element)
		w.Must(err)
		_, id, err := r.Submit(t.Context(), element, claim)
		release()
		if (err != nil) != refused || (len(id) == 1 && id[0] == "13") == refused || (w.run.Spec().Nodes == 1) != refused {
			t.Errorf("refused %v: job %q, %v, %d nodes", refused, id, err, w.run.Spec().Nodes)
		}
	}
	for want, words := range map[string][]string{"1 of 6 elements: 3": {"--qos=x"}, "": {"--array=1"}} {
		array, err := jobfile.OfRun(fakeslurm.NewArray(t, "0-5").Run)
		w.Must(err)
		if got := w.resumer(nil, words).Part(element, array); got != want {
			t.Errorf("with %q it runs %q, want %q", words, got, want)
		}
	}
	asked, err := os.ReadFile(filepath.Join(w.Dir, "asked"))
	if want := "--parsable --array=3 --qos=x " + w.run.ScriptPath() + "\n"; err != nil || string(asked) != want {
		t.Errorf("sbatch was asked %q, %v; want %q", asked, err, want)
	}
	script, err := os.ReadFile(w.run.ScriptPath())
	if want := w.run.Path() + ` ["--array=3" "--qos=x"]`; err != nil || string(script) != want {
		t.Errorf("the script is %q, %v; want %q", script, err, want)
	}
	if got := fakeslurm.Events(t, element); !slices.Equal(got, []string{rundir.EventResume}) {
		t.Errorf("the element's ledger %q", got)
	}
}

// If a process that simulates the run holds the claim, the error says that the run has not ended.
func TestClaimOfASimulationMeansARunningRun(t *testing.T) {
	w := newWorld(t, "simulate")
	id := fmt.Sprint(os.Getpid())
	w.Must(w.run.SetJobID(id))
	r := w.resumer(nil, nil)
	release, _, err := r.Claim(t.Context(), w.run)
	w.Must(err)
	for _, says := range []string{
		"another command has claimed this run: resume by process " + id, "job " + id + " is still RUNNING; wait for its end",
	} {
		if _, _, err := r.Claim(t.Context(), w.run); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v; want %s", err, says)
		}
		log, err := os.Create(w.run.SlurmLogPath(id)) // the log that shows that this process simulates the run
		w.Must(err)
		defer log.Close()
	}
	release()

	// an error of the file system does not mean that the run has not ended
	claims := filepath.Join(w.run.Path(), "claims")
	w.Must(os.RemoveAll(claims))
	w.Must(os.WriteFile(claims, nil, 0o600))
	_, _, err = r.Claim(t.Context(), w.run)
	if err == nil || !strings.Contains(err.Error(), "claim the run ") || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("without a folder of claims: %v", err)
	}
}

// A lost job may be that of an array, or of only one element of it. The check finds it for what was resumed, both before it is recorded and
// afterwards.
func TestCheckFindsALostArraysJob(t *testing.T) {
	for name, alone := range map[string]bool{"all of it": false, "an element": true} {
		t.Run(name, func(t *testing.T) {
			a := fakeslurm.NewArray(t, "0-2")
			a.Submitted("12")
			one := a.Ran(1, "12", 3)
			a.Ran(0, "12", 0)
			a.Ran(2, "12", 0)
			lost, want := "13_[0-2] PENDING", "0 of 3 elements are done"
			if alone {
				lost, want = "13_[1] PENDING", "2 of 3 elements are done"
				fakeslurm.CutShort(t, a.Run, 1)
			} else {
				fakeslurm.CutShort(t, a.Run)
			}
			a.Queue(lost)
			r := (&world{a.Slurm, t, a.Run}).resumer(nil, nil)
			status := func(when string) {
				t.Helper()
				row, err := r.View.Status(t.Context(), a.Run)
				if err != nil || row.State != "PENDING" || row.Exit != nil || row.Message != want {
					t.Errorf("%s it is recorded: %+v, %v; want %s", when, row, err, want)
				}
			}
			status("before")
			_, err := r.Check(t.Context(), one)
			if err == nil || !strings.HasPrefix(err.Error(), "job 13_1 is still PENDING") {
				t.Errorf("resume of an element: %v", err)
			}
			status("once")
			if id, err := runview.NewestJob(one); id != "13_1" || err != nil {
				t.Errorf("the element's job is %s, %v", id, err)
			}
		})
	}
}

// A resume of an array, or of a sweep, submits the elements that are not done. It also submits the others if its settings give them
// something to do.
func TestResumeRunsWhatIsLeftOfAnArray(t *testing.T) {
	for name, test := range map[string]struct {
		lines  string // of the job file
		codes  []int  // of the elements that have run
		sets   []string
		sbatch string // the words for sbatch
		spans  string // in the ledger
		part   string // what Part says
	}{
		"some failed, one is missing": {"[slurm]\narray = \"0-4%2\"", []int{0, 3, 0, 4}, nil, "--array=1,3-4%2 --qos=x", "[[1 1] [3 4]]",
			"3 of 5 elements: 1,3-4"},
		"all failed": {"[slurm]\narray = \"0-1\"", []int{3, 3}, nil, "--qos=x", "[]", ""},
		"none ran":   {"[slurm]\narray = \"0-1\"", nil, nil, "--qos=x", "[]", ""},
		"more to do": {"[slurm]\narray = \"0-1\"", []int{0, 3}, []string{`launch.command=["false"]`}, "--qos=x", "[]", ""},
		"other limits": {"[slurm]\narray = \"0-1\"", []int{0, 3}, []string{"slurm.time=5"}, "--array=1 --qos=x", "[[1 1]]",
			"1 of 2 elements: 1"},
		"how many of a sweep at once": {"[sweep]\nparallel = 1\n\"setup.env.A\" = \"1-3\"", []int{0, 3}, []string{"sweep.parallel=2"},
			"--array=1-2%2 --qos=x", "[[1 2]]", "2 of 3 elements: 1-2"},
		"a sweep": {"[sweep]\nparallel = 1\n\"setup.env.A\" = \"1-3\"", []int{0, 3}, nil,
			"--array=1-2%1 --qos=x", "[[1 2]]", "2 of 3 elements: 1-2"},
	} {
		t.Run(name, func(t *testing.T) {
			a := fakeslurm.NewArrayOf(t, test.lines+"\n")
			a.Submitted("12")
			for index, code := range test.codes {
				a.Ran(index, "12", code)
			}
			a.Queue("12 CANCELLED")
			a.First("sbatch", "echo 13")
			r := (&world{a.Slurm, t, a.Run}).resumer(test.sets, []string{"--qos=x"})
			release, claim, err := r.Claim(t.Context(), a.Run)
			a.Must(err)
			defer release()
			if finished, err := r.Check(t.Context(), a.Run); finished != "" || err != nil {
				t.Fatalf("%q, %v", finished, err)
			}
			job, ids, err := r.Submit(t.Context(), a.Run, claim)
			if !slices.Equal(ids, []string{"13"}) || err != nil {
				t.Fatalf("jobs %s, %v", ids, err)
			}
			if got := r.Part(a.Run, job); got != test.part {
				t.Errorf("it runs %q, want %q", got, test.part)
			}
			calls := slices.DeleteFunc(a.Calls(), func(call string) bool { return !strings.HasPrefix(call, "sbatch ") })
			if want := "sbatch --parsable " + test.sbatch + " " + a.Run.ScriptPath(); len(calls) != 1 || calls[0] != want {
				t.Errorf("calls %q, want %q", calls, want)
			}
			history, err := a.Run.Ledger()
			a.Must(err)
			last := history[len(history)-1]
			if id, _ := last.SubmittedJob(); id != "13" || fmt.Sprint(last.Spans) != test.spans {
				t.Errorf("the ledger ends with %+v, want job 13 with the elements %s", last, test.spans)
			}
		})
	}
}

// A resume --set that gives finished elements something to do may end before all of them have begun. The next resume runs the rest.
func TestResumeRunsWhatHasNotHadItsMore(t *testing.T) {
	a := fakeslurm.NewArray(t, "0-1")
	a.Submitted("12")
	a.Ran(0, "12", 0)
	one := a.Ran(1, "12", 0)
	a.Queue("12_0 COMPLETED", "12_1 COMPLETED")
	w := &world{a.Slurm, t, a.Run}
	check := func(r *Resumer, run *rundir.Dir) string {
		t.Helper()
		finished, err := r.Check(t.Context(), run)
		a.Must(err)
		return finished
	}
	if finished := check(w.resumer(nil, nil), a.Run); finished == "" {
		t.Fatal("it is not finished at first")
	}
	r := w.resumer([]string{`launch.command=["false"]`}, nil)
	check(r, a.Run)
	if _, err := r.Job(t.Context(), a.Run); err != nil {
		t.Fatal(err)
	}
	a.Must(a.Run.FinalizeOverride(true))
	a.Ran(0, "12", 0) // its job ids tell nothing, as in a simulated run
	for range 2 {
		r := w.resumer(nil, nil)
		finished := check(r, a.Run)
		job, err := jobfile.OfRun(a.Run)
		a.Must(err)
		if left := r.Left(job); finished != "" || !slices.Equal(left, []int{1}) {
			t.Errorf("%q, left are %v", finished, left)
		}
		if finished := check(w.resumer(nil, nil), one); finished != "" {
			t.Errorf("of the element: %q", finished)
		}
		a.Queue()
	}
	a.Ran(1, "12", 0)
	if finished := check(w.resumer(nil, nil), a.Run); finished == "" {
		t.Error("it is not finished in the end")
	}
}

// A resume cannot change an element of a sweep, and cannot turn a run into a sweep.
func TestResumeKeepsASweep(t *testing.T) {
	for _, set := range []string{"sweep={}", "sweep.seed=1-9", "sweep.mode=zip"} {
		_, err := newWorld(t, "slurm").resumer([]string{set}, nil).Check(t.Context(), nil)
		if _, misused := errors.AsType[*usage.Error](err); !misused ||
			!strings.Contains(err.Error(), "cannot be changed") {
			t.Errorf("%s: %v", set, err)
		}
	}
}

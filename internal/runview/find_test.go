package runview

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
)

// finder returns a Viewer that looks for runs from a person's working directory.
func finder(p *fakeslurm.Slurm, from string, log *bytes.Buffer) *Viewer {
	v := viewerOf(p)
	v.From, v.Log = text.Dir(from), slog.New(slog.NewTextHandler(log, nil))
	return v
}

// What a person types is a path if it looks like one. Otherwise it is a job, or a run in runs. Last, it is a folder in the working
// directory, which is never taken for a job, whatever its name.
func TestFindTakesPathsJobsAndRuns(t *testing.T) {
	p := fakeslurm.New(t)
	run, other := fakeslurm.Run(t, ""), fakeslurm.Run(t, "")
	runs, here := filepath.Dir(run.Path()), filepath.Dir(other.Path())
	p.Must(run.SetJobID("12"))
	p.Must(other.SetJobID("77"))
	element, err := run.Task(3)
	p.Must(err)
	p.Must(element.SetJobID("12_3"))
	for _, name := range []string{filepath.Base(run.Path()), "mine", "12", "99", "x-12"} { // these are also names in runs, or of jobs
		p.Must(os.CopyFS(filepath.Join(here, name), os.DirFS(other.Path())))
	}
	const none = "no such run"
	var log bytes.Buffer
	for name, want := range map[string]struct{ path, id, says string }{
		run.Path():                       {run.Path(), "12", ""},
		run.Path() + "/":                 {run.Path(), "12", ""},
		run.Path() + "/tasks/3":          {element.Path(), "12_3", ""},
		run.Path() + "/tasks/4":          {says: "array element 4 does not exist in " + run.Path() + ", which is not an array"},
		"12":                             {run.Path(), "12", ""},
		"12_3":                           {element.Path(), "12_3", ""},
		"12_4":                           {says: "array element 4 does not exist in " + run.Path() + ", which is not an array"},
		"x-12":                           {run.Path(), "12", ""},
		runs + "/x-12/tasks/3":           {element.Path(), "12_3", ""},
		runs + "/x-12/tasks/4":           {says: "array element 4 does not exist in " + run.Path() + ", which is not an array"},
		filepath.Base(run.Path()):        {run.Path(), "12", ""},
		"./" + filepath.Base(run.Path()): {filepath.Join(here, filepath.Base(run.Path())), "77", ""},
		"./12":                           {filepath.Join(here, "12"), "77", ""},
		"mine":                           {filepath.Join(here, "mine"), "77", ""},
		"99":                             {says: none},
		"12+1":                           {says: none}, // squeue's name of a component of a heterogeneous job
		"missing":                        {says: none},
		"./missing":                      {says: none},
		here:                             {says: none},
		"":                               {says: none},
	} {
		got, id, err := finder(p, here, &log).Find(runs, name)
		_, misused := errors.AsType[*usage.Error](err)
		switch {
		case want.says != "" && (!misused || !strings.HasPrefix(err.Error(), want.says)):
			t.Errorf("%q: %v, %v; want %s", name, got, err, want.says)
		case want.says == "" && (err != nil || got.Path() != want.path || id != want.id):
			t.Errorf("%q: %v, job %q, %v; want %s, %s", name, got, id, err, want.path, want.id)
		}
	}
	if log.Len() > 0 {
		t.Errorf("said %s", &log)
	}
}

// If an element of an array was resumed alone, a path means all jobs of the array, and an id means that job. An element that waits is found
// at its place in the array.
func TestFindJobsKnowsElementsResumedAlone(t *testing.T) {
	a := fakeslurm.NewArray(t, "0-3")
	a.Submitted("12")
	one := a.Ran(1, "12", 3)
	a.Submitted("13", one)
	runs := filepath.Dir(a.Run.Path())
	var log bytes.Buffer
	for name, want := range map[string]struct {
		path string
		ids  []string
		says string
	}{
		a.Run.Path():                {a.Run.Path(), []string{"12", "13"}, ""},
		filepath.Base(a.Run.Path()): {a.Run.Path(), []string{"12", "13"}, ""},
		"12":                        {a.Run.Path(), []string{"12"}, ""},
		"13":                        {a.Run.Path(), []string{"13"}, ""},
		"x-12":                      {a.Run.Path(), []string{"12", "13"}, ""},
		"12_1":                      {one.Path(), []string{"13_1"}, ""},
		a.Run.Path() + "/tasks/1":   {one.Path(), []string{"13_1"}, ""},
		"12_2":                      {a.Run.Path(), []string{"12_2"}, ""},
		a.Run.Path() + "/tasks/2":   {a.Run.Path(), []string{"12_2"}, ""},
		"12_4":                      {says: "array element 4 does not exist in " + a.Run.Path() + "; its elements are 0-3"},
		"14":                        {says: "no such run"},
	} {
		got, ids, err := finder(a.Slurm, "/", &log).FindJobs(runs, name)
		switch {
		case want.says != "" && (err == nil || !strings.HasPrefix(err.Error(), want.says)):
			t.Errorf("%s: %v, %v; want %s", name, got, err, want.says)
		case want.says == "" && (err != nil || got.Path() != want.path || !slices.Equal(ids, want.ids)):
			t.Errorf("%s: %v, jobs %q, %v; want %s, %q", name, got, ids, err, want.path, want.ids)
		}
	}
	v := finder(a.Slurm, "/", &log)
	v.Elsewhere = func() []*rundir.Dir { return []*rundir.Dir{a.Run} } // the run whose element is named
	if _, _, err := v.Find(runs, "13_4"); err == nil || !strings.HasSuffix(err.Error(), "; its elements are 0-3") {
		t.Errorf("an element that the array does not have: %v", err)
	}
	older, newer := fakeslurm.Run(t, ""), fakeslurm.Run(t, "") // of a cluster before it was rebuilt, and after
	a.Must(older.SetJobID("99"))
	a.Must(newer.SetJobID("99"))
	v.Elsewhere = func() []*rundir.Dir { return []*rundir.Dir{older, newer, older} }
	if _, _, err := v.Find(runs, "99"); err == nil || !strings.Contains(err.Error(), "; a job 99 is in "+newer.Path()) {
		t.Errorf("a job elsewhere, of two runs: %v", err)
	}
	waits := "element 2 of the array " + a.Run.Path() + " has not begun yet"
	if _, _, err := finder(a.Slurm, "/", &log).Find(runs, "12_2"); err == nil || err.Error() != waits {
		t.Errorf("Find of one that waits: %v", err)
	}

	// a simulated array is one process, and has no jobs in Slurm
	simulated := fakeslurm.RunOf(t, "simulate", "/bin/true", "[slurm]\narray = \"0-1\"\n")
	a.Must(simulated.SetJobID("77"))
	got, ids, err := finder(a.Slurm, "/", &log).FindJobs(runs, simulated.Path())
	if err != nil || got.Path() != simulated.Path() || !slices.Equal(ids, []string{"77"}) {
		t.Errorf("%v, %q, %v", got, ids, err)
	}
	_, _, err = finder(a.Slurm, "/", &log).FindJobs(runs, simulated.Path()+"/tasks/1")
	if err == nil || !strings.HasSuffix(err.Error(), "has not begun yet") {
		t.Errorf("a simulated element that waits: %v", err)
	}
}

// A warning appears if a job id leads to another user's run, or if a path ends in a job's name. A path that exists causes no warning,
// because the person has chosen it.
func TestFindWarnsOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a run of another user")
	}
	p, run := fakeslurm.New(t), fakeslurm.Run(t, "")
	p.Must(run.SetJobID("12"))
	link := filepath.Join(filepath.Dir(run.Path()), ".job-x-12")
	p.Must(errors.Join(os.Lchown(run.Path(), 4242, 4242), os.Lchown(link, 4242, 4242)))
	for name, warned := range map[string]bool{
		"12": true, "x-12": true, filepath.Join(filepath.Dir(run.Path()), "x-12"): true, run.Path(): false, run.Path() + "/": false,
	} {
		var log bytes.Buffer
		found, _, err := finder(p, "/", &log).Find(filepath.Dir(run.Path()), name)
		if err != nil || found.Path() != run.Path() {
			t.Errorf("%s: %v, %v", name, found, err)
		}
		if said := strings.Contains(log.String(), "this is the run of another user"); said != warned {
			t.Errorf("%s: said %q", name, &log)
		}
	}
}

package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

func TestOpen(t *testing.T) {
	parent := t.TempDir()
	d := create1(t, parent, "x")
	base := filepath.Base(d.Path())
	must(t, os.Symlink(base, filepath.Join(parent, "relative")))
	must(t, os.Symlink(filepath.Join(parent, "relative"), filepath.Join(parent, "absolute")))
	must(t, os.Symlink("loop", filepath.Join(parent, "loop")))
	for _, name := range []string{base, "relative", "absolute", base + "/", "./" + base} {
		got, err := Open(filepath.Join(parent, name))
		if err != nil || got.Path() != d.Path() {
			t.Errorf("Open(%s) = %v, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "nothing", "loop", base + "/bin"} {
		if got, err := Open(filepath.Join(parent, name)); err == nil {
			t.Errorf("Open(%q) opened %s", name, got.Path())
		}
	}
	if _, err := Open(filepath.Join(parent, "nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error for what is not there: %v", err)
	}
}

func TestOpenRefusesABadSpec(t *testing.T) {
	for name, text := range map[string]string{
		"empty":            "",
		"not JSON":         "x",
		"cut":              `{"schema":1,"name":"x"`,
		"schema too new":   `{"schema":2,"name":"x"}`,
		"name leaves":      `{"schema":1,"name":"../../x"}`,
		"hidden name":      `{"schema":1,"name":".x"}`,
		"negative nodes":   `{"schema":1,"name":"x","nodes":-1}`,
		"nodes not number": `{"schema":1,"name":"x","nodes":"2"}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, "spec.json"), []byte(text), 0o600))
			if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "spec.json") {
				t.Errorf("error is %v", err)
			}
		})
	}
	t.Run("too long", func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "spec.json")
		must(t, os.WriteFile(path, nil, 0o600))
		must(t, os.Truncate(path, maxSpec+1)) // sparse
		if _, err := Open(dir); err == nil {
			t.Error("opened")
		}
	})
	t.Run("a pipe does not block", func(t *testing.T) {
		if _, err := Open(filepath.Dir(renamed(t, fifo(t), "spec.json"))); !errors.Is(err, vfs.ErrNotRegular) {
			t.Errorf("error is %v", err)
		}
	})
}

// A run directory that a file server holds a lease in, for a client of it, opens once that is given back.
func TestOpenUnderLease(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	testkit.Lease(t, filepath.Join(d.Path(), "spec.json"))
	if _, err := Open(d.Path()); err != nil {
		t.Error(err)
	}
}

func renamed(t *testing.T, path, name string) string {
	t.Helper()
	to := filepath.Join(filepath.Dir(path), name)
	must(t, os.Rename(path, to))
	return to
}

func TestTask(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	task, err := d.Task(3)
	must(t, err)
	if want := filepath.Join(d.Path(), "tasks", "3"); task.Path() != want {
		t.Fatalf("path is %s, want %s", task.Path(), want)
	}
	if task.Spec().Run != d.Spec().Run || task.Binary() != d.Binary() || task.JobFilePath() != d.JobFilePath() ||
		task.ScriptPath() != d.ScriptPath() || task.SpecPath() != d.SpecPath() {
		t.Error("an array element does not share its run's spec, program, job file or script")
	}
	n, err := task.ClaimAttempt()
	must(t, err)
	must(t, task.WriteVerdict(Verdict{Attempt: n, Cause: "done", FirstRank: -1}))
	must(t, task.Append(Event{Event: "end"}))
	must(t, task.SetJobID("12_3"))
	if newest, err := d.NewestAttempt(); newest != 0 || err != nil {
		t.Errorf("the run itself has attempt %d, %v", newest, err)
	}
	if id, err := d.JobID(); id != "" || err != nil {
		t.Errorf("the run itself has job id %q, %v", id, err)
	}
	// A worker opens what DDPBATCH_RUN_DIR says.
	again, err := Open(task.Path())
	must(t, err)
	if v, err := again.Verdict(n); err != nil || v.Cause != "done" {
		t.Errorf("verdict is %+v, %v", v, err)
	}
	if id, err := again.JobID(); id != "12_3" || err != nil {
		t.Errorf("job id is %q, %v", id, err)
	}
	if _, err := task.Task(1); err == nil {
		t.Error("an array element has an element")
	}
	if _, err := d.Task(-1); err == nil {
		t.Error("element -1 was made")
	}
	must(t, os.MkdirAll(filepath.Join(task.Path(), "tasks", "1"), 0o700))
	for _, path := range []string{filepath.Join(task.Path(), "tasks", "1"), filepath.Join(d.Path(), "tasks", "4")} {
		if _, err := Open(path); err == nil {
			t.Errorf("%s was opened", path)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "tasks", "3")); err == nil {
		t.Error("an element of nothing was opened")
	}
}

// TestSettle holds that a job that the checkpoints do not fit is taken back, to what last fitted.
func TestSettle(t *testing.T) {
	for _, fits := range []bool{true, false} {
		d := create1(t, t.TempDir(), "job")
		first := d.Spec()
		must(t, d.Settle(false)) // nothing is on trial
		for _, set := range []string{"a=1", "a=2"} {
			must(t, d.WriteSpec(d.Spec().Override(Overridden{Sets: []string{set}, Anew: 2, WorkDir: "/w", Nodes: 3, Job: []byte(`{"a":1}`)})))
		}
		must(t, d.Settle(fits))
		again, err := Open(d.Path())
		must(t, err)
		got := again.Spec()
		if got.Before != nil || fits != (len(got.Sets) == 1 && got.Sets[0] == "a=2" && got.Anew == 2 && got.Nodes == 3) || !fits && (len(got.Sets) != 0 || got.Anew != 0 || got.Nodes != first.Nodes || got.WorkDir != first.WorkDir) {
			t.Errorf("fits %v: %+v", fits, got)
		}
	}
}

// TestSettleOfAnElement holds that what one element of an array is resumed with stays on trial until that one has ended: another one, whose job of
// before ends meanwhile, says nothing about it. A change of the whole array is settled by any.
func TestSettleOfAnElement(t *testing.T) {
	five, kept, taken := 5, []string{"a=1"}, []string(nil)
	for name, test := range map[string]struct {
		element *int // that is resumed; nil: all
		ended   []int
		fits    []bool
		want    []string
		trial   bool
	}{
		"another ends well":                  {&five, []int{7}, []bool{true}, kept, true},
		"another is refused":                 {&five, []int{7}, []bool{false}, kept, true},
		"it is refused after another":        {&five, []int{7, 5}, []bool{true, false}, taken, false},
		"it ends well, and then another not": {&five, []int{5, 7}, []bool{true, false}, kept, false},
		"the array, one ends well":           {nil, []int{7, 5}, []bool{true, false}, kept, false},
		"the array, one is refused":          {nil, []int{7}, []bool{false}, taken, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := create1(t, t.TempDir(), "job")
			must(t, d.WriteSpec(d.Spec().Override(Overridden{Element: test.element, Sets: kept, WorkDir: "/w", Nodes: 2, Job: []byte(`{"a":2}`)})))
			for i, index := range test.ended {
				run, err := Open(d.Path())
				must(t, err)
				element, err := run.Task(index)
				must(t, err)
				must(t, element.Settle(test.fits[i]))
			}
			again, err := Open(d.Path())
			must(t, err)
			if got := again.Spec(); !slices.Equal(got.Sets, test.want) || (got.Before != nil) != test.trial {
				t.Errorf("sets %q, before %+v; want %q, on trial %t", got.Sets, got.Before, test.want, test.trial)
			}
		})
	}
}

// TestOverrideAgain holds that the trial is of the newest change, and that what comes back is what was there before the first.
func TestOverrideAgain(t *testing.T) {
	five, seven := 5, 7
	d := create1(t, t.TempDir(), "job")
	for _, o := range []Overridden{{Element: &five, Sets: []string{"a=1"}}, {Element: &seven, Sets: []string{"a=1", "b=1"}}} {
		o.WorkDir, o.Nodes, o.Job = "/w", 2, []byte(`{"a":2}`)
		must(t, d.WriteSpec(d.Spec().Override(o)))
	}
	for _, test := range []struct{ index, sets int }{{five, 2}, {seven, 0}} {
		element, err := d.Task(test.index)
		must(t, err)
		must(t, element.Settle(false))
		if got := d.Spec().Sets; len(got) != test.sets {
			t.Errorf("after element %d was refused: %q", test.index, got)
		}
	}
}

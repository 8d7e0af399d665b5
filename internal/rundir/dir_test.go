package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

func TestOpenFollowsLinks(t *testing.T) {
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

// A file server may hold a lease on a file in a run directory for one of its clients. Open succeeds once the lease is given back.
func TestOpenWaitsForALease(t *testing.T) {
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

func TestTaskIsAnElementsFolder(t *testing.T) {
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
	// A worker opens the path in DDPBATCH_RUN_DIR.
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

// TestElementsAreFoundInOrder: elements are listed by their numbers. A folder with another kind of name is not an element.
func TestElementsAreFoundInOrder(t *testing.T) {
	d := create1(t, t.TempDir(), "job")
	if found, err := d.Elements(); len(found) > 0 || err != nil {
		t.Errorf("of no array: %v, %v", found, err)
	}
	for _, i := range []int{10, 2, 0} {
		_, err := d.Task(i)
		must(t, err)
	}
	for _, name := range []string{"x", "07", "-1", "1.5"} {
		must(t, os.Mkdir(filepath.Join(d.Path(), tasksName, name), 0o700))
	}
	must(t, os.WriteFile(filepath.Join(d.Path(), tasksName, "4"), nil, 0o600))
	found, err := d.Elements()
	must(t, err)
	var got []int
	for _, element := range found {
		index, ok := element.Index()
		if opened, err := Open(element.Path()); !ok || err != nil || opened.Path() != element.Path() {
			t.Errorf("%s: %v", element.Path(), err)
		}
		got = append(got, index)
	}
	if len(got) != 3 || got[0] != 0 || got[1] != 2 || got[2] != 10 {
		t.Errorf("elements %v", got)
	}
	if _, ok := d.Index(); ok {
		t.Error("a run has an index")
	}
}

// TestElementLedgerHasTheArraysCancels: the ledger of an element includes the cancels of the array, ordered by time, and nothing else from
// the array's ledger.
func TestElementLedgerHasTheArraysCancels(t *testing.T) {
	d := create1(t, t.TempDir(), "job")
	element, err := d.Task(3)
	must(t, err)
	at := func(seconds int, event, job string) Event {
		return Event{Time: noon.Add(time.Duration(seconds) * time.Second), Event: event, Job: job}
	}
	for _, e := range []Event{at(0, EventSubmit, ""), at(2, EventCancel, "12"), at(3, EventResume, ""), at(9, EventCancel, "13")} {
		must(t, d.Append(e))
	}
	for _, e := range []Event{at(1, EventBegin, "12_3"), at(6, EventBegin, "13_3"), at(5, EventEnd, "")} { // from the clocks of two nodes
		must(t, element.Append(e))
	}
	want := []Event{at(1, EventBegin, "12_3"), at(2, EventCancel, "12"), at(6, EventBegin, "13_3"), at(5, EventEnd, ""),
		at(9, EventCancel, "13")}
	if got, err := element.Ledger(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// TestMissingElementIsKnownAsOne: a missing element is recognized by the run's job id and by a path, and the search makes no folder.
func TestMissingElementIsKnownAsOne(t *testing.T) {
	d := create1(t, t.TempDir(), "job")
	must(t, d.SetJobID("12"))
	_, err := d.Task(3)
	must(t, err)
	for _, name := range []string{"12_7", filepath.Join(d.Path(), tasksName, "7"), filepath.Join(d.Path(), tasksName, "7") + "/"} {
		_, err := Find(filepath.Dir(d.Path()), name)
		var none *NoElementError
		if !errors.As(err, &none) || none.Run.Path() != d.Path() || none.Index != 7 || !errors.Is(err, ErrNotFound) ||
			!errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if elements, err := d.Elements(); err != nil || len(elements) != 1 {
		t.Errorf("looking made something: %v, %v", elements, err)
	}
}

func TestElementLogsAreFoundByTheirNames(t *testing.T) {
	d := create1(t, t.TempDir(), "job")
	for _, name := range []string{"slurm-12_3.log", "slurm-7_10.log", "slurm-12.log", "slurm-12_x.log", "slurm-12_4", "12_5.log",
		"slurm-12_6.log.log"} {
		must(t, os.WriteFile(filepath.Join(d.Path(), name), nil, 0o600))
	}
	if got, err := d.ElementLogs(); err != nil || !reflect.DeepEqual(got, []string{"12_3", "7_10"}) {
		t.Errorf("found %q, %v", got, err)
	}
}

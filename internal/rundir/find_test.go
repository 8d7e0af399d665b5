package rundir

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFindTakesJobsNamesAndPaths(t *testing.T) {
	parent := t.TempDir()
	older, newer := create1(t, parent, "mnist"), createAt(t, parent, "mnist", noon.Add(time.Hour))
	other := createAt(t, parent, "gpt", noon.Add(time.Minute))
	must(t, older.SetJobID("123"))
	must(t, newer.SetJobID("124"))
	must(t, other.SetJobID("23"))
	must(t, os.Symlink("mnist-20200101-000000-00000000", filepath.Join(parent, ".job-mnist-999"))) // its run was removed
	task, err := other.Task(5)
	must(t, err)
	for what, want := range map[string]*Dir{
		"123": older, "124": newer, "23": other, "23_5": task, "mnist-123": older, filepath.Join(parent, "mnist-123"): older,
		filepath.Join(parent, "gpt-23", "tasks", "5"): task, filepath.Base(newer.Path()): newer, older.Path(): older, task.Path(): task,
	} {
		got, err := Find(parent, what)
		if err != nil || got.Path() != want.Path() {
			t.Errorf("Find(%q) = %v, %v; want %s", what, got, err, want.Path())
		}
	}
	if d, err := Find(parent, "23_6"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an element that is not there is %v, %v", d, err)
	}
	if d, err := Find(parent, filepath.Join(parent, "gpt-23", "tasks", "6")); !errors.As(err, new(*NoElementError)) {
		t.Errorf("an element that is not there, by the job's name, is %v, %v", d, err)
	}
	if left := listing(t, filepath.Join(other.Path(), "tasks")); len(left) != 1 {
		t.Errorf("looking made something: %v", left)
	}
	must(t, os.Symlink(filepath.Base(older.Path()), filepath.Join(parent, ".job-nosuch\x1b]0;x\a-1")))
	for what, say := range map[string]string{
		"nosuch":    "the newest there: ", // a name that would affect a terminal is not shown
		"12":        "similar: ",
		"mnist-1":   "similar: mnist-123, mnist-124",
		"mnist-999": "similar: mnist-999, mnist-123",
		"999":       "similar: mnist-999",
		"zzz":       "the newest there: " + filepath.Base(newer.Path()) + ", " + filepath.Base(other.Path()),
		"":          "the newest there",
		"/nowhere":  "the newest there",
	} {
		d, err := Find(parent, what)
		if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), say) {
			t.Errorf("Find(%q) = %v, %v; want an error with %q", what, d, err, say)
		}
	}
	if _, err := Find(t.TempDir(), "1"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "has no runs") {
		t.Errorf("in an empty folder: %v", err)
	}
}

// Whatever a shell expands runs/NAME-* and runs/* to, each run appears once.
func TestLinksOfJobsAreInNoGlob(t *testing.T) {
	parent := t.TempDir()
	run := create1(t, parent, "x")
	must(t, run.SetJobID("7"))
	out, err := exec.Command("sh", "-c", `cd "$1" && echo x-* *`, "sh", parent).Output()
	if want := strings.Repeat(filepath.Base(run.Path())+" ", 2); err != nil || string(out) != strings.TrimSuffix(want, " ")+"\n" {
		t.Errorf("there are %s, %v", out, err)
	}
}

func TestFindTakesTheNewestOfAJobID(t *testing.T) {
	parent := t.TempDir()
	newer, older := createAt(t, parent, "a", noon.Add(time.Hour)), create1(t, parent, "b")
	must(t, newer.SetJobID("1"))
	must(t, older.SetJobID("1"))
	if d, err := Find(parent, "1"); err != nil || d.Path() != newer.Path() {
		t.Errorf("found %v, %v", d, err)
	}
}

func TestFindSaysWhatIsWrongWithARun(t *testing.T) {
	parent := t.TempDir()
	d := create1(t, parent, "x")
	must(t, d.SetJobID("1"))
	must(t, os.WriteFile(d.SpecPath(), []byte("{"), 0o600))
	for _, what := range []string{"1", d.Path(), filepath.Base(d.Path())} {
		if _, err := Find(parent, what); err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "spec.json") {
			t.Errorf("Find(%q): %v", what, err)
		}
	}
}

func TestListGivesTheNewestFirst(t *testing.T) {
	parent := t.TempDir()
	if list, err := List(filepath.Join(parent, "nothing")); len(list) != 0 || err != nil {
		t.Errorf("a parent that is not there: %v, %v", list, err)
	}
	first, last := create1(t, parent, "z"), createAt(t, parent, "a", noon.Add(time.Second))
	must(t, first.SetJobID("1"))                                                           // a link is not another run
	must(t, os.Mkdir(filepath.Join(parent, "a-20200101-000000-00000000"), 0o700))          // no spec
	must(t, os.Mkdir(filepath.Join(parent, ".new-123"), 0o700))                            // a crash left it
	must(t, os.WriteFile(filepath.Join(parent, "a-20200101-000000-00000001"), nil, 0o600)) // a file
	list, err := List(parent)
	must(t, err)
	if len(list) != 2 || list[0].Path() != last.Path() || list[1].Path() != first.Path() {
		t.Errorf("list is %v", list)
	}
	file := filepath.Join(parent, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := List(file); err == nil {
		t.Error("a file was listed")
	}
}

func createAt(t *testing.T, parent, name string, now time.Time) *Dir {
	t.Helper()
	c := config(t, parent, name)
	c.Now = now
	d, err := Create(c)
	must(t, err)
	return d
}

// Each cluster numbers its jobs by itself. A number may belong to several runs. It may also belong to one run's first job on one cluster
// and to the same run's next job on another cluster.
func TestFindKeepsClustersApart(t *testing.T) {
	parent := t.TempDir()
	here, east, west := create1(t, parent, "x"), createAt(t, parent, "x", noon.Add(time.Minute)),
		createAt(t, parent, "y", noon.Add(time.Hour))
	must(t, here.SetJobID("7"))
	must(t, east.SetJobID("7;east")) // it takes over the link
	must(t, west.SetJobID("7;west-2"))
	c := config(t, parent, "z")
	c.Spec.Clusters = "east,west-2"
	moved, err := Create(c)
	must(t, err)
	must(t, moved.SetJobID("8;east"))
	must(t, moved.SetJobID("9;west-2"))
	for what, want := range map[string]*Dir{"7": west, "7;east": east, "7;west-2": west, "8": moved, "8;east": moved, "9;west-2": moved} {
		if d, err := Find(parent, what); err != nil || d.Path() != want.Path() {
			t.Errorf("Find(%q) = %v, %v; want %s", what, d, err, want.Path())
		}
		if !IsJobID(what) {
			t.Errorf("%q is not taken for a job id", what)
		}
	}
	must(t, west.SetJobID("7;east")) // the newer of the two runs counts
	must(t, os.Remove(filepath.Join(parent, ".job-y-7")))
	must(t, os.Remove(filepath.Join(parent, ".job-x-7")))
	if d, err := Find(parent, "7;east"); err != nil || d.Path() != west.Path() {
		t.Errorf("without links: %v, %v", d, err)
	}
	for _, what := range []string{"7;south", "9;east", "7;", "7;a b", ";east", "7;east;west"} {
		if d, err := Find(parent, what); !errors.Is(err, ErrNotFound) {
			t.Errorf("Find(%q) = %v, %v", what, d, err)
		}
	}
}

func TestTheClusterIsThatOfTheNewestJob(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	task, err := d.Task(3)
	must(t, err)
	for _, id := range []string{"7;east", "8", "9;west"} {
		must(t, d.SetJobID(id))
		must(t, task.SetJobID("6_3"))
		plain, cluster, _ := strings.Cut(id, ";")
		if got, err := d.JobID(); got != plain || err != nil || d.Cluster() != cluster || task.Cluster() != cluster {
			t.Errorf("%s: job %q, %v on %q, its element on %q", id, got, err, d.Cluster(), task.Cluster())
		}
	}
	must(t, os.WriteFile(filepath.Join(d.Path(), "jobid"), []byte("7;\n"), 0o600))
	if _, err := d.JobID(); err == nil || d.Cluster() != "" {
		t.Errorf("a broken file: %v, %q", err, d.Cluster())
	}
}

func TestNewestGoesByNames(t *testing.T) {
	parent, index := t.TempDir(), t.TempDir()
	var made []*Dir
	for i, name := range []string{"z", "a", "m"} {
		c := config(t, parent, name)
		c.Now = noon.Add(time.Duration(i) * time.Hour)
		d, err := Create(c)
		must(t, err)
		must(t, os.Symlink(d.Path(), filepath.Join(index, filepath.Base(d.Path()))))
		made = append(made, d)
	}
	must(t, os.Mkdir(filepath.Join(parent, "x-20991231-000000-00000000"), 0o700)) // incomplete
	must(t, os.WriteFile(filepath.Join(parent, "notes"), nil, 0o600))
	for folder, most := range map[string]int{parent: 3, index: 2} {
		got := Newest(folder, most)
		if len(got) != 2 || got[0].Path() != made[2].Path() || got[1].Path() != made[1].Path() {
			t.Errorf("the newest %d of %s are %v", most, folder, got)
		}
	}
	if got := Newest(filepath.Join(parent, "none"), 9); got != nil {
		t.Errorf("where there is no folder: %v", got)
	}
}

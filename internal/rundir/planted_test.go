package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
)

// TestFindTrustsNoLink plants links and runs of another user beside the caller's own, and makes them newer.
func TestFindTrustsNoLink(t *testing.T) {
	t.Parallel()
	runs := filepath.Join(t.TempDir(), "runs")
	own := create1(t, runs, "a")
	must(t, own.SetJobID("123"))
	c := config(t, runs, "a")
	c.Now = noon.Add(73 * 365 * 24 * time.Hour)
	planted, err := Create(c)
	must(t, err)
	must(t, planted.SetJobID("7"))
	elsewhere := create1(t, filepath.Join(filepath.Dir(runs), "elsewhere"), "a")

	link := func(name, target string) string {
		path := filepath.Join(runs, name)
		must(t, os.Symlink(target, path))
		return path
	}
	link(".job-out-9", "../elsewhere/"+filepath.Base(elsewhere.Path()))
	if d, err := Find(runs, "9"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a link that leaves runs: %v, %v; want ErrNotFound", d, err)
	}

	give(t, planted.Path())
	give(t, link(".job-b-123", filepath.Base(planted.Path())))
	if d, err := Find(runs, "123"); err != nil || d.Path() != own.Path() {
		t.Errorf("job 123: %v, %v; want the caller's own run", d, err)
	}
	if d, err := Find(runs, "7"); !errors.Is(err, ErrNotFound) { // the link is root's, the run is not
		t.Errorf("job 7, whose link is not of the run's owner: %v, %v; want ErrNotFound", d, err)
	}
	give(t, filepath.Join(runs, ".job-a-7"))
	if d, err := Find(runs, "7"); err != nil || d.Path() != planted.Path() {
		t.Errorf("job 7 of another user: %v, %v; want that run, to look at", d, err)
	}
	give(t, link(".job-c-55", filepath.Base(own.Path())))
	if d, err := Find(runs, "55"); !errors.Is(err, ErrNotFound) {
		t.Errorf("another's link to one's own run: %v, %v; want ErrNotFound", d, err)
	}
	if d, err := Open(filepath.Join(runs, ".job-c-55")); !errors.Is(err, ErrExposed) {
		t.Errorf("another's link to one's own run, by its path: %v, %v; want ErrExposed", d, err)
	}
}

// giveAll gives a run directory and everything in it to another user.
func giveAll(t *testing.T, path string) {
	t.Helper()
	must(t, filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			give(t, path)
		}
		return err
	}))
}

// planted returns a run of another user, to which a link with a job's name leads.
func planted(t *testing.T, runs, link string) *Dir {
	t.Helper()
	d := createAt(t, runs, "theirs", noon.Add(time.Hour))
	giveAll(t, d.Path())
	must(t, os.Symlink(filepath.Base(d.Path()), filepath.Join(runs, link)))
	give(t, filepath.Join(runs, link))
	return d
}

// TestTakenLinkDoesNotHideARun: another user has taken the name of the link to one of the caller's jobs.
func TestTakenLinkDoesNotHideARun(t *testing.T) {
	t.Parallel()
	runs := filepath.Join(t.TempDir(), "runs")
	own := create1(t, runs, "j")
	theirs := planted(t, runs, ".job-j-4243")
	must(t, os.WriteFile(filepath.Join(own.Path(), jobIDName), []byte("4243\n"), 0o600))
	element, err := own.Task(2)
	must(t, err)
	for id, want := range map[string]*Dir{"4243": own, "4243_2": element} {
		if d, err := Find(runs, id); err != nil || d.Path() != want.Path() {
			t.Errorf("job %s is %v, %v; want the caller's run", id, d, err)
		}
	}
	must(t, os.Remove(filepath.Join(own.Path(), jobIDName)))
	if d, err := Find(runs, "4243"); err != nil || d.Path() != theirs.Path() {
		t.Errorf("a job of another user alone is %v, %v; want that user's run", d, err)
	}
}

// TestLinksOfStrangersHideNone: another user makes links with the names of the caller's jobs and runs.
func TestLinksOfStrangersHideNone(t *testing.T) {
	t.Parallel()
	runs := filepath.Join(t.TempDir(), "runs")
	own := create1(t, runs, "j")
	must(t, own.SetJobID("5"))
	theirs := planted(t, runs, "j-5")
	link := filepath.Join(runs, ".job-"+filepath.Base(own.Path()))
	must(t, os.Symlink(filepath.Base(theirs.Path()), link))
	give(t, link)
	for _, what := range []string{"5", "j-5", filepath.Join(runs, "j-5"), filepath.Base(own.Path())} {
		if d, err := Find(runs, what); err != nil || d.Path() != own.Path() {
			t.Errorf("Find(%q) is %v, %v; want the caller's %s", what, d, err, own.Path())
		}
	}
}

// TestStrangersLinkHidesNoFolder: another user makes a link to their run beside a copy of one of the caller's runs.
func TestStrangersLinkHidesNoFolder(t *testing.T) {
	t.Parallel()
	runs := filepath.Join(t.TempDir(), "runs")
	theirs, own := planted(t, runs, ".job-train-7"), create1(t, runs, "train")
	_, err := own.Task(4)
	must(t, err)
	folder := filepath.Join(runs, "train-7")
	if d, err := Find(runs, folder); err != nil || d.Path() != theirs.Path() {
		t.Errorf("without the folder: %v, %v; want their run", d, err)
	}
	must(t, os.CopyFS(folder, os.DirFS(own.Path())))
	element := filepath.Join(folder, "tasks", "4")
	for what, want := range map[string]string{folder: folder, "train-7": folder, element: element} {
		if d, err := Find(runs, what); err != nil || d.Path() != want {
			t.Errorf("Find(%q) is %v, %v; want %s", what, d, err, want)
		}
	}
}

// TestStrangersFilesAreNotWaitedFor: another user holds a lease on one of their files that the caller reads.
func TestStrangersFilesAreNotWaitedFor(t *testing.T) {
	for name, look := range map[string]func(d *Dir) error{
		specName: func(d *Dir) error {
			_, err := Open(d.Path())
			return err
		},
		jobIDName: func(d *Dir) error {
			_, err := d.JobID()
			return err
		},
		metricsName: func(d *Dir) error {
			_, _, err := d.LastMetrics()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := create1(t, filepath.Join(t.TempDir(), "runs"), "a")
			path := filepath.Join(d.Path(), name)
			f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
			must(t, err)
			must(t, f.Close())
			giveAll(t, d.Path())
			asked, looked := make(chan struct{}), make(chan struct{})
			testkit.LeaseUntil(t, path, func() error {
				close(asked)
				<-looked
				return nil
			})
			err = look(d)
			close(looked)
			if !errors.Is(err, syscall.EAGAIN) { // a caller that waits gets the file once the kernel has revoked the lease
				t.Fatalf("a look at it: %v, want EAGAIN", err)
			}
			<-asked
		})
	}
}

// TestStrangersSpecsAreSmall: another user makes a spec.json that takes long to read.
func TestStrangersSpecsAreSmall(t *testing.T) {
	t.Parallel()
	runs := filepath.Join(t.TempDir(), "runs")
	d := create1(t, runs, "a")
	text, err := os.ReadFile(d.SpecPath())
	must(t, err)
	must(t, os.WriteFile(d.SpecPath(), append([]byte(strings.Repeat(" ", maxForeign)), text...), 0o600))
	if _, err := Open(d.Path()); err != nil {
		t.Errorf("the caller's own: %v", err)
	}
	giveAll(t, d.Path())
	if _, err := Open(d.Path()); err == nil || !strings.Contains(err.Error(), "has more than") {
		t.Errorf("another's spec of more than a MiB: %v", err)
	}
}

// TestStrangersLinksAreFew: another user makes many links for one job.
func TestStrangersLinksAreFew(t *testing.T) {
	t.Parallel()
	runs := filepath.Join(t.TempDir(), "runs")
	d := planted(t, runs, ".job-a-9")
	for i := range 3 * maxOtherLinks {
		link := filepath.Join(runs, fmt.Sprintf("%sb%d-9", linkPrefix, i))
		must(t, os.Symlink(filepath.Base(d.Path()), link))
		give(t, link)
	}
	own, others := jobLinks(runs, "9")
	if len(own) != 0 || len(others) != maxOtherLinks {
		t.Errorf("%d links of the caller's and %d of others are followed, want 0 and %d", len(own), len(others), maxOtherLinks)
	}
	mine := create1(t, runs, "mine")
	must(t, mine.SetJobID("9"))
	if d, err := Find(runs, "9"); err != nil || d.Path() != mine.Path() {
		t.Errorf("job 9 is %v, %v; want the caller's run", d, err)
	}
}

// TestStrangersLinkLeadsBesideIt: a link of another user leads through that user's folder. The user can replace the folder by a link to one
// of the caller's runs.
func TestStrangersLinkLeadsBesideIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runs, theirs := filepath.Join(dir, "runs"), filepath.Join(dir, "theirs", "d")
	must(t, os.MkdirAll(runs, 0o755))
	d := create1(t, theirs, "a")
	link := filepath.Join(runs, "mine-777")
	must(t, os.Symlink(d.Path(), link))
	if _, err := Open(link); err != nil {
		t.Errorf("the caller's own link: %v", err)
	}
	giveAll(t, filepath.Join(dir, "theirs"))
	give(t, link)
	if d, err := Open(link); !errors.Is(err, ErrExposed) {
		t.Errorf("another user's: %v, %v; want ErrExposed", d, err)
	}
	if _, err := Open(d.Path()); err != nil {
		t.Errorf("the run itself: %v", err)
	}
	beside := planted(t, runs, "theirs-8")
	if d, err := Open(filepath.Join(runs, "theirs-8")); err != nil || d.Path() != beside.Path() {
		t.Errorf("another user's link to a run beside it: %v, %v", d, err)
	}
}

// TestTakenNamesStopNoRun: another user takes the name that a new run would get, in a folder that all users can write to.
func TestTakenNamesStopNoRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	for name, take := range map[string]func(path string) error{
		"a folder": func(path string) error { return os.Mkdir(path, 0o755) },
		"a file":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a link":   func(path string) error { return os.Symlink("/", path) },
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			must(t, os.Chmod(filepath.Dir(parent), 0o755))
			must(t, os.Chmod(parent, 0o777|fs.ModeSticky))
			taken := filepath.Join(parent, "j-20261121-120000-00000000")
			must(t, take(taken))
			give(t, taken)

			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			must(t, unix.Setfsuid(stranger+1)) // only for this thread
			defer func() { must(t, unix.Setfsuid(0)) }()
			temp := filepath.Join(parent, ".new-1")
			must(t, os.Mkdir(temp, 0o700))
			suffixes := []string{"00000000", "00000001"}
			d, err := giveName(temp, parent, Spec{Schema: specSchema, Name: "j", Created: noon}, func() string {
				next := suffixes[0]
				suffixes = suffixes[1:]
				return next
			})
			must(t, err)
			if base := filepath.Base(d.Path()); base != "j-20261121-120000-00000001" {
				t.Errorf("the run is called %s", base)
			}
		})
	}
}

package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// fault makes operations of some kinds fail, on paths that end with part, while on is set.
type fault struct {
	kinds []string
	part  string
	err   error
	on    bool
}

func (f *fault) over(m *vfstest.Mem) vfs.FS {
	return vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
		for _, kind := range f.kinds {
			if f.on && op.Kind == kind && strings.HasSuffix(op.Path, f.part) {
				return vfstest.Fault{Err: f.err}
			}
		}
		return vfstest.Fault{}
	})
}

// A file that its folder lists exists, whatever else an NFS client says. While a checkpoint cannot be read for that reason, List reports it
// as unreadable and retention does not remove it.
func TestUntrueAnswersRemoveNothing(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]*fault{
		"manifest": {kinds: []string{"open"}, part: manifest.StepFolder(100) + "/" + manifest.Name, err: syscall.ENOENT},
		"shard":    {kinds: []string{"open", "stat"}, part: ".ddpt", err: syscall.ENOENT},
		"folder":   {kinds: []string{"readdir"}, part: manifest.StepFolder(100), err: syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := vfstest.New(t)
			one := attempt(t, m, 1, Policy{})
			for _, step := range []int64{100, 110, 120} {
				save(t, one, testState(step, 0))
			}
			two := attempt(t, f.over(m), 2, Policy{Last: 2, Every: 100})
			begin(t, two, 120)
			f.on = true
			save(t, two, testState(130, 0))
			if got := listed(t, two); !strings.HasPrefix(got, "100 unreadable") {
				t.Errorf("listed as %s", got)
			}
			f.on = false
			if got := listed(t, two); !strings.HasPrefix(got, "100 committed") {
				t.Errorf("what could not be seen for a moment is gone: %s", got)
			}
			must(t, VerifyStep(t.Context(), two, 100))
		})
	}
}

// If a client says that a file does not exist although its folder lists it, a search fails with ErrStale. It does not fall back to an older
// checkpoint.
func TestSearchBelievesTheList(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"/" + manifest.Name, ".ddpt"} {
		m := vfstest.New(t)
		one := attempt(t, m, 1, Policy{})
		save(t, one, testState(100, 0))
		save(t, one, testState(200, 0))
		f := &fault{kinds: []string{"open"}, part: part, err: syscall.ENOENT, on: true}
		if part == "/"+manifest.Name {
			f.part = manifest.StepFolder(200) + part
		}
		_, err := attempt(t, f.over(m), 2, Policy{}).FindLatest(t.Context())
		if !errors.Is(err, ErrStale) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNone) {
			t.Errorf("%s: error %v", part, err)
		}
	}
}

// If a client remembers an old size of a file, the package reads the size again through an open file.
func TestStaleSizeIsAskedForAgain(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := attempt(t, staleSizes{m}, 1, Policy{Last: 2, Every: 100})
	for _, step := range []int64{100, 110, 120, 130} {
		save(t, d, testState(step, 0))
	}
	wantList(t, d, "100 committed, 120 committed, 130 committed")
}

// staleSizes is a client that remembers every shard as empty.
type staleSizes struct{ vfs.FS }

func (s staleSizes) Stat(name string) (info fs.FileInfo, err error) {
	info, err = s.FS.Stat(name)
	if err == nil && strings.HasSuffix(name, ".ddpt") {
		info = emptyInfo{info}
	}
	return info, err
}

type emptyInfo struct{ fs.FileInfo }

func (emptyInfo) Size() int64 { return 0 }

// One unreadable folder hides no other folder, and stops neither a plan nor a removal.
func TestOneUnreadableFolderHidesNoOther(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.ESTALE, syscall.EACCES, syscall.EIO} {
		m := vfstest.New(t)
		d := attempt(t, m, 1, Policy{})
		for _, step := range []int64{100, 200, 300, 400, 500} {
			save(t, d, testState(step, 1))
		}
		f := &fault{kinds: []string{"readdir"}, part: manifest.StepFolder(200), err: errno, on: true}
		d = attempt(t, f.over(m), 1, Policy{})
		wantPlan(t, d, Policy{Last: 2}, "100+ perhaps the base of step 200, which cannot be read", "200+ it cannot be read",
			"300- no rule keeps it", "400+ last 2", "500+ newest; last 2")
		_, err := d.Prune(t.Context(), Policy{Last: 2})
		must(t, err)
		wantList(t, d, "100 committed, 200 unreadable, 400 committed, 500 committed")
	}
}

// List does not warn about a checkpoint that it could not read only because it was canceled.
func TestCancelledListWarnsOfNothing(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	save(t, attempt(t, m, 1, Policy{}), testState(100, 1))
	for k, reached := 1, true; reached; k++ {
		reached = false
		ctx, cancel := context.WithCancel(t.Context())
		in := vfstest.NewInjector(m, func(i int, _ vfstest.Op) vfstest.Fault {
			if reached = reached || i == k; i >= k {
				cancel()
				return vfstest.Fault{Err: context.Canceled}
			}
			return vfstest.Fault{}
		})
		var log strings.Builder
		if _, err := openDir(t, Options{FS: in, Run: "r", Log: logTo(&log)}).List(ctx); reached && !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled at operation %d: error %v", k, err)
		}
		if log.Len() > 0 {
			t.Errorf("cancelled at operation %d: the log says %q", k, &log)
		}
		cancel()
	}
}

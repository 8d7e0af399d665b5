package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// TestFaultOfASaveSparesTheOneBefore makes each operation of the third save fail in turn. The error has the right class, no temporary file
// stays, and the second checkpoint can be loaded.
func TestFaultOfASaveSparesTheOneBefore(t *testing.T) {
	t.Parallel()
	classes := []struct {
		errno syscall.Errno
		class error
	}{
		{syscall.ENOSPC, ErrNoSpace}, {syscall.EDQUOT, ErrNoSpace},
		{syscall.EACCES, ErrPermission}, {syscall.EROFS, ErrPermission},
		{syscall.ESTALE, ErrStale}, {syscall.EIO, syscall.EIO},
	}
	for _, c := range classes {
		t.Run(c.errno.Error(), func(t *testing.T) {
			t.Parallel()
			for k := 1; ; k++ {
				op := saveWithFault(t, k, c.errno, c.class)
				if op.Kind == "" {
					t.Logf("%d operations", k-1)
					return
				}
			}
		})
	}
}

// saveWithFault makes operation k of a save fail and returns that operation. If the save has fewer operations, it returns a zero Op.
func saveWithFault(t *testing.T, k int, errno syscall.Errno, class error) (failed vfstest.Op) {
	m := vfstest.New(t)
	ready := openDir(t, Options{FS: m, Keep: Policy{Last: 2}, Run: "inject", Attempt: 1})
	save(t, ready, testState(1, 0))
	save(t, ready, testState(2, 0))
	in := vfstest.NewInjector(m, func(i int, op vfstest.Op) vfstest.Fault {
		if i != k {
			return vfstest.Fault{}
		}
		failed = op
		return vfstest.Fault{Err: errno, Short: 100} // a write writes only a part
	})
	var log bytes.Buffer
	d := openDir(t, Options{FS: in, Keep: Policy{Last: 2}, Run: "inject", Attempt: 2, Log: logTo(&log)})
	_, err := d.Save(context.Background(), testState(3, 0))
	if failed.Kind == "" {
		must(t, err)
		return failed
	}
	s, info, latestErr := ready.Latest(context.Background())
	must(t, latestErr)
	wantState(t, s, testState(info.Step, 0))
	if err != nil {
		wantErr(t, failed.String(), err, errno, class)
		committed := failed.Kind == "syncdir" && info.Step == 3 // it comes after the rename of the manifest
		if info.Step != 2 && !committed {
			t.Fatalf("%v failed, Save said %v, yet the latest is step %d", failed, err, info.Step)
		}
	} else if info.Step == 3 && errno == syscall.ESTALE && slices.Contains([]string{"open", "read", "stat", "readdir"}, failed.Kind) {
		t.Logf("%v was done once more", failed)
	} else if info.Step != 3 || !strings.Contains(log.String(), "level=WARN") {
		t.Fatalf("%v failed while tidying up: the latest is step %d, the log %q", failed, info.Step, &log)
	}
	must(t, VerifyStep(context.Background(), ready, 2))
	checkLeftovers(t, m, failed, info.Step == 3)
	return failed
}

// checkLeftovers wants no temporary file. If step 3 was not committed, it also wants no shard of step 3, unless the rename of the manifest
// was tried: that may have succeeded although a network lost the answer.
func checkLeftovers(t *testing.T, m *vfstest.Mem, failed vfstest.Op, committed bool) {
	for _, path := range tree(t, m) {
		tried := failed.Kind == "rename" && filepath.Base(failed.To) == manifest.Name
		if strings.HasSuffix(path, manifest.TmpSuffix) || strings.HasSuffix(path, ".ddpt") &&
			strings.Contains(path, manifest.StepFolder(3)) && !committed && !tried {
			t.Fatalf("%v failed: %s stays", failed, path)
		}
	}
}

// After fsync has failed once, its next success means nothing, so Save does not repeat it.
func TestFailedSyncIsNeverRepeated(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	failed := ""
	in := vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
		if op.Kind == "sync" && failed == "" {
			failed = op.Path
			return vfstest.Fault{Err: syscall.EIO}
		}
		return vfstest.Fault{}
	})
	d := openDir(t, Options{FS: in})
	_, err := d.Save(context.Background(), testState(1, 0))
	wantErr(t, "Save", err, syscall.EIO)
	save(t, d, testState(1, 0)) // writes everything again from memory, into other files
	var uses []string
	for _, op := range in.Log() {
		if op.Path == failed {
			uses = append(uses, op.Kind)
		}
	}
	if got, want := strings.Join(uses, " "), "create write stat sync close remove"; got != want {
		t.Errorf("what happened to the file whose sync failed: %s; want %s", got, want)
	}
}

// lostAnswer is a network file system that renames a manifest but returns an error.
type lostAnswer struct {
	vfs.FS
	errno syscall.Errno
}

func (l lostAnswer) Rename(oldName, newName string) error {
	err := l.FS.Rename(oldName, newName)
	if filepath.Base(newName) == manifest.Name {
		return l.errno
	}
	return err
}

// If the answer to a rename is lost and the client repeats the request, the source is gone or the target exists, and Save can see that its
// commit has succeeded. After any other error Save cannot know that, so what it may have committed must stay whole.
func TestLostAnswerOfTheCommitLosesNothing(t *testing.T) {
	t.Parallel()
	for errno, ok := range map[syscall.Errno]bool{syscall.ENOENT: true, syscall.EEXIST: true, syscall.EIO: false} {
		m := vfstest.New(t)
		_, err := openDir(t, Options{FS: lostAnswer{m, errno}}).Save(context.Background(), testState(1, 0))
		if ok {
			must(t, err)
		} else {
			wantErr(t, "Save", err, errno)
		}
		s, _, err := openDir(t, Options{FS: m}).Latest(context.Background())
		must(t, err)
		wantState(t, s, testState(1, 0))
	}
}

// lossy is a file system that reports every byte as written but drops the last one.
type lossy struct{ vfs.FS }

type lossyFile struct{ vfs.File }

func (l lossy) Create(name string) (vfs.File, error) {
	f, err := l.FS.Create(name)
	return lossyFile{f}, err
}

func (f lossyFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p[:len(p)-1])
	return n + 1, err
}

func TestSaveChecksTheLengthOfFiles(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: lossy{m}})
	_, err := d.Save(context.Background(), testState(1, 0))
	wantErr(t, "Save", err, io.ErrShortWrite)
	if files := tree(t, m); len(files) != 0 {
		t.Errorf("files stay: %v", files)
	}
}

// A search does not fall back to an older checkpoint if it cannot read the newest one.
func TestReadErrorsAreNotCorruption(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	ready := openDir(t, Options{FS: m})
	save(t, ready, testState(1, 0))
	save(t, ready, testState(2, 0))
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.EACCES} {
		for k := 1; ; k++ {
			in := vfstest.NewInjector(m, vfstest.FailAt(k, errno))
			_, info, err := openDir(t, Options{FS: in}).Latest(context.Background())
			if err == nil {
				if info.Step != 2 || k < 5 {
					t.Fatalf("no error with operation %d failing, step %d", k, info.Step)
				}
				break
			}
			if !errors.Is(err, errno) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNone) {
				t.Fatalf("operation %d fails with %v: Latest says %v", k, errno, err)
			}
			if errors.Is(err, ErrPermission) != (errno == syscall.EACCES) {
				t.Fatalf("%v has the wrong class: %v", errno, err)
			}
		}
	}
}

// A read through a stale handle is repeated once. If the handle is stale again, the error is ErrStale.
func TestStaleHandleIsReadAgain(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	save(t, openDir(t, Options{FS: m}), testState(1, 0))
	for _, times := range []int{1, 1000} {
		left := times
		in := vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
			if op.Kind == "read" && strings.Contains(op.Path, "shard-") && left > 0 {
				left--
				return vfstest.Fault{Err: syscall.ESTALE}
			}
			return vfstest.Fault{}
		})
		s, err := openDir(t, Options{FS: in}).Load(context.Background(), 1)
		if times == 1 {
			must(t, err)
			wantState(t, s, testState(1, 0))
			continue
		}
		wantErr(t, "Load", err, ErrStale)
	}
}

// replacing is a file system on which a step is saved again after a reader has read the manifest and before it opens the shard.
type replacing struct {
	vfs.FS
	replace func()
}

func (r *replacing) Open(name string) (vfs.File, error) {
	if strings.Contains(name, "shard-") && r.replace != nil {
		replace := r.replace
		r.replace = nil
		replace()
	}
	return r.FS.Open(name)
}

func TestCheckpointReplacedWhileReadIsReadAgain(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	writer := openDir(t, Options{FS: m, Keep: Policy{Last: 2}})
	save(t, writer, testState(1, 0))
	reader := openDir(t, Options{FS: &replacing{FS: m, replace: func() { save(t, writer, testState(1, 1)) }}})
	s, info, err := reader.Latest(context.Background())
	must(t, err)
	wantState(t, s, testState(1, 1))
	if info.Step != 1 {
		t.Errorf("step %d", info.Step)
	}
}

// A save that is canceled at any of its operations either commits or leaves nothing behind.
func TestCancelledSaveCommitsOrLeavesNothing(t *testing.T) {
	t.Parallel()
	for k, reached := 1, true; reached; k++ {
		reached = false
		m := vfstest.New(t)
		ctx, cancel := context.WithCancel(context.Background())
		in := vfstest.NewInjector(m, func(i int, _ vfstest.Op) vfstest.Fault {
			if i == k {
				reached = true
				cancel()
			}
			return vfstest.Fault{}
		})
		_, err := openDir(t, Options{FS: in}).Save(ctx, testState(1, 0))
		cancel()
		if err == nil {
			must(t, VerifyStep(context.Background(), openDir(t, Options{FS: m}), 1))
			continue
		}
		wantErr(t, "Save", err, context.Canceled)
		if files := tree(t, m); len(files) != 0 {
			t.Fatalf("cancelled at operation %d: %v stay", k, files)
		}
	}
}

func TestCancelledLoadIsReported(t *testing.T) {
	t.Parallel()
	d := openDir(t, Options{FS: vfstest.New(t)})
	save(t, d, testState(1, 0))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err := d.Latest(ctx)
	wantErr(t, "Latest", err, context.Canceled)
	_, err = d.List(ctx)
	wantErr(t, "List", err, context.Canceled)
	wantErr(t, "Find", errOf(d.Find(ctx, 1)), context.Canceled)
}

// TestFullDiskSparesTheSaveBefore fills a real file system of 1 MiB. The save that does not fit returns an error that says so and leaves
// nothing behind, and the checkpoint before it stays good.
func TestFullDiskSparesTheSaveBefore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs to mount a tmpfs, which takes root: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
	path := filepath.Join(dir, "checkpoints")
	d, err := Open(path, Options{Codec: "none", Keep: Policy{Last: 2}, Attempt: 1})
	must(t, err)
	small := testState(1, 0)
	save(t, d, small)

	large := testState(2, 0)
	large.Tensors[1] = Tensor{Name: "large", DType: "uint8", Shape: []int{2 << 20}, Data: make([]byte, 2<<20)}
	_, err = d.Save(context.Background(), large)
	wantErr(t, "Save", err, ErrNoSpace, syscall.ENOSPC)
	if errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "free space") {
		t.Errorf("error %v does not say what to do", err)
	}
	entries, err := os.ReadDir(path)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	s, _, err := d.Latest(context.Background())
	must(t, err)
	wantState(t, s, small)
	save(t, d, testState(2, 1)) // a small one fits again
}

package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestCopyTakesAllCode: a copy has all files except those that are not code.
func TestCopyTakesAllCode(t *testing.T) {
	r := newTree(t)
	r.write("a.py", "1", "sub/b.py", "1", "sub/__pycache__/b.pyc", "1", ".git/config", "1", "sub/.git", "gitdir: x", ".hidden", "1",
		"venv/pyvenv.cfg", "1", "venv/lib/x.py", "1", "conda/conda-meta/history", "1", "cache/CACHEDIR.TAG", "1", "node_modules/x.js", "1",
		"runs/x/job.toml", "1", "old/x-1/spec.json", "1", "old/x-1/bin/ddpbatch", "1", "old/notes", "1", "data/big.bin",
		"1", "data/keep.csv", "1")
	r.must(os.MkdirAll(r.path("empty"), 0o755))
	r.must(os.Chmod(r.path("a.py"), 0o4755))
	r.link("x-1", "old/latest")
	r.link("../..", "sub/up")
	r.link("sub", "inside")
	r.must(syscall.Mkfifo(r.path("pipe"), 0o600))
	request := r.request(Copy)
	request.Exclude = []string{"*.bin"}
	request.GitPath = ""
	c := r.copies(request)
	c.holds(map[string]string{"a.py": "1", "sub/b.py": "1", ".hidden": "1", "old/notes": "1", "data/keep.csv": "1", "inside": "-> sub"})
	got := map[string]string{}
	for _, o := range c.record.LeftOut {
		got[o.Path] = o.Why
	}
	for name, why := range map[string]string{
		".git": "version control", "sub/.git": "version control", "sub/__pycache__": "a cache", "venv": "a virtual environment",
		"conda": "a conda environment", "cache": "a cache", "node_modules": "a cache", "runs": "run_dir", "old/x-1": "a run directory",
		"old/latest": "a run directory", "data/big.bin": "code.exclude", "pipe": "neither a file nor a link",
		"sub/up": "a link that leads out of the tree, to ../..",
	} {
		if got[name] != why {
			t.Errorf("%s is left out as %q, want %q", name, got[name], why)
		}
	}
	if c.record.Omitted != 13 || c.record.Files != 6 || c.record.Bytes != 5 {
		t.Errorf("the record: %+v", c.record)
	}
	if info, err := os.Stat(c.path("empty")); err != nil || !info.IsDir() {
		t.Errorf("the empty folder: %v", err)
	}
	if info, err := os.Stat(c.path("a.py")); err != nil || info.Mode() != 0o700 {
		t.Errorf("a.py, which was setuid: %v, %v", info.Mode(), err)
	}
}

// TestTreeTooLargeIsRefused: a tree is refused because of file sizes alone. The large file is sparse, and the tree was not read, because
// reading 100 GB takes far too long.
func TestTreeTooLargeIsRefused(t *testing.T) {
	r := newRepository(t)
	r.write("train.py", "1", "data/small", "1", "data/huge.bin", "")
	r.git("add", "-A") // git would read a large file here
	r.must(os.Truncate(r.path("data/huge.bin"), 100<<30))
	for _, kind := range []string{Git, Copy} {
		r.refuses(r.request(kind), "more than 100 MiB", r.dir, "code.max_mb", "100 GiB in data/", "code.exclude")
	}
	request := r.request(Copy)
	request.Exclude = []string{"data/huge.bin"}
	r.copies(request)
	request = r.request(Copy)
	request.MaxFiles = 2
	r.refuses(request, "more than 2 files", "code.max_files", `code.snapshot = "git"`)
	request.MaxFiles = 3
	request.Exclude = []string{"data/"}
	r.copies(request)
}

// TestManyFilesAreNotLookedAt: a walk ends early even if it takes none of the files that it sees.
func TestManyFilesAreNotLookedAt(t *testing.T) {
	r := newRepository(t)
	r.write("train.py", "1", "conf/a.yaml", "1")
	r.git("add", "train.py")
	r.must(os.Mkdir(r.path("data"), 0o755))
	for i := range 101 {
		r.write("data/"+strconv.Itoa(i), "")
	}
	request := r.request(Git)
	request.MaxFiles = 10
	request.Include = []string{"*.yaml"}
	r.refuses(request, "code.include looks at more than 100 files", "name the folder in each pattern")
	request.Include = []string{"conf/*.yaml"}
	r.copies(request).holds(map[string]string{"train.py": "1", "conf/a.yaml": "1"})
	request = r.request(Copy)
	request.MaxFiles = 10
	request.Exclude = []string{"[0-9]*"}
	r.refuses(request, "looks at more than 100 files")
}

// TestUnreadableFolderIsNamed: a folder that cannot be read is an error, and is not silently left out.
func TestUnreadableFolderIsNamed(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads every folder")
	}
	r := newTree(t)
	r.write("a.py", "1", "shut/b.py", "1")
	r.must(os.Chmod(r.path("shut"), 0))
	t.Cleanup(func() { r.must(os.Chmod(r.path("shut"), 0o700)) })
	r.refuses(r.request(Copy), r.path("shut"), "permission denied", "code.exclude")
}

// TestWriteStops: Write stops when its context ends, and if the tree has changed since the selection.
func TestWriteStops(t *testing.T) {
	r := newTree(t)
	r.write("a.py", "1", "b.py", "1", "c.py", "1")
	request := r.request(Copy)
	request.MaxMB = 1
	s, err := request.Select(t.Context())
	r.must(err)
	ctx, stop := context.WithCancelCause(t.Context())
	why := errors.New("told to")
	stop(why)
	if _, err := s.Write(ctx, t.TempDir(), testNames); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	r.must(os.Truncate(r.path("b.py"), 2<<20))
	if _, err := s.Write(t.Context(), t.TempDir(), testNames); err == nil || !strings.Contains(err.Error(), "grew beyond code.max_mb") {
		t.Errorf("a file that grew: %v", err)
	}
	r.must(os.Remove(r.path("b.py")))
	if _, err := s.Write(t.Context(), t.TempDir(), testNames); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
	r.link("/etc/passwd", "b.py")
	if _, err := s.Write(t.Context(), t.TempDir(), testNames); err == nil {
		t.Error("a file in whose place is a link that leads out of the tree is copied")
	}
	_, err = request.Select(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Select: %v", err)
	}
}

// TestRecordIsBounded: if many things are left out, only the first are named, and all are counted.
func TestRecordIsBounded(t *testing.T) {
	r := newTree(t)
	r.write("a.py", "1")
	for i := range maxListed + 10 {
		r.link("/nowhere", "l"+strconv.Itoa(i))
	}
	c := r.copies(r.request(Copy))
	if c.record.Omitted != maxListed+10 || len(c.record.LeftOut) != maxListed || !strings.Contains(c.record.Summary(), "1010 left out (") ||
		!strings.HasSuffix(c.record.Summary(), " and 1007 more)") {
		t.Errorf("%d, %d: %s", c.record.Omitted, len(c.record.LeftOut), c.record.Summary())
	}
}

// BenchmarkSnapshot copies 5,000 files of 4 KiB in 250 folders.
func BenchmarkSnapshot(b *testing.B) {
	r := newRepository(b)
	text := strings.Repeat("a line of code\n", 273)
	for i := range 5000 {
		r.write(filepath.Join("src", "p"+strconv.Itoa(i%250), "m"+strconv.Itoa(i)+".py"), text)
	}
	r.commit()
	r.write("src/p0/m0.py", "changed\n")
	for _, kind := range []string{Git, Copy} {
		b.Run(kind, func(b *testing.B) {
			parent := b.TempDir()
			for i := 0; b.Loop(); i++ {
				s, err := r.request(kind).Select(b.Context())
				r.must(err)
				dir := filepath.Join(parent, strconv.Itoa(i))
				r.must(os.Mkdir(dir, 0o700))
				_, err = s.Write(b.Context(), dir, testNames)
				r.must(err)
			}
		})
	}
}

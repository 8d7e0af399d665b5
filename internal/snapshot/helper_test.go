package snapshot

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/usage"
)

// tree is a folder of a test.
type tree struct {
	testing.TB
	dir string
}

func newTree(t testing.TB) tree {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return tree{t, dir}
}

// newRepository returns a tree that git tracks, without a commit.
func newRepository(t testing.TB) tree {
	t.Helper()
	r := newTree(t)
	r.git("init", "-q")
	return r
}

func (r tree) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r tree) path(name string) string { return filepath.Join(r.dir, name) }

// write writes files: name, text, name, text.
func (r tree) write(files ...string) {
	r.Helper()
	for i := 0; i < len(files); i += 2 {
		r.must(os.MkdirAll(filepath.Dir(r.path(files[i])), 0o755))
		r.must(os.WriteFile(r.path(files[i]), []byte(files[i+1]), 0o644))
	}
}

func (r tree) read(name string) []byte {
	r.Helper()
	data, err := os.ReadFile(r.path(name))
	r.must(err)
	return data
}

func (r tree) link(target, name string) {
	r.Helper()
	r.must(os.MkdirAll(filepath.Dir(r.path(name)), 0o755))
	r.must(os.Symlink(target, r.path(name)))
}

// environ returns the environment of the test, without variables that make git differ between machines.
func environ() []string {
	kept := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "GIT_") })
	return append(kept, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
}

// git runs git in the tree, as its owner would.
func (r tree) git(args ...string) string {
	r.Helper()
	cmd := exec.Command("git",
		append([]string{"-c", "user.name=n", "-c", "user.email=e@x", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir, cmd.Env = r.dir, environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit commits all that is in the tree.
func (r tree) commit() string {
	r.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "m")
	return r.git("rev-parse", "HEAD")
}

// request returns a request for a copy of the tree.
func (r tree) request(kind string) Request {
	r.Helper()
	c := DefaultConfig()
	c.Snapshot = kind
	git, err := exec.LookPath("git")
	if err != nil {
		r.Skip("git is not here")
	}
	return Request{Config: c, WorkDir: r.dir, RunDir: r.path("runs"), GitPath: git, Environ: environ()}
}

// copied is a finished copy.
type copied struct {
	tree
	record Record
	diff   string
}

var testNames = Names{"code", "code.json", "code.diff"}

// copies makes the copy, and checks the record on disk.
func (r tree) copies(request Request) copied {
	r.Helper()
	s, err := request.Select(r.Context())
	r.must(err)
	dir := r.TempDir()
	record, err := s.Write(r.Context(), dir, testNames)
	r.must(err)
	var onDisk Record
	data, err := os.ReadFile(filepath.Join(dir, testNames.Record))
	r.must(err)
	r.must(json.Unmarshal(data, &onDisk))
	if onDisk.Summary() != record.Summary() {
		r.Errorf("the record on disk says %s, and Write %s", onDisk.Summary(), record.Summary())
	}
	diff, err := os.ReadFile(filepath.Join(dir, testNames.Diff))
	if !errors.Is(err, fs.ErrNotExist) || request.Snapshot == Git {
		r.must(err)
	}
	return copied{tree{r.TB, filepath.Join(dir, testNames.Code)}, record, string(diff)}
}

// holds checks what is in a copy: the files with their text, and the links with their targets.
func (c copied) holds(want map[string]string) {
	c.Helper()
	got := map[string]string{}
	c.must(filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		c.must(err)
		name, err := filepath.Rel(c.dir, path)
		c.must(err)
		info, err := d.Info()
		c.must(err)
		switch {
		case d.IsDir():
			if info.Mode().Perm() != 0o700 {
				c.Errorf("%s has the mode %v", name, info.Mode())
			}
			return nil
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			c.must(err)
			got[name] = "-> " + target
			return nil
		}
		data, err := os.ReadFile(path)
		c.must(err)
		got[name] = string(data)
		if perm := info.Mode().Perm(); perm != 0o600 && perm != 0o700 {
			c.Errorf("%s has the mode %v", name, perm)
		}
		return nil
	}))
	for name, text := range want {
		if have, ok := got[name]; !ok || have != text {
			c.Errorf("the copy has %q with %q, want %q", name, have, text)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			c.Errorf("the copy has %q", name)
		}
	}
}

// leftOut checks what the record names as left out: path and reason in turns.
func (c copied) leftOut(want ...string) {
	c.Helper()
	var got []string
	for _, o := range c.record.LeftOut {
		got = append(got, o.Path, o.Why)
	}
	if !slices.Equal(got, want) || c.record.Omitted != len(want)/2 {
		c.Errorf("left out are %d: %q, want %q", c.record.Omitted, got, want)
	}
}

// refuses checks that a tree is not copied, and that the error has these words.
func (r tree) refuses(request Request, words ...string) {
	r.Helper()
	_, err := request.Select(r.Context())
	if !errors.As(err, new(*usage.Error)) {
		r.Fatalf("error %v, want one about the use", err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			r.Errorf("%q is not in: %v", word, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		r.Errorf("more than a sentence: %q", err)
	}
}

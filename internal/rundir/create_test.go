package rundir

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

func TestCreateMakesTheDocumentedLayout(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "deep", "runs")
	d := create1(t, parent, "mnist")
	if !regexp.MustCompile(`^mnist-20261121-120000-[0-9a-f]{8}$`).MatchString(filepath.Base(d.Path())) {
		t.Errorf("directory is called %s", filepath.Base(d.Path()))
	}
	if got := listing(t, parent); len(got) != 1 {
		t.Errorf("parent holds %v", got)
	}
	for _, want := range []struct {
		path string
		mode os.FileMode
	}{
		{"", os.ModeDir | 0o700}, {"spec.json", 0o600}, {"job.toml", 0o600}, {"bin", os.ModeDir | 0o700},
		{"bin/ddpbatch", 0o700}, {"attempts", os.ModeDir | 0o700}, {"checkpoints", os.ModeDir | 0o700},
	} {
		info, err := os.Lstat(filepath.Join(d.Path(), want.path))
		if err != nil {
			t.Error(err)
		} else if info.Mode() != want.mode {
			t.Errorf("%q has mode %v, want %v", want.path, info.Mode(), want.mode)
		}
	}
	for path, want := range map[string]string{d.JobFilePath(): "schema = 1\n", d.Binary(): "#!/bin/sh\n"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v", path, got, err)
		}
	}
}

func TestCreateFillsTheSpec(t *testing.T) {
	d := create1(t, t.TempDir(), "mnist")
	again, err := Open(d.Path())
	must(t, err)
	for _, s := range []Spec{d.Spec(), again.Spec()} {
		// printf '#!/bin/sh\n' | sha256sum
		const sum = "a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf"
		if s.Schema != 1 || s.Run != filepath.Base(d.Path()) || !s.Created.Equal(noon) || s.SHA256 != sum {
			t.Errorf("spec is %+v", s)
		}
		var job struct{ A int }
		if err := json.Unmarshal(s.Job, &job); err != nil || job.A != 1 || s.Nodes != 2 || s.WorkDir != "/w" {
			t.Errorf("spec lost what was given: %+v, %v", s, err)
		}
	}
}

func TestCreateNamesRunsOfOneSecondApart(t *testing.T) {
	parent := t.TempDir()
	for range 20 {
		create1(t, parent, "x")
	}
	if got := listing(t, parent); len(got) != 20 {
		t.Errorf("%d directories, want 20: %v", len(got), got)
	}
}

func TestCreateLeavesNothingBehind(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, c *CreateConfig){
		"bad name":          func(t *testing.T, c *CreateConfig) { c.Spec.Name = "../x" },
		"name with a dash":  func(t *testing.T, c *CreateConfig) { c.Spec.Name = "-x" },
		"no program":        func(t *testing.T, c *CreateConfig) { c.Binary = filepath.Join(t.TempDir(), "no") },
		"program is a pipe": func(t *testing.T, c *CreateConfig) { c.Binary = fifo(t) },
		"no copy of the code": func(t *testing.T, c *CreateConfig) {
			c.Code = func(dir string) error {
				must(t, os.Mkdir(filepath.Join(dir, CodeName), 0o700))
				return errors.New("broken")
			}
		},
		"job is no JSON": func(t *testing.T, c *CreateConfig) { c.Spec.Job = json.RawMessage("{") },
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t, t.TempDir(), "x")
			spoil(t, &c)
			if d, err := Create(c); err == nil {
				t.Errorf("made %s", d.Path())
			}
			if left := listing(t, c.Parent); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestCreateSaysWhyItCannot(t *testing.T) {
	t.Run("parent is a file", func(t *testing.T) {
		parent := filepath.Join(t.TempDir(), "runs")
		must(t, os.WriteFile(parent, nil, 0o600))
		_, err := Create(config(t, parent, "x"))
		if !errors.Is(err, syscall.ENOTDIR) || !strings.Contains(err.Error(), parent) {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("parent is read-only", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("root may write to a read-only directory")
		}
		parent := t.TempDir()
		must(t, os.Chmod(parent, 0o500))
		if _, err := Create(config(t, parent, "x")); !errors.Is(err, os.ErrPermission) {
			t.Errorf("error is %v", err)
		}
	})
}

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(path, 0o600))
	return path
}

func TestDiscardRemovesOnlyFreshRuns(t *testing.T) {
	for name, use := range map[string]func(*Dir) error{
		"fresh":      func(*Dir) error { return nil },
		"has a job":  func(d *Dir) error { return d.SetJobID("12") },
		"has begun":  func(d *Dir) error { _, err := d.ClaimAttempt(); return err },
		"is a piece": nil,
	} {
		t.Run(name, func(t *testing.T) {
			d := create1(t, t.TempDir(), "job")
			if use == nil {
				task, err := d.Task(0)
				if err != nil {
					t.Fatal(err)
				}
				if task.Discard() == nil {
					t.Error("an array element was removed")
				}
				return
			}
			if err := use(d); err != nil {
				t.Fatal(err)
			}
			err := d.Discard()
			_, stat := os.Stat(d.Path())
			if fresh := name == "fresh"; fresh != (err == nil) || fresh != os.IsNotExist(stat) {
				t.Errorf("Discard: %v; then Stat: %v", err, stat)
			}
		})
	}
}

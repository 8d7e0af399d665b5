package jobfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/usage"
)

// TestCodeCopyIsWhereRanksRun: if the code is copied, the ranks and the batch script begin in the copy, and all paths in the job file still
// refer to the original tree.
func TestCodeCopyIsWhereRanksRun(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	source := `name = "x"
[code]
snapshot = "copy"
[setup]
venv = "venv"
env = { A = "1" }
[train]
loss = "mse"
model = { kind = "dense" }
data = { kind = "csv", train_file = "rows.csv" }
export = "out.safetensors"
`
	source = strings.Replace(source, "train_file", "path", 1)
	job, _, err := Parse("job.toml", dir, []byte(source), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := job.RanksDir("/runs/x"); got != dir || job.BatchScript("/runs/x").WorkDir != dir ||
		job.BatchScript("/runs/x").Setup.Venv != filepath.Join(dir, "venv") {
		t.Errorf("without a copy ranks run in %s", got)
	}
	if _, more := job.WorkerEnv()[SourceVariable]; more {
		t.Error("without a copy workers have its source")
	}
	selection, warnings, err := job.SelectCode(t.Context(), "", nil)
	if err != nil || selection == nil || len(warnings) > 0 {
		t.Fatalf("%v, %q", err, warnings)
	}
	script := job.BatchScript("/runs/x")
	if job.RanksDir("/runs/x") != "/runs/x/code" || script.WorkDir != "/runs/x/code" || script.Setup.Venv != filepath.Join(dir, "venv") {
		t.Errorf("with a copy the script is %+v", script)
	}
	if job.resolve("rows.csv") != filepath.Join(dir, "rows.csv") || job.ExportPath() != filepath.Join(dir, "out.safetensors") {
		t.Errorf("data are looked for at %s", job.resolve("rows.csv"))
	}
	if env := job.WorkerEnv(); env[SourceVariable] != dir || env["A"] != "1" || len(job.Env) != 1 {
		t.Errorf("workers have %q", env)
	}
	for venv, want := range map[string]string{"~/v": "~/v", "/v": "/v", "": "", "./v": filepath.Join(dir, "v"), "../v": dir + "/../v"} {
		job.Setup.Venv = venv
		if got := job.setup().Venv; got != want {
			t.Errorf("the venv %q becomes %q", venv, got)
		}
	}
	job.Setup.Venv = ""
	for conda, want := range map[string]string{"name": "name", "$X/env": "$X/env", "./env": filepath.Join(dir, "env"), "/env": "/env"} {
		job.Setup.Conda = conda
		if got := job.setup().Conda; got != want {
			t.Errorf("the conda environment %q becomes %q", conda, got)
		}
	}
}

// TestResumeKeepsTheCode: no override at a resume makes another copy, or leads away from the existing one.
func TestResumeKeepsTheCode(t *testing.T) {
	before := &Job{WorkDir: "/w", CodeDir: "sub"}
	before.Code.Snapshot = "git"
	for _, set := range []string{"code.snapshot=none", `code={snapshot="copy"}`, " code.max_mb = 3"} {
		job := &Job{WorkDir: "/w"}
		if err := job.KeepCode(before, []string{"train.epochs=3", set}); !errors.As(err, new(*usage.Error)) ||
			!strings.Contains(err.Error(), "submit the job again") {
			t.Errorf("--set %s: %v", set, err)
		}
	}
	if err := (&Job{WorkDir: "/other"}).KeepCode(before, nil); !errors.As(err, new(*usage.Error)) ||
		!strings.Contains(err.Error(), "/other") {
		t.Errorf("another workdir: %v", err)
	}
	job := &Job{WorkDir: "/w"}
	if err := job.KeepCode(before, []string{"train.epochs=3"}); err != nil || job.CodeDir != "sub" || job.Code.Snapshot != "git" {
		t.Errorf("%v, %+v", err, job.Code)
	}
	job = &Job{WorkDir: "/other"}
	if err := job.KeepCode(&Job{WorkDir: "/w"}, nil); err != nil || job.CodeDir != "" {
		t.Errorf("a run without a copy: %v", err)
	}
}

// TestLiveCodeIsWarnedOf: a warning names the code that ranks would run directly from the tree.
func TestLiveCodeIsWarnedOf(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("tree/train.py", "")
	write("tree/src/a.py", "")
	write("venv/pyvenv.cfg", "")
	write("venv/lib/python3.12/site-packages/__editable__.a-1.pth", filepath.Join(dir, "tree/src"))
	tree, venv := filepath.Join(dir, "tree"), filepath.Join(dir, "venv")
	editable := "Python imports from the source tree, not from its copy: " + venv +
		"/lib/python3.12/site-packages/__editable__.a-1.pth leads to " + tree + "/src"
	advice := `[setup] env = { PYTHONPATH = "src" }`
	for _, test := range []struct {
		name    string
		change  func(*Job)
		environ []string
		want    []string // a part of each warning
	}{
		{"nothing", func(*Job) {}, []string{"PATH=/bin"}, nil},
		{"a venv", func(j *Job) { j.Setup.Venv = "../venv" }, nil, []string{editable}},
		{"its advice", func(j *Job) { j.Setup.Venv = venv }, nil, []string{advice}},
		{"heeded", func(j *Job) { j.Setup.Venv = venv; j.Env = map[string]string{"PYTHONPATH": "src:/x"} }, nil, nil},
		{"not heeded", func(j *Job) { j.Setup.Venv = venv; j.Env = map[string]string{"PYTHONPATH": "/x:src"} }, nil, []string{editable}},
		{"a conda environment", func(j *Job) { j.Setup.Conda = "../venv" }, nil, []string{editable}},
		{"one by its name", func(j *Job) { j.Setup.Conda = "venv" }, []string{"VIRTUAL_ENV=" + venv}, nil},
		{"one that is activated", func(*Job) {}, []string{"VIRTUAL_ENV=" + venv}, []string{editable}},
		{"PYTHONPATH", func(*Job) {}, []string{"PYTHONPATH=/x:" + tree + "/src"}, []string{"PYTHONPATH leads to " + tree + "/src"}},
		{"PYTHONPATH of the job", func(j *Job) { j.Env = map[string]string{"PYTHONPATH": tree} }, []string{"PYTHONPATH=x"},
			[]string{"PYTHONPATH leads to " + tree}},
		{"the script", func(j *Job) { j.Launch.Command = []string{"python3", tree + "/train.py", venv + "/pyvenv.cfg"} }, nil,
			[]string{"item 2 of launch.command, \"" + tree +
				"/train.py\", is a file of the source tree, not of its copy: write \"train.py\", relative to workdir"}},
		{"the script of one element", func(j *Job) {
			j.Launch.Command = []string{"true"}
			j.Sweep = &Sweep{Mode: product, Keys: []SweptKey{
				{Key: "launch.command", Values: []string{`["true"]`, `["cat", "` + tree + `/train.py"]`}},
				{Key: "setup.env.A", Values: []string{`"1"`, `"2"`}},
			}}
		}, nil, []string{"item 2 of launch.command, \"" + tree + "/train.py\""}},
	} {
		job := emptyJob()
		job.WorkDir, job.RunDir, job.Code.Snapshot = tree, tree+"/runs", "copy"
		test.change(job)
		_, warnings, err := job.SelectCode(t.Context(), "", test.environ)
		if err != nil || len(warnings) != len(test.want) {
			t.Errorf("%s: %q, %v", test.name, warnings, err)
			continue
		}
		for i, part := range test.want {
			if !strings.Contains(warnings[i], part) {
				t.Errorf("%s: %q does not say %q", test.name, warnings[i], part)
			}
		}
	}
	if !slices.Contains(os.Environ(), "HOME="+os.Getenv("HOME")) {
		t.Skip("no home")
	}
	t.Setenv("HOME", dir)
	job := emptyJob()
	job.WorkDir, job.RunDir, job.Code.Snapshot, job.Setup.Venv = tree, tree+"/runs", "copy", "~/venv"
	if _, warnings, err := job.SelectCode(t.Context(), "", nil); err != nil || len(warnings) != 1 {
		t.Errorf("a venv in the home: %q, %v", warnings, err)
	}
}

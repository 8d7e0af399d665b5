package jobfile

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/slurm"
)

func TestParseResolvesAgainstTheFilesFolder(t *testing.T) {
	job, warnings, err := Parse("job.toml", "/jobs", []byte("name = \"x\"\nworkdir = \"w\""+command), []string{"run_dir=r"})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if job.WorkDir != "/jobs/w" || job.RunDir != "/jobs/r" {
		t.Errorf("got %q and %q, below /jobs", job.WorkDir, job.RunDir)
	}
	checkJob(t, job)
}

func TestParseKnowsTheHomeOfTheUser(t *testing.T) {
	t.Setenv("HOME", "/home/ann")
	job, _, err := Parse("job.toml", "/jobs", []byte("name = \"x\"\nworkdir = \"~/w\""+command), nil)
	if err != nil || job.WorkDir != "/home/ann/w" {
		t.Errorf("%+v, %v", job, err)
	}
}

func TestParseNamesTheFileAsItWasGiven(t *testing.T) {
	_, _, err := Parse("./a.toml", "/jobs", []byte("nmae = 1"+command), nil)
	want := "./a.toml:1:1: unknown key nmae: did you mean name?\n./a.toml:1:1: a job needs the key name"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestParseRefusesALargeFile(t *testing.T) {
	var faults Faults
	if _, _, err := Parse("large", "/jobs", []byte(strings.Repeat("#\n", maxSize)), nil); !errors.As(err, &faults) {
		t.Errorf("a large file: %v", err)
	}
}

// FuzzParse: whatever a file and an override hold, Parse does not panic. Faults have their positions in the file and are in its order, and
// a valid job survives JSON.
func FuzzParse(f *testing.F) {
	f.Add("name = \"x\""+builtin, "train.epochs=2")
	f.Add("name = \"x\"\nslurm.nodes = 2\nlaunch.nproc_per_node = [1, 2]"+command, "slurm.nodes=3")
	f.Add("[train]\ndata = { kind = 3 }\nmodel = [{}]\n[[slurm]]\n[requeue.max]\nx = 1", "a.b=[1")
	f.Add("'' = 1\n\"a\\nb\" = 2\n[setup.env]\n\"=\" = 1", ".=")
	f.Add("a = \"\"\"\n\r\n", "name={}")
	f.Add("name = \"x\""+builtin+"[sweep]\nlr = [0.1, -1]\nsetup.env.A = [true, \"\"]\nmode = \"zip\"", "sweep.seed=1-9:4")
	f.Fuzz(func(t *testing.T, src, set string) {
		job, warnings, err := parse(src, set)
		if (job == nil) != (err != nil) {
			t.Fatalf("job %v, error %v", job, err)
		}
		var faults Faults
		if err != nil && (!errors.As(err, &faults) || len(faults) == 0) {
			t.Fatalf("the error is %#v", err)
		}
		checkPositions(t, src, faults)
		checkPositions(t, src, warnings)
		if job != nil {
			checkJob(t, job)
		}
	})
}

func checkPositions(t *testing.T, src string, faults []Fault) {
	t.Helper()
	lines := strings.Split(src, "\n")
	last := Fault{Line: 1}
	for _, f := range faults {
		if strings.HasPrefix(f.File, "--set ") {
			last = Fault{Line: len(lines) + 1}
			continue
		}
		if f.Line < 1 || f.Line > len(lines) || f.Column < 1 || f.Column > len(lines[f.Line-1])+1 {
			t.Fatalf("%v is not in %q", f, src)
		}
		if f.Line < last.Line || f.Line == last.Line && f.Column < last.Column {
			t.Fatalf("%v comes after %v", f, last)
		}
		last = f
	}
}

func TestOverridesReplaceValues(t *testing.T) {
	const src = `name = "x"
[slurm]
nodes = 2
time = 30
[setup]
env = { A = "a" }
[train]
model = { kind = "mlp" }
data = { kind = "mnist", images = "i", labels = "l" }
`
	for _, test := range []struct {
		name string
		sets []string
		got  func(*Job) any
		want any
	}{
		{"none", nil, func(j *Job) any { return j.Nodes() }, 2},
		{"a number", []string{"slurm.nodes=4"}, func(j *Job) any { return j.Nodes() }, 4},
		{"the last counts", []string{"train.epochs=4", "train.epochs=5"}, func(j *Job) any { return j.Train.Epochs }, 5},
		{"text that is no TOML", []string{"workdir=a b"}, func(j *Job) any { return j.WorkDir }, "/jobs/a b"},
		{"text in quotes", []string{`workdir="a b"`}, func(j *Job) any { return j.WorkDir }, "/jobs/a b"},
		{"text that looks like a number", []string{"name=2024"}, func(j *Job) any { return j.Name }, "2024"},
		{"text that looks like a number to sbatch", []string{"slurm.account=0042"},
			func(j *Job) any { v, _ := j.Slurm.Get("account"); return v }, "0042"},
		{"text that looks like a time", []string{"slurm.time=01:00:00"}, func(j *Job) any { v, _ := j.Slurm.Get("time"); return v },
			"01:00:00"},
		{"text with an equals sign", []string{"setup.env.B=c=d"}, func(j *Job) any { return j.Env["B"] }, "c=d"},
		{"text that looks like two lines of TOML", []string{"setup.env.B=1\nname = 3"},
			func(j *Job) any { return j.Env["B"] }, "1\nname = 3"},
		{"no text", []string{"setup.env.B="}, func(j *Job) any { return j.Env["B"] }, ""},
		{"into an inline table", []string{"setup.env.B=1"}, func(j *Job) any { return j.Env }, map[string]string{"A": "a", "B": "1"}},
		{"an inline table", []string{`setup.env={ C = "c" }`}, func(j *Job) any { return j.Env }, map[string]string{"C": "c"}},
		{"into a table that is not there", []string{"launch.grace=5s"}, func(j *Job) any { return j.Launch.Grace }, 5 * time.Second},
		{"a list", []string{"train.model.hidden=[3, 4]"}, func(j *Job) any { return j.Train.Model.Hidden }, []int{3, 4}},
		{"a truth value", []string{"train.data.shuffle=false"}, func(j *Job) any { return j.Train.Data.Shuffle }, false},
		{"a range of rows", []string{"train.data.train=0:5"}, func(j *Job) any { return j.Train.Data.Train }, "0:5"},
		{"into a table that one before it made", []string{"mpi.timeout=1s", "mpi.transport=tcp"},
			func(j *Job) any { return j.MPI.Transport }, "tcp"},
		{"options keep the file's order, and theirs", []string{"slurm.qos=q", "slurm.nodes=3"}, func(j *Job) any { return j.Slurm.List },
			[]slurm.Option{{Name: "time", Value: "30"}, {Name: "qos", Value: "q"}, {Name: "nodes", Value: "3"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			job, _, err := parse(src, test.sets...)
			if err != nil {
				t.Fatal(err)
			}
			if got := test.got(job); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %#v, want %#v", got, test.want)
			}
		})
	}
}

func TestBadOverridesAreFaults(t *testing.T) {
	const malformed = "write an override as --set table.key=value"
	for _, test := range []struct {
		name string
		sets []string
		want []string
	}{
		{"no equals sign", []string{"name"}, []string{"--set name: " + malformed}},
		{"quoted", []string{`sweep."train.seed"=[1]`},
			[]string{`--set sweep."train.seed": write the key without quotation marks, as in --set train.optimizer.lr=0.1`}},
		{"no key", []string{"=3"}, []string{"--set : " + malformed}},
		{"an empty part", []string{"slurm..nodes=3"}, []string{"--set slurm..nodes: " + malformed}},
		{"a key without end", []string{strings.Repeat("a.", 50) + "a=3"},
			[]string{"--set " + strings.Repeat("a.", 50) + "a: " + malformed}},
		{"not UTF-8", []string{"workdir=\xff"}, []string{"--set workdir: an override must be UTF-8 text"}},
		{"nested too deep", []string{"train.epochs=" + strings.Repeat("[", 40)},
			[]string{`--set train.epochs: train.epochs must be a whole number, not the text "` + strings.Repeat("[", 40) + `"`}},
		{"too long", []string{"name=" + strings.Repeat("x", maxSize)},
			[]string{"--set name: the value is too long: put it into the job file, or into a file of its own"}},
		{"misspelt", []string{"slurm.nods=3"}, []string{"--set slurm.nods: unknown key slurm.nods: did you mean slurm.nodes?"}},
		{"a list without quotes", []string{"launch.command=[/usr/bin/python3, train.py]"},
			[]string{`--set launch.command: launch.command must be a list, each item text without NUL, not the text ` +
				`"[/usr/bin/python3, train.py]"; in a list text needs quotes, which the shell must not remove: ` +
				`--set 'launch.command=["...", "..."]'`}},
		{"words instead of a list", []string{"launch.command=python3 train.py"},
			[]string{`--set launch.command: launch.command must be a list, each item text without NUL, not the text "python3 train.py"; ` +
				`write a list: --set 'launch.command=["python3", "train.py"]'`}},
		{"a word that the list does not take", []string{"requeue.on=cash"},
			[]string{`--set requeue.on: requeue.on must be a list, each item "preempt", "timeout", "node", "hang", "oom" or "crash", ` +
				`not the text "cash"`}},
		{"a misspelt table", []string{"slrum.nodes=3"}, []string{"--set slrum.nodes: unknown table [slrum]: did you mean [slurm]?"}},
		{"mistyped", []string{"train.epochs=many", "train.seed=1.5"}, []string{
			`--set train.epochs: train.epochs must be a whole number, not the text "many"`,
			"--set train.seed: train.seed must be a whole number from 0 to 4294967295, not 1.5",
		}},
		{"a number in quotes", []string{`train.epochs="4"`},
			[]string{`--set train.epochs: train.epochs must be a whole number, not the text "4"`}},
		{"below a value", []string{"slurm.nodes.x=3"},
			[]string{"--set slurm.nodes.x: slurm.nodes is not a table, so parts of it cannot be set: set it as a whole"}},
		{"an item of a list", []string{"launch.command.0=sh"},
			[]string{"--set launch.command.0: launch.command is not a table, so parts of it cannot be set: set it as a whole"}},
		{"inside an inline table", []string{`mpi={ timeout = 3 }`},
			[]string{`--set mpi: mpi.timeout must be a duration, such as "90s" or "5m", not 3`}},
		{"a fault that it puts right", []string{"checkpoint.keep_last=2"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := test.want
			src := "name = \"x\"\n[slurm]\nnodes = 2\n[checkpoint]\nkeep_last = 1" + command
			if test.want != nil {
				want = slices.Concat([]string{"job.toml:5:1: checkpoint.keep_last must be a whole number of at least 2, not 1"}, want)
			}
			checkFaults(t, src, test.sets, want...)
		})
	}
}

func TestWarningsCoverOverrides(t *testing.T) {
	_, warnings, err := parse("name = \"x\"\n[requeue]\nlead = \"5s\""+builtin, "requeue.max.crash=2")
	want := []string{
		`job.toml:3:1: requeue.lead = "5s" leaves hardly any time to save; write "10s" or more`,
		`--set requeue.max.crash: requeue.max.crash = 2 has no effect: requeue.on does not name "crash"`,
	}
	if got := lines(warnings); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

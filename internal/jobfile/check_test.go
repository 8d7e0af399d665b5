package jobfile

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/slurm"
)

// builtin is the end of a job file that is complete otherwise. Because it is appended, it moves no line.
const builtin = "\n[train]\nloss = \"mse\"\nmodel = { kind = \"dense\" }\ndata = { kind = \"generated\" }\n"

// command does the same for a job with its own command.
const command = "\n[launch]\ncommand = [\"true\"]\n"

// TestMain runs the tests as a user whose home directory is /home/ann.
func TestMain(m *testing.M) {
	if err := os.Setenv("HOME", "/home/ann"); err != nil {
		panic(err)
	}
	m.Run()
}

// parse reads a job as if it were job.toml in /jobs.
func parse(src string, sets ...string) (*Job, []Fault, error) {
	return Parse("job.toml", "/jobs", []byte(src), sets)
}

// lines returns faults as they are printed.
func lines(faults []Fault) []string {
	var printed []string
	for _, f := range faults {
		printed = append(printed, f.String())
	}
	return printed
}

// checkFaults compares the faults that are printed for src with those that are wanted, line by line.
func checkFaults(t *testing.T, src string, sets []string, want ...string) {
	t.Helper()
	job, _, err := parse(src, sets...)
	var faults Faults
	if err != nil && !errors.As(err, &faults) {
		t.Fatalf("the error is no Faults: %v", err)
	}
	if got := lines(faults); !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	if (job == nil) != (err != nil) {
		t.Errorf("job %v, error %v: want one of them", job, err)
	}
}

func TestSyntaxFaultsNameTheirPlace(t *testing.T) {
	for _, test := range []struct{ name, src, want string }{
		{"no value", "name = \"x\"\n[slurm]\nnodes = \n", "job.toml:3:9: expected value but found '\\n' instead"},
		{"no closing bracket", "[slurm\nnodes = 2\n", "job.toml:1:7: expected '.' or ']' to end table name, but got '\\n' instead"},
		{"twice", "name = \"x\"\nname = \"y\"\n", "job.toml:2:1: Key 'name' has already been defined."},
		{"after other letters", "é = 1\n", "job.toml:1:1: expected '.' or '=', but got 'é' instead"},
		{"columns count characters", "workdir = \"é\" name = 1",
			"job.toml:1:14: expected a top-level item to end with a newline, comment, or EOF, but got 'n' instead"},
		{"after a byte order mark", "\ufeffname = x",
			"job.toml:1:8: expected value but found \"x\" instead; if the value is text, put it in quotes"},
		{"without quotes", "name = \"x\"\n[slurm]\ntime = 5m\n",
			"job.toml:3:9: expected a top-level item to end with a newline, comment, or EOF, but got 'm' instead; " +
				"if the value is text, put it in quotes"},
		{"another file", "root:x:0:0:root:/root:/bin/sh\n",
			`job.toml:1:5: this is not a job file, which is written in TOML (expected '.' or '=', but got ':' instead); "ddpbatch init" ` +
				`writes one to start from`},
		{"a batch script", "#!/bin/bash\n#SBATCH --nodes=2\nsrun train\n",
			`job.toml:3:6: this is a script, not a job file (expected '.' or '=', but got 't' instead); ` +
				`"ddpbatch init --from job.toml" makes a job file of it`},
		{"a program in Python", "#!/usr/bin/env python3\nimport torch\n",
			`job.toml:2:8: this is not a job file, which is written in TOML (expected '.' or '=', but got 't' instead); ` +
				`"ddpbatch init" writes one to start from`},
		{"a program", "\x7fELF\x00[a]=\n",
			`job.toml:1:5: this is not a job file, which is written in TOML (files cannot contain NULL bytes; probably using UTF-16; ` +
				`TOML files must be UTF-8); "ddpbatch init" writes one to start from`},
		{"nested too deep", "a = 1\nb = " + strings.Repeat("[", 50_000),
			"job.toml:2:36: tables and lists are nested more than 32 deep here"},
		{"too large", strings.Repeat("#", maxSize+1), "job.toml:1:1: the file is too long: a job file may have at most 256 KiB"},
	} {
		t.Run(test.name, func(t *testing.T) { checkFaults(t, test.src, nil, test.want) })
	}
}

// TestFaultsShowNoSecrets has wrong values: some have names that suggest a secret, and some are secrets inside other values.
func TestFaultsShowNoSecrets(t *testing.T) {
	for _, test := range []struct{ name, src, want string }{
		{"not in quotes", "name = \"x\"\n[setup.env]\nHF_TOKEN = s3cret\n",
			"job.toml:3:12: the value of setup.env.HF_TOKEN is not TOML: write it in quotes"},
		{"no number", "name = \"x\"\n[setup.env]\nMY_KEY = 12__34\n",
			"job.toml:3:10: the value of setup.env.MY_KEY is not TOML: write it in quotes"},
		{"a number", "name = \"x\"\n[setup.env]\nDb_Password = 1234" + builtin,
			"job.toml:3:1: setup.env.Db_Password must be text without NUL, in quotes, not a number"},
		{"with a NUL", "name = \"x\"\n[setup.env]\nMY_SECRET = \"s3cret\\u0000\"" + builtin,
			"job.toml:3:1: setup.env.MY_SECRET must be text without NUL, in quotes, not that text"},
		{"in an option of sbatch's", "name = \"x\"\n[slurm]\nextra = [\"export=A,HF_TOKEN=s3cret\"]" + builtin,
			`job.toml:3:1: item 1 of slurm.extra: sbatch option "export=A,HF_TOKEN=***": ` +
				`it must be one word that begins with a dash, such as "--switches=1"`},
		{"in another value", "name = \"HF_TOKEN=s3cret\"" + builtin,
			"job.toml:1:1: name must be 1 to 64 of the characters A-Z a-z 0-9 . _ -, not beginning with . or -, " +
				"not the text \"HF_TOKEN=***\""},
	} {
		t.Run(test.name, func(t *testing.T) { checkFaults(t, test.src, nil, test.want) })
	}
	checkFaults(t, "name = \"x\""+builtin, []string{"setup.env.HF_TOKEN=1234"}) // the value is the text as it was typed
	checkFaults(t, "name = \"x\""+builtin, []string{"setup.env.HF_TOKEN=[1234]", "setup.env.A-KEY=s3cret"},
		"--set setup.env.A-KEY: \"A-KEY\" is not a name for an environment variable: use letters, digits and _")
}

func TestBadKeysAreFaults(t *testing.T) {
	for _, test := range []struct {
		name, src string
		want      []string
	}{
		{"misspelt", "nmae = \"x\"\nname = \"y\"\n[slrum]\nnodes = 2\n[slurm]\nnods = 2\n  nodess = 4\n[train]\nepoch = 1" +
			strings.Replace(builtin, "[train]", "", 1), []string{
			`job.toml:1:1: unknown key nmae: did you mean name?`,
			`job.toml:3:2: unknown table [slrum]: did you mean [slurm]?`,
			`job.toml:6:1: unknown key slurm.nods: did you mean slurm.nodes?`,
			`job.toml:7:3: unknown key slurm.nodess: did you mean slurm.nodes?`,
			`job.toml:9:1: unknown key train.epoch: did you mean train.epochs?`,
		}},
		{"in inline tables and dotted",
			"name = \"x\"\nlaunch.modee = \"agent\"\ntrain = { loss = \"mse\", model = { kind = \"mlp\", hiden = [1] }, data = { kind = " +
				"\"generated\" }, optimiser.lr = 1 }", []string{
				`job.toml:2:8: unknown key launch.modee: did you mean launch.mode?`,
				`job.toml:3:49: unknown key train.model.hiden: did you mean train.model.hidden?`,
				`job.toml:3:95: unknown table [train.optimiser]: did you mean [train.optimizer]?`,
			}},
		{"at the wrong place", "name = \"x\"\nnodes = 2\nepochs = 3" + builtin, []string{
			`job.toml:2:1: unknown key nodes: did you mean slurm.nodes?`,
			`job.toml:3:1: unknown key epochs: did you mean train.epochs?`,
		}},
		{"at a wrong place, and nearly right", "name = \"x\"\n[slurm]\nnode = 2\nepochs = 3" + builtin, []string{
			`job.toml:3:1: unknown key slurm.node: did you mean slurm.nodes, or requeue.max.node?`,
			`job.toml:4:1: unknown key slurm.epochs: did you mean train.epochs?`,
		}},
		{"nearly right, of a table below", "name = \"x\"\nepocs = 3\n[train]\nlrr = 2" + strings.TrimPrefix(builtin, "\n[train]"), []string{
			`job.toml:2:1: unknown key epocs: did you mean train.epochs?`,
			`job.toml:4:1: unknown key train.lrr: did you mean train.optimizer.lr?`,
		}},
		{"of a command, before it", "name = \"x\"\nepochs = 3\n[launch]\ncommand = [\"x\"]", []string{
			`job.toml:2:1: unknown key epochs; known here: ` + strings.Join(slices.Sorted(maps.Keys(schema().keys)), ", "),
		}},
		{"the beginning of others", "name = \"x\"\n[slurm]\ncpus = 2\n[launch]\nmax = 3" + builtin, []string{
			`job.toml:3:1: unknown key slurm.cpus: did you mean slurm.cpus_per_gpu, or slurm.cpus_per_task?`,
			`job.toml:5:1: unknown key launch.max: did you mean launch.max_restarts, or [requeue.max]?`,
		}},
		{"a duration of other keys", "name = \"x\"\n[slurm]\ntime = \"5m\"\ntime_min = \"90s\"" + builtin, []string{
			`job.toml:3:1: slurm.time: time "5m": "5m" is not a number; write "5" (minutes) or "00:05:00"`,
			`job.toml:4:1: slurm.time_min: time "90s": "90s" is not a number; write "00:01:30"`,
		}},
		{"like no other", "name = \"x\"\n[checkpoint]\nzzzzzzzz = 1" + builtin, []string{
			`job.toml:3:1: unknown key checkpoint.zzzzzzzz; known here: async, at_start, codec, delta, every_steps, keep_best, ` +
				`keep_every, keep_last, keep_within, local, memory, replicate, resume`,
		}},
		{"quoted, with a dot", "name = \"x\"\n\"slurm.nodes\" = 2" + builtin, []string{
			`job.toml:2:1: unknown key "slurm.nodes"; known here: checkpoint, code, container, launch, mpi, name, requeue, run_dir, ` +
				`schema, script_template, setup, slurm, sweep, train, workdir`,
		}},
		{"of another kind", "name = \"x\"\n[train]\nmodel = { kind = \"dense\", hidden = [3] }\ndata = { kind = \"mnist\", rows = 3 }",
			[]string{
				`job.toml:3:27: train.model.hidden is not a key of kind "dense", only of "mlp" or "cnn"`,
				`job.toml:4:1: train.data needs the key images`,
				`job.toml:4:1: train.data needs the key labels`,
				`job.toml:4:26: train.data.rows is not a key of kind "mnist", only of "generated"`,
			}},
	} {
		t.Run(test.name, func(t *testing.T) { checkFaults(t, test.src, nil, test.want...) })
	}
}

// TestFaultsOfSlurmHaveTheirPlace: the user sees what package slurm says about a key, with its position.
func TestFaultsOfSlurmHaveTheirPlace(t *testing.T) {
	for _, test := range []struct {
		key, value string
		decoded    any
	}{
		{"ntasks_per_node", `4`, int64(4)}, // ddpbatch sets it
		{"frobnicate", `4`, int64(4)},      // sbatch does not have it
		{"gpus-per-node", `4`, int64(4)},   // sbatch's own spelling
		{"cpus_per_task", `"4"`, "4"},
		{"time", `"1h"`, "1h"},
		{"time", `01:00:00`, time.Time{}},
		{"mem", `[1]`, []any{int64(1)}},
		{"mem", `"12 parsecs"`, "12 parsecs"},
		{"partition", `{ a = 1 }`, map[string]any{"a": int64(1)}},
	} {
		t.Run(test.key+"="+test.value, func(t *testing.T) {
			_, err := slurm.ParseOption(test.key, test.decoded)
			if err == nil {
				t.Fatal("package slurm takes this")
			}
			said := err.Error()
			if IsKey("slurm." + test.key) {
				said = strings.Replace(said, "key "+test.key, "slurm."+test.key, 1)
			}
			checkFaults(t, "name = \"x\"\n[slurm]\n"+test.key+" = "+test.value+command, nil, "job.toml:3:1: "+said)
		})
	}
}

func TestMissingKeysAreFaults(t *testing.T) {
	for _, test := range []struct {
		name, src string
		want      []string
	}{
		{"everything", "", []string{
			`job.toml:1:1: a job needs the key name`,
			`job.toml:1:1: a job needs [train], for the built-in trainer, or launch.command, for your own program`,
		}},
		{"model and data", "name = \"x\"\n\n [train]\nepochs = 1", []string{
			`job.toml:3:3: train needs the key model`,
			`job.toml:3:3: train needs the key data`,
		}},
		{"the kind of data", "name = \"x\"\n[train]\nmodel = {}\ndata.shuffle = true", []string{
			`job.toml:4:1: train.data needs the key kind`,
		}},
		{"nothing, with a command", "name = \"x\"" + command, nil},
	} {
		t.Run(test.name, func(t *testing.T) { checkFaults(t, test.src, nil, test.want...) })
	}
}

// TestFaultsEndWithTheFirstHundred: a file with more than a hundred faults reports the first hundred.
func TestFaultsEndWithTheFirstHundred(t *testing.T) {
	var src strings.Builder
	for i := range 24_000 {
		fmt.Fprintf(&src, "k%d=1\n", i)
	}
	_, _, err := parse(src.String())
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 101 {
		t.Fatalf("%d faults: %.200v", len(faults), err)
	}
	if first, last := faults[0].String(), faults[100].String(); !strings.HasPrefix(first, "job.toml:1:1: unknown key k0") ||
		!strings.Contains(faults[99].String(), "unknown key k99") || !strings.Contains(last, "more than 100 faults") {
		t.Errorf("%s ... %s", first, last)
	}
}

func TestFaultsComeAllAtOnceInTheOrderOfTheFile(t *testing.T) {
	checkFaults(t, "[train]\nlr = 1\n[checkpoint]\nkeep_last = 1\n[mpi]\ntimeout = \"x\"\n", []string{"zzzz=1", "launch.grace=1"},
		`job.toml:1:1: a job needs the key name`,
		`job.toml:1:2: train needs the key model`,
		`job.toml:1:2: train needs the key data`,
		`job.toml:2:1: unknown key train.lr: did you mean train.optimizer.lr?`,
		`job.toml:4:1: checkpoint.keep_last must be a whole number of at least 2, not 1`,
		`job.toml:6:1: mpi.timeout must be a duration, such as "90s" or "5m", not the text "x"`,
		`--set zzzz: unknown key zzzz; known here: checkpoint, code, container, launch, mpi, name, requeue, run_dir, schema, `+
			`script_template, setup, slurm, sweep, train, workdir`,
		`--set launch.grace: launch.grace must be a duration, such as "90s" or "5m", not 1`,
	)
}

// TestClustersAreNamed sets values on line 3 that do not name clusters.
func TestClustersAreNamed(t *testing.T) {
	for _, value := range []string{"all", "ALL", "a, b"} {
		t.Run(value, func(t *testing.T) {
			_, warnings, err := parse("name = \"x\"\n[slurm]\nclusters = \"" + value + "\"" + command)
			faults, _ := err.(Faults)
			checkLine(t, "fault", lines(faults), `slurm.clusters = "`+value+`": name one cluster, or several separated by commas ("a,b"): `+
				`"sacctmgr list clusters" lists them`)
			checkLine(t, "warning", lines(warnings), "")
		})
	}
}

// checkLine wants one finding on line 3, column 1, or none if want is empty.
func checkLine(t *testing.T, what string, got []string, want string) {
	t.Helper()
	var all []string
	if want != "" {
		all = []string{"job.toml:3:1: " + want}
	}
	if !slices.Equal(got, all) {
		t.Errorf("%s: got %q, want %q", what, got, all)
	}
}

func TestFaultsOfSeveralTablesComeTogether(t *testing.T) {
	const rest = "\n[container]\nimage = \"x.sif\"\nrunime = \"pyxis\"\n[requeue]\nmax = { crash = 0, cash = 1 }\nlead = \"x\"\non = " +
		"[\"preempt\", \"boredom\"]"
	checkFaults(t, "name = \"x\""+command+rest, nil,
		"job.toml:5:2: container needs the key runtime",
		"job.toml:7:1: unknown key container.runime: did you mean container.runtime?",
		"job.toml:9:20: unknown key requeue.max.cash: did you mean requeue.max.crash?",
		`job.toml:10:1: requeue.lead must be a duration, such as "90s" or "5m", not the text "x"`,
		`job.toml:11:1: item 2 of requeue.on must be "preempt", "timeout", "node", "hang", "oom" or "crash", not the text "boredom"`,
	)
}

package jobfile

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/snapshot"
	"ddpbatch/mpi"
	"ddpbatch/mpi/launch"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
	"ddpbatch/trainer"
)

const nodesFault = `slurm.nodes must be a whole number of at least 1, or a range such as "2-4"`

// TestBadValuesAreFaults sets one key in its own table, and checks the fault. The key is always on line 3, column 1.
func TestBadValuesAreFaults(t *testing.T) {
	for _, test := range []struct{ table, key, value, want string }{
		{"slurm", "nodes", `"4x"`, nodesFault + `, not the text "4x"`},
		{"slurm", "nodes", `"4-2"`, nodesFault + `, not the text "4-2"`},
		{"slurm", "nodes", `"0-2"`, nodesFault + `, not the text "0-2"`},
		{"slurm", "nodes", `"2-"`, nodesFault + `, not the text "2-"`},
		{"slurm", "nodes", `"1-5000000000"`, nodesFault + `, not the text "1-5000000000"`},
		{"slurm", "nodes", `"2-8:2"`, nodesFault + `, not the text "2-8:2"`},
		{"slurm", "nodes", `0`, nodesFault + `, not 0`},
		{"slurm", "nodes", `2.0`, nodesFault + `, not 2`},
		{"slurm", "extra", `"--switches=1"`, `slurm.extra must be a list, each item text, not the text "--switches=1"`},
		{"slurm", "extra", `["--switches=1", 3]`, `item 2 of slurm.extra must be text, not 3`},
		{"slurm", "extra", `["--ok", "switches"]`,
			`item 2 of slurm.extra: sbatch option "switches": it must be one word that begins with a dash, such as "--switches=1"`},
		{"slurm", "skip", `["--mem", ""]`,
			`item 2 of slurm.skip must be the name of an option of sbatch, such as "--mem", not the text ""`},
		{"code", "snapshot", `"svn"`, `code.snapshot must be "none", "git" or "copy", not the text "svn"`},
		{"code", "snapshot", `true`, `code.snapshot must be "none", "git" or "copy", not true`},
		{"setup", "modules", `["a", "b\nc"]`, `item 2 of setup.modules must be one line of text, not the text "b\nc"`},
		{"setup", "script", `["a\u0000"]`, `item 1 of setup.script must be text without NUL, not the text "a\x00"`},
		{"setup", "venv", `""`, `setup.venv must be one line of text, not the text ""`},
		{"setup.env", "A", `1`, `setup.env.A must be text without NUL, in quotes, not 1`},
		{"setup.env", "A", `"\u0000"`, `setup.env.A must be text without NUL, in quotes, not the text "\x00"`},
		{"setup.env", "1A", `"x"`, `"1A" is not a name for an environment variable: use letters, digits and _`},
		{"setup.env", `"A=B"`, `"x"`, `"A=B" is not a name for an environment variable: use letters, digits and _`},
		{"setup", "env", `["A=B"]`, `setup.env must be a table, not a list`},
		{"launch", "nproc_per_node", `0`, nprocFault + `, not 0`},
		{"launch", "nproc_per_node", `"tpu"`, nprocFault + `, not the text "tpu"`},
		{"launch", "nproc_per_node", `true`, nprocFault + `, not true`},
		{"launch", "nproc_per_node", `[]`, `launch.nproc_per_node must be a list of at least one whole number, not an empty list`},
		{"launch", "nproc_per_node", `[2, "2"]`, `item 2 of launch.nproc_per_node must be a whole number of at least 1, not the text "2"`},
		{"launch", "command", `"true"`, `launch.command must be a list, each item text without NUL, not the text "true"`},
		{"launch", "command", `[]`, `launch.command must not be empty: leave it out instead`},
		{"launch", "mode", `"agents"`, `launch.mode must be "agent" or "task", not the text "agents"`},
		{"launch", "max_restarts", `-1`, `launch.max_restarts must be a whole number of at least 0, not -1`},
		{"launch", "warn_signal", `"KILL"`, `launch.warn_signal must be "USR1", "USR2", "HUP", "INT" or "TERM", not the text "KILL"`},
		{"launch", "grace", `"-1s"`, `launch.grace must be a duration, such as "90s" or "5m", not the text "-1s"`},
		{"launch", "grace", `60`, `launch.grace must be a duration, such as "90s" or "5m", not 60`},
		{"mpi", "transport", `"rdma"`, `mpi.transport must be "auto", "shm", "tcp" or "ucx", not the text "rdma"`},
		{"mpi", "timeout", `"0s"`, `mpi.timeout must be a duration, such as "90s" or "5m", not the text "0s"`},
		{"mpi", "deterministic", `"yes"`, `mpi.deterministic must be true or false, not the text "yes"`},
		{"train", "epochs", `0`, `train.epochs is 0: must be 1 to 1000000000`},
		{"train", "epochs", `3000000000`, `train.epochs is 3000000000: must be 1 to 1000000000`},
		{"train", "epochs", `1.5`, `train.epochs must be a whole number, not 1.5`},
		{"train", "batch_size", `-3`, `train.batch_size is -3: must be 1 to 1048576`},
		{"train", "seed", `-1`, `train.seed must be a whole number from 0 to 4294967295, not -1`},
		{"train", "seed", `4294967296`, `train.seed must be a whole number from 0 to 4294967295, not 4294967296`},
		{"train.data", "kind", `"imagenet"`,
			`train.data.kind must be "mnist", "generated", "cifar10", "csv", "npy" or "text", not the text "imagenet"`},
		{"train", "loss", `"l1"`, `train.loss is "l1": must be "mse" for data.kind = "generated"`},
		{"train", "model", `"mlp"`, `train.model must be a table, not the text "mlp"; write train.model = { kind = "mlp", ... }`},
		{"train", "model", `"resnet"`, `train.model must be a table, not the text "resnet"`},
		{"train", "optimizer", `"adam"`,
			`train.optimizer must be a table, not the text "adam"; write train.optimizer = { kind = "adam", ... }`},
		{"train.model", "kind", `"rnn"`, `train.model.kind must be "mlp", "dense", "cnn" or "gpt", not the text "rnn"`},
		{"train.model", "hidden", `[]`, `train.model.hidden must be a list of at least one whole number, not an empty list`},
		{"train.model", "hidden", `[3, 0]`, `train.model.hidden[1] is 0: must be 1 to 1048576`},
		{"train.model", "hidden", `128`, `train.model.hidden must be a list of at least one whole number, not 128`},
		{"train.model", "activation", `"gelu"`, `train.model.activation is "gelu": must be "relu" or "tanh"`},
		{"train.optimizer", "kind", `"adagrad"`, `train.optimizer.kind must be "sgd", "adam", "adamw" or "lamb", not the text "adagrad"`},
		{"train.ddp", "compress", `"fp16"`, `train.ddp.compress is "fp16": must be "none", "float16", "bfloat16", "int8" or "powersgd"`},
		{"train.ddp", "compress", `16`, `train.ddp.compress is "16": must be "none", "float16", "bfloat16", "int8" or "powersgd"`},
		{"train.ddp", "compress", `["int8"]`, `train.ddp.compress must be a word in quotes, not a list`},
		{"train", "mode", `true`, `train.mode is "true": must be "ddp" or "dp"`},
		{"train.evaluate", "best", `""`, `train.evaluate.best must be "loss" or "accuracy", not the text ""`},
		{"train", "replicas", `0`, `train.replicas must be a whole number of at least 1, not 0`},
		{"train", "clip_norm", `0`, `train.clip_norm must be a number above 0, not 0`},
		{"train.optimizer", "lr", `0`, `train.optimizer.lr: is 0, want a number above 0 that float32 holds, from 1e-45 to 3e38`},
		{"train.optimizer", "lr", `nan`, `train.optimizer.lr must be a number, not NaN`},
		{"train.optimizer", "lr", `inf`, `train.optimizer.lr must be a number, not +Inf`},
		{"train.optimizer", "momentum", `1`, `train.optimizer.momentum: is 1, want at least 0 and below 1, up to 0.9999999`},
		{"train.optimizer", "momentum", `-0.1`, `train.optimizer.momentum: is -0.1, want at least 0 and below 1, up to 0.9999999`},
		{"checkpoint", "every_steps", `-1`, `checkpoint.every_steps must be a whole number of at least 0, not -1`},
		{"checkpoint", "codec", `"gzip"`, `checkpoint.codec must be "auto", "none" or "zstd", not the text "gzip"`},
		{"checkpoint", "keep_every", `0`, `checkpoint.keep_every must be a whole number of at least 1, not 0`},
		{"checkpoint", "keep_within", `"1d"`, `checkpoint.keep_within must be a duration, such as "90s" or "5m", not the text "1d"`},
		{"checkpoint", "keep_best", `-1`, `checkpoint.keep_best must be a whole number of at least 1, not -1`},
		{"checkpoint", "delta", `-1`, `checkpoint.delta must be a whole number of at least 0, not -1`},
		{"checkpoint", "memory", `4`, `checkpoint.memory must be a size, such as "512M" or "4G", not 4`},
		{"checkpoint", "memory", `"4"`, `checkpoint.memory must be a size, such as "512M" or "4G", not the text "4"`},
		{"checkpoint", "memory", `"0G"`, `checkpoint.memory must be a size, such as "512M" or "4G", not the text "0G"`},
		{"checkpoint", "memory", `"-1G"`, `checkpoint.memory must be a size, such as "512M" or "4G", not the text "-1G"`},
		{"checkpoint", "memory", `"9999999T"`, `checkpoint.memory must be a size, such as "512M" or "4G", not the text "9999999T"`},
		{"checkpoint", "memory", `""`, `checkpoint.memory must be a size, such as "512M" or "4G", not the text ""`},
		{"checkpoint", "local", `"scratch"`, `checkpoint.local must be an absolute path, not the text "scratch"`},
		{"checkpoint", "replicate", `1`, `checkpoint.replicate must be true or false, not 1`},
		{"checkpoint", "at_start", `1`, `checkpoint.at_start must be true or false, not 1`},
		{"checkpoint", "resume", `"yes"`, `checkpoint.resume must be "auto" or "never", not the text "yes"`},
	} {
		t.Run(test.table+"."+test.key+"="+test.value, func(t *testing.T) {
			src := fmt.Sprintf("name = \"x\"\n[%s]\n%s = %s\n", test.table, test.key, test.value)
			rest, sets := command, []string(nil)
			switch strings.Split(test.table, ".")[0] {
			case "train":
				rest, sets = "", trainedBeside(test.table+"."+test.key)
			case "launch":
				src, rest = strings.Replace(src, "[launch]", "[launch]#", 1), builtin
			}
			checkFaults(t, src+rest, sets, "job.toml:3:1: "+test.want)
		})
	}
}

// trainedBeside returns the settings that a job of the built-in trainer needs beside a key.
func trainedBeside(key string) []string {
	sets := []string{"train.loss=mse", "train.model.kind=mlp", "train.data.kind=generated"}
	return slices.DeleteFunc(sets, func(set string) bool { return strings.HasPrefix(SetKey(set)+".", key+".") })
}

const nprocFault = `launch.nproc_per_node must be a whole number of at least 1, a list with one number per node, "gpu", "cpu" or "auto"`

func TestBadTopValuesAreFaults(t *testing.T) {
	const names = `name must be 1 to 64 of the characters A-Z a-z 0-9 . _ -, not beginning with . or -`
	for _, test := range []struct {
		src  string
		want []string
	}{
		{`name = 3`, []string{"job.toml:1:1: " + names + ", not 3"}},
		{`name = ""`, []string{"job.toml:1:1: " + names + `, not the text ""`}},
		{`name = ".x"`, []string{"job.toml:1:1: " + names + `, not the text ".x"`}},
		{`name = "-x"`, []string{"job.toml:1:1: " + names + `, not the text "-x"`}},
		{`name = "a/b"`, []string{"job.toml:1:1: " + names + `, not the text "a/b"`}},
		{`name = "x\n"`, []string{"job.toml:1:1: " + names + `, not the text "x\n"`}},
		{`name = "` + strings.Repeat("x", 65) + `"`,
			[]string{"job.toml:1:1: " + names + `, not the text "` + strings.Repeat("x", 60) + `"...`}},
		{`name = "` + strings.Repeat("x", 64) + `"`, nil},
		{"name = \"x\"\nschema = 1", nil},
		{"name = 3\nschema = 2\nnew = 1", []string{"job.toml:2:1: this ddpbatch reads schema 1, not 2"}},
		{"name = \"x\"\nschema = \"1\"", []string{`job.toml:2:1: this ddpbatch reads schema 1, not the text "1"`}},
		{"name = \"x\"\nworkdir = 1979-05-27",
			[]string{`job.toml:2:1: workdir must be one line of text, not a date or time (write it in quotes)`}},
		{"name = \"x\"\nworkdir = \"~bob/x\"",
			[]string{`job.toml:2:1: workdir: only "~/", the home folder of the user who submits, is supported: write the full path`}},
		{"name = \"x\"\nrun_dir = \"a\\u0007\"", []string{`job.toml:2:1: run_dir must be one line of text, not the text "a\a"`}},
		{"name = \"x\"\nworkdir = \"a\\u202eb\"", []string{`job.toml:2:1: workdir must be one line of text, not the text "a\u202eb"`}},
		{"name = \"x\"\nworkdir = \"a\\u009bb\"", []string{`job.toml:2:1: workdir must be one line of text, not the text "a\u009bb"`}},
		{"name = \"x\"\nlaunch.prefix = \"\\u202e\"",
			[]string{`job.toml:2:8: launch.prefix must be one line of text, not the text "\u202e"`}},
		{"name = \"x\"\nslurm = 3", []string{`job.toml:2:1: slurm must be a table, not 3`}},
		{"name = \"x\"\n[[slurm]]\nnodes = 2\n[[slurm]]\nnodes = 3", []string{`job.toml:2:3: slurm must be a table, not a list of tables`}},
	} {
		t.Run(test.src, func(t *testing.T) { checkFaults(t, test.src+command, nil, test.want...) })
	}
}

func TestBadGeneratedDataIsAFault(t *testing.T) {
	checkFaults(t, "name = \"x\"\n[train]\nloss = \"mse\"\nmodel.kind = \"dense\"\n[train.data]\nkind = \"generated\"\nnoise = "+
		"-0.5\nrows = 0\ninputs = \"x.npy\"", nil,
		"job.toml:7:1: train.data.noise is -0.5: must be a number from 0 on",
		"job.toml:8:1: train.data.rows is 0: must be 1 to 2147483647",
		`job.toml:9:1: train.data.inputs must be a whole number, not the text "x.npy"`,
	)
}

// Faults that otherwise only the trainer would find, after the job has waited in the queue, are found before it is submitted.
func TestTrainersFaultsAreFoundBeforeTheQueue(t *testing.T) {
	checkFaults(t, `name = "x"
[train]
loss = "mse"
model.kind = "dense"
data = { kind = "generated", rows = 300000000, train = "0:300000001" }
optimizer = { kind = "adam", eps = 1e-60 }
ddp = { compress = "powersgd", start_step = 16777217 }`, nil,
		"job.toml:5:30: train.data.rows: 300000000 rows of 20 inputs and 1 outputs are more than 268435456 values: use fewer rows",
		"job.toml:5:48: train.data.train: range 0:300000001 goes beyond the data, which has 300000000 rows",
		"job.toml:6:30: train.optimizer.eps: is 1e-60, want a number above 0 that float32 holds, such as 1e-8",
		"job.toml:7:32: train.ddp.start_step is 16777217: must be 0 to 16777216",
	)
	checkFaults(t, "name = \"x\"\n[train.optimizer]\nkind = \"adam\"\neps = 0"+builtin, nil,
		"job.toml:4:1: train.optimizer.eps: is 0, want a number above 0 that float32 holds, such as 1e-8",
	)
}

func TestRowRangesAreChecked(t *testing.T) {
	const (
		none  = ` must be rows as "FIRST:END", such as "0:9000", not the text %q`
		form  = ": range %q: write it as FIRST:END, such as 0:9000"
		empty = ": range %q is empty: the second number is the row after the last"
	)
	number := func(part string) string {
		return ": range %q: " + strconv.Quote(part) + " is not a row number from 0 to 2147483647"
	}
	for value, fault := range map[string]string{
		"0:1": "", "9000:10000": "", "007:8": "", "0:2147483647": "",
		"": none, "1": form, "1:1": empty, "2:1": empty,
		":": number(""), "1:": number(""), ":1": number(""), "-1:2": number("-1"), "+1:2": number("+1"), "1:2:3": number("2:3"),
		"0x1:5": number("0x1"), " 1:2": number(" 1"), "1 :2": number("1 "), "a:b": number("a"),
		"0:2147483648": number("2147483648"), "0:99999999999999999999999": number("99999999999999999999999"),
	} {
		src := "name = \"x\"\n[train]\nmodel.kind = \"dense\"\nloss = \"mse\"\n[train.data]\nkind = \"csv\"\npath = \"x\"\n" +
			fmt.Sprintf("train = %q\n", value)
		t.Run(value, func(t *testing.T) {
			if fault == "" {
				checkFaults(t, src, nil)
				return
			}
			checkFaults(t, src, nil, fmt.Sprintf("job.toml:8:1: train.data.train"+fault, value))
		})
	}
}

// TestExampleSetsEveryField compares testdata/example.toml with the expected job, which is written by hand.
func TestExampleSetsEveryField(t *testing.T) {
	src, err := os.ReadFile("testdata/example.toml")
	if err != nil {
		t.Fatal(err)
	}
	got, warnings, err := parse(string(src))
	if err != nil || len(warnings) != 1 || warnings[0].Key != "train" { // which is set beside launch.command
		t.Fatalf("error %v, warnings %q", err, lines(warnings))
	}
	want := &Job{
		Schema: 1, Name: "mnist", WorkDir: "/jobs", RunDir: "/jobs/runs",
		Code: snapshot.Config{Snapshot: "git", Include: []string{"*.yaml"}, Exclude: []string{"data/"}, MaxMB: 50, MaxFiles: 20_000},
		Slurm: slurm.Options{
			List: []slurm.Option{
				{Name: "partition", Value: "gpu"}, {Name: "nodes", Value: "2"}, {Name: "gpus-per-node", Value: "4"},
				{Name: "cpus-per-task", Value: "4"}, {Name: "mem", Value: "32G"}, {Name: "time", Value: "01:00:00"},
				{Name: "dependency", Value: "afterok:123"},
			},
			Extra: []string{"--switches=1"}, Skip: []string{"--mem"},
		},
		Setup: slurm.Setup{Modules: []string{"python/3.8", "cuda/11.2"}, Venv: "~/venv", Script: []string{"source env.sh"}},
		Env:   map[string]string{"NCCL_DEBUG": "INFO"},
		Launch: launch.Config{NprocPerNode: launch.Nproc{Counts: []int{4}}, Command: []string{"python", "train.py"}, Mode: "agent",
			WarnSignal: "USR2", Prefix: "[${host} ${rank}] ", Grace: time.Minute, Hang: 30 * time.Minute, GPUs: "auto"},
		Requeue: recovery.Policy{
			On: []recovery.Cause{"preempt", "timeout", "node"}, Lead: 2 * time.Minute, NoProgress: 3,
		},
		MPI: mpi.Config{Transport: "auto", Algorithm: "auto", Deterministic: true, Timeout: 10 * time.Minute},
		Train: trainer.Config{
			Epochs: 10, BatchSize: 64, Accumulate: 1, Seed: 1, Mode: "ddp", Pipeline: 1, Precision: "float32", BLAS: "auto",
			Loss: "cross_entropy", Init: "weights.safetensors",
			Model: trainer.ModelConfig{
				Kind: "mlp", Hidden: []int{128}, Activation: "relu",
				Channels: []int{16, 32}, Kernel: 3, Layers: 4, Heads: 4, Width: 128, Context: 128, // of other kinds of models
			},
			Data: trainer.DataConfig{
				Kind: "mnist", Images: "t10k-images-idx3-ubyte.gz", Labels: "t10k-labels-idx1-ubyte.gz",
				Train: "0:9000", Eval: "9000:10000", Shuffle: true, Remainder: "pad",
				Header: "auto", Delimiter: ",", Rows: 4096, Inputs: 20, Outputs: 1, // of other kinds of data
			},
			Optimizer: trainer.OptimizerConfig{Kind: "sgd", LR: 0.1, Momentum: 0.9, Betas: [2]float64{0.9, 0.999}, Eps: 1e-8},
			Schedule:  trainer.ScheduleConfig{Kind: "cosine", WarmupSteps: 100, StepSize: 1000, Gamma: 0.1},
			DDP:       trainer.DDPConfig{BucketMB: 25, Compress: "none", Overlap: true, Rank: 1, StartStep: 1000},
			Evaluate:  trainer.EvaluateConfig{EveryEpochs: 1},
		},
		Checkpoint: checkpoint.Config{EverySteps: 200, KeepLast: 3, Codec: "auto", Async: true, Resume: "auto"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

package jobfile

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"ddpbatch/checkpoint"
)

func TestBadLaunchValuesAreFaults(t *testing.T) {
	for line, want := range map[string]string{
		`hang = "-1s"`:         `job.toml:4:1: launch.hang must be a duration, such as "90s" or "5m", or "0s" for none, not the text "-1s"`,
		`hang = 30`:            `job.toml:4:1: launch.hang must be a duration, such as "90s" or "5m", or "0s" for none, not 30`,
		`torch_store = "no"`:   `job.toml:4:1: launch.torch_store must be true or false, not the text "no"`,
		`gpus = "two"`:         `job.toml:4:1: launch.gpus must be "auto", "all" or "one", not the text "two"`,
		`numa = "gpu"`:         `job.toml:4:1: launch.numa must be "node", "socket", "exclusive" or "core-complex", not the text "gpu"`,
		`ports = "80-90"`:      `job.toml:4:1: launch.ports: "80-90" has ports below 1024, which only root may listen at`,
		`ports = 61000`:        `job.toml:4:1: launch.ports must be one line of text, not 61000`,
		`min_nodes = 3`:        `job.toml:4:1: launch.min_nodes = 3 is more than slurm.nodes = 2`,
		`min_nodes = 0`:        `job.toml:4:1: launch.min_nodes must be a whole number of at least 1, not 0`,
		`warn_signal = "KILL"`: `job.toml:4:1: launch.warn_signal must be "USR1", "USR2", "HUP", "INT" or "TERM", not the text "KILL"`,
	} {
		checkFaults(t, "name = \"x\"\nslurm.nodes = 2\n[launch]\n"+line+"\ncommand = [\"true\"]", nil, want)
	}
	for _, line := range []string{`hang = "0s"`, `gpus = "one"`, `torch_store = false`, `numa = "node"`, `ports = "61000-65535"`,
		`min_nodes = 2`, `interface = "=ib0"`, `interface = "^docker0,10.0.0.0/8"`} {
		checkFaults(t, "name = \"x\"\nslurm.nodes = 2\n[launch]\n"+line+"\ncommand = [\"true\"]", nil)
	}
	checkFaults(t, "name = \"x\"\nslurm.nodes = 2\n[launch]\nmode = \"task\"\nmin_nodes = 1\ncommand = [\"true\"]", nil,
		`job.toml:5:1: launch.min_nodes needs launch.mode = "agent": in "task" mode Slurm places the ranks, which cannot change`)
}

func TestBadMetricsKeysAreFaults(t *testing.T) {
	for line, want := range map[string]string{ // "": the line is valid
		`metrics_dir = "prom"`:     `launch.metrics_dir must be an absolute path, or "" for none, not the text "prom"`,
		`metrics_listen = 9400.5`:  `launch.metrics_listen must be a port, or an address with one in quotes, not 9400.5`,
		`metrics_listen = 80`:      `launch.metrics_listen: "80" has a port below 1024, which only root may listen at`,
		`metrics_listen = ":9400"`: `launch.metrics_listen: cannot listen at ":9400": ` + places,

		`metrics_dir = "/var/lib/prom"`: "", `metrics_dir = ""`: "", `metrics_listen = ""`: "",
		`metrics_listen = 0`: "", `metrics_listen = "9400"`: "", `metrics_listen = "[::]:9400"`: "",
	} {
		var faults []string
		if want != "" {
			faults = append(faults, "job.toml:4:1: "+want)
		}
		checkFaults(t, "name = \"x\"\nslurm.nodes = 2\n[launch]\n"+line+"\ncommand = [\"true\"]", nil, faults...)
	}
}

const places = `write a port such as 9400, to be reached on the same node only, ` +
	`or an IP address with a port, such as "0.0.0.0:9400" for all networks`

// An error that is not joined is also a fault.
func TestErrorThatIsNotJoinedIsAFault(t *testing.T) {
	for name, err := range map[string]error{
		"one":    errors.New("grace is 0s: must be longer"),
		"joined": errors.Join(errors.New("grace is 0s: must be longer")),
	} {
		c := checker{src: "name = \"x\""}
		c.addErrors(&position{}, "launch.", err)
		if len(c.faults) != 1 || c.faults[0].key.String() != "launch.grace" || c.faults[0].msg != "launch.grace is 0s: must be longer" {
			t.Errorf("%s: %+v", name, c.faults)
		}
	}
	c := checker{}
	if c.addErrors(&position{}, "launch.", nil); len(c.faults) > 0 {
		t.Errorf("no error: %+v", c.faults)
	}
}

// TestEveryCheckpointKeyReachesTheTrainer reads each key once, and compares what the trainer gets with what was written.
func TestEveryCheckpointKeyReachesTheTrainer(t *testing.T) {
	job, warnings, err := parse(`name = "x"
[train]
loss = "mse"
model = { kind = "dense" }
data = { kind = "generated", rows = 10, train = "0:9", eval = "9:10" }
evaluate = { best = "loss" }
[checkpoint]
every_steps = 50
keep_last = 2
keep_every = 1000
keep_within = "24h"
keep_best = 4
codec = "zstd"
async = false
resume = "never"
delta = 5
memory = "4G"
local = "/scratch/me"
replicate = true
at_start = true
`)
	if err != nil || len(warnings) != 1 || warnings[0].Key != "checkpoint.delta" {
		t.Fatalf("%v, %q", err, lines(warnings))
	}
	want := checkpoint.Config{
		EverySteps: 50, KeepLast: 2, KeepEvery: 1000, KeepWithin: 24 * time.Hour, KeepBest: 4, Codec: "zstd",
		Resume: "never", Delta: 5, Memory: 4 << 30, Local: "/scratch/me", Replicate: true, AtStart: true,
	}
	if job.Checkpoint != want {
		t.Errorf("got %+v, want %+v", job.Checkpoint, want)
	}
	policy := job.Checkpoint.Policy(job.Train.Evaluate.Best)
	if want := (checkpoint.Policy{Last: 2, Every: 1000, Within: 24 * time.Hour, Best: 4, Metric: "eval_loss"}); policy != want {
		t.Errorf("policy %+v, want %+v", policy, want)
	}
	if p := job.Checkpoint.Policy("accuracy"); p.Metric != "eval_accuracy" || !p.Max {
		t.Errorf("by accuracy the policy is %+v, and more of it is better", p)
	}
}

func TestMemorySizesHaveUnits(t *testing.T) {
	for text, want := range map[string]int64{
		"1K": 1 << 10, "512M": 512 << 20, "4G": 4 << 30, "1048575T": 1048575 << 40, "2097152K": 2 << 30, "8388607T": 8388607 << 40,
	} {
		job, _, err := parse("name = \"x\"\n[checkpoint]\nmemory = \"" + text + "\"" + command)
		if err != nil || job.Checkpoint.Memory != want {
			t.Errorf("%s: %d bytes, %v, want %d", text, job.Checkpoint.Memory, err, want)
		}
	}
}

func TestContradictingCheckpointKeysAreFaults(t *testing.T) {
	checkFaults(t, "name = \"x\"\n[checkpoint]\nkeep_best = 2"+builtin, nil,
		`job.toml:3:1: checkpoint.keep_best needs train.evaluate.best, which says what decides: write "loss" or "accuracy"`)
	checkFaults(t, "name = \"x\"\n[checkpoint]\ncodec = \"none\"\ndelta = 3"+command, nil,
		`job.toml:4:1: checkpoint.delta is 3 and codec is "none": a delta is smaller only if it is compressed; leave one of them out`)
}

// With a node-local tier, checkpoint.delta has no effect (distributed.chooseMode). The warning has the position of checkpoint.delta.
func TestDeltaBesideLocalIsWarnedOf(t *testing.T) {
	const want = `checkpoint.delta = 3 has no effect with checkpoint.local: all checkpoints on a node-local disk are full ` +
		`ones; leave one of them out`
	for _, test := range []struct {
		src, place string
		sets       []string
	}{
		{"name = \"x\"\n[checkpoint]\nlocal = \"/scratch\"\ndelta = 3" + command, "job.toml:4:1", nil},
		{"name = \"x\"\n[checkpoint]\ndelta = 3" + command, "job.toml:3:1", []string{"checkpoint.local=/scratch"}},
		{"name = \"x\"\n[checkpoint]\nlocal = \"/scratch\"" + command, "--set checkpoint.delta", []string{"checkpoint.delta=3"}},
		{"name = \"x\"\n[checkpoint]\nlocal = \"/scratch\"\ndelta = 0" + command, "", nil},
		{"name = \"x\"\n[checkpoint]\ndelta = 3" + command, "", nil},
	} {
		_, warnings, err := parse(test.src, test.sets...)
		got := lines(warnings)
		if err != nil || test.place == "" && len(got) > 0 || test.place != "" && !slices.Equal(got, []string{test.place + ": " + want}) {
			t.Errorf("%q, %q: %v, warnings %q", test.src, test.sets, err, got)
		}
	}
	// if one of them has a fault, only the fault is reported
	checkFaults(t, "name = \"x\"\n[checkpoint]\nlocal = \"scratch\"\ndelta = 3"+command, nil,
		`job.toml:3:1: checkpoint.local must be an absolute path, not the text "scratch"`)
	if _, warnings, _ := parse("name = \"x\"\n[checkpoint]\nlocal = \"scratch\"\ndelta = 3" + command); len(warnings) > 0 {
		t.Errorf("beside a fault: %q", lines(warnings))
	}
}

// If checkpoint.memory is too small for even one thread to encode, and something is to be encoded, the job is refused before it is
// submitted.
func TestMemoryThatCanNeverDoIsRefused(t *testing.T) {
	const want = `job.toml:3:1: checkpoint.memory is 5M, but one thread needs 6M to encode: raise it to 6M or more, or leave it out`
	checkFaults(t, "name = \"x\"\n[checkpoint]\nmemory = \"5M\""+builtin, nil, want)
	checkFaults(t, "name = \"x\"\n[checkpoint]\nmemory = \"6M\"\nlocal = \"/scratch\"\nreplicate = true"+builtin, nil,
		`job.toml:3:1: checkpoint.memory is 6M, but one thread needs 7M to encode: raise it to 7M or more, or leave it out`)
	for _, fine := range []string{"memory = \"6M\"" + builtin, "memory = \"5M\"\ncodec = \"none\"" + builtin, "memory = \"5M\"" + command} {
		checkFaults(t, "name = \"x\"\n[checkpoint]\n"+fine, nil)
	}
}

func TestContradictingKeysAreFaults(t *testing.T) {
	for _, test := range []struct {
		name, src string
		want      []string
	}{
		{"a list of ranks for other nodes", "name = \"x\"\nslurm.nodes = 3\nlaunch.nproc_per_node = [1, 2]" + builtin, []string{
			`job.toml:3:8: launch.nproc_per_node lists 2 nodes, but slurm.nodes is 3: write one number for each node, or a single one`,
		}},
		{"but not where the nodes are wrong", "name = \"x\"\nslurm.nodes = \"3\"\nlaunch.nproc_per_node = [1, 2]" + builtin, []string{
			`job.toml:2:7: slurm.nodes must be a whole number of at least 1, or a range such as "2-4", not the text "3"`,
		}},
		{"patterns of no use", "name = \"x\"\n[code]\nsnapshot = \"copy\"\ninclude = [\"*.py\"]\nexclude = [\"a\", \"../b\"]\nmax_mb = 0" +
			builtin, []string{
			`job.toml:4:1: code.include names untracked files for code.snapshot = "git"; "copy" copies all files: remove code.include`,
			`job.toml:5:1: code.exclude: item 2: "../b": a part of it is empty, . or ..: a pattern is a name, such as "*.yaml", or a ` +
				`path from the top of the tree, such as "configs/**/*.yaml" or "data/"`,
			`job.toml:6:1: code.max_mb must be a whole number of at least 1, not 0`,
		}},
		{"a table that does nothing", "name = \"x\"\n[code]\nmax_files = 3" + builtin,
			[]string{`job.toml:2:2: code needs the key snapshot`}},
		{"tasks without a number", "name = \"x\"\n[launch]\nmode = \"task\"\nnproc_per_node = \"gpu\"" + builtin, []string{
			`job.toml:4:1: launch.nproc_per_node must be one number if launch.mode is "task": srun starts the same ` +
				`number of tasks on every node`,
		}},
		{"two environments", "name = \"x\"\n[setup]\nconda = \"a\"\nvenv = \"b\"" + builtin, []string{
			`job.toml:3:1: setup.venv and setup.conda exclude each other: keep one`,
		}},
		{"cores per rank, and nobody knows how many ranks",
			"name = \"x\"\n[slurm]\ncpus_per_task = 2\n[launch]\ncommand = [\"a\"]\nnproc_per_node = \"gpu\"", []string{
				`job.toml:3:1: slurm.cpus_per_task is per rank, so launch.nproc_per_node must be a number: write one, or leave ` +
					`slurm.cpus_per_task out and ask for whole nodes with slurm.exclusive = true`,
			}},
		{"per task, and the tasks are agents", "name = \"x\"\n[slurm]\ngpus_per_task = 1\ntres_per_task = \"gres/gpu:1\"" + command,
			[]string{
				`job.toml:3:1: slurm.gpus_per_task: with launch.mode = "agent" srun starts one task a node, so the option would count ` +
					`once for all ranks of a node; set slurm.gpus_per_node instead`,
				`job.toml:4:1: slurm.tres_per_task: with launch.mode = "agent" srun starts one task a node, so the option would count ` +
					`once for all ranks of a node; set slurm.gpus_per_node instead`,
			}},
		{"per task, and the tasks are ranks", "name = \"x\"\nslurm.gpus_per_task = 1\n[launch]\nmode = \"task\"\ncommand = [\"a\"]", nil},
		{"what a script cannot hold",
			"name = \"x\"\n[setup]\nmodules = [\"ok\", \"-x\", \" \"]\nvenv = \"~ann/venv\"\nscript = [\"a\\r\\nb\", \"c\\rd\", \"e\\r\"]" +
				command, []string{
				`job.toml:3:1: setup.modules: "-x": it must be a name that is not empty and does not begin with a dash`,
				`job.toml:4:1: setup.venv: write the home folder of another user as an absolute path`,
				`job.toml:5:1: setup.script: item 1 has DOS line ends (\r\n), which sbatch refuses: save the job file with Unix ones`,
			}},
		{"a loss for other data", "name = \"x\"\n[train]\nloss = \"mse\"\nmodel.kind = \"mlp\"\ndata = { kind = \"mnist\", images = " +
			"\"i\", labels = \"l\" }", []string{
			`job.toml:3:1: train.loss is "mse": must be "cross_entropy" for data.kind = "mnist"`,
		}},
		{"the loss left out", "name = \"x\"\n[train]\nmodel.kind = \"mlp\"\ndata.kind = \"generated\"", []string{
			`job.toml:2:2: train.loss is "cross_entropy": must be "mse" for data.kind = "generated"`,
		}},
		{"more than the trainer takes", "name = \"x\"\n[train]\nloss = \"mse\"\nbatch_size = 2000000\ndata.kind = \"generated\"\nmodel = " +
			"{ kind = \"mlp\", hidden = [2, 2000000] }", []string{
			`job.toml:4:1: train.batch_size is 2000000: must be 1 to 1048576`,
			`job.toml:6:25: train.model.hidden[1] is 2000000: must be 1 to 1048576`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) { checkFaults(t, test.src, nil, test.want...) })
	}
}

func TestNodeRanges(t *testing.T) {
	job, warnings, err := parse("name = \"x\"\nslurm.nodes = \"2-4\"\nlaunch.min_nodes = 2\nlaunch.command = [\"true\"]")
	if err != nil || len(warnings) > 0 || job.Nodes() != 4 || job.LeastNodes() != 2 {
		t.Fatalf("%+v, %q, %v", job, lines(warnings), err)
	}
	if got := job.Summary(); got != "x runs true on 2 to 4 nodes x 1 rank" {
		t.Errorf("it is called %q", got)
	}
	for text, want := range map[string]int{`"3-3"`: 3, `4`: 4} {
		job, _, err := parse("name = \"x\"\nslurm.nodes = " + text + command)
		if err != nil || job.Nodes() != want || job.LeastNodes() != want || job.BatchScript("/r").LeastNodes != want {
			t.Errorf("%s: %+v, %v", text, job, err)
		}
	}
	for text, want := range map[string]string{
		"launch.min_nodes = 3": "job.toml:3:8: launch.min_nodes = 3 is more than the 2 that slurm.nodes lets the job start with",
		"launch.min_nodes = 5": `job.toml:3:8: launch.min_nodes = 5 is more than slurm.nodes = 4`,
		"launch.mode = \"task\"": `job.toml:2:7: slurm.nodes = "2-4" needs launch.mode = "agent": in "task" mode srun must ` +
			`know how many tasks to start`,
		"launch.nproc_per_node = [1, 1, 1, 1]": `job.toml:2:7: slurm.nodes = "2-4" cannot be combined with a list in ` +
			`launch.nproc_per_node, which has a number for ` +
			"each node: write one number for all nodes there, or one number of nodes here",
	} {
		checkFaults(t, "name = \"x\"\nslurm.nodes = \"2-4\"\n"+text+"\nlaunch.command = [\"true\"]", nil, want)
	}
}

func TestGPUsCountedByTasksAreFaultsInAgentMode(t *testing.T) {
	for line, want := range map[string]string{
		"slurm.gpus_per_socket = 2": `job.toml:2:7: slurm.gpus_per_socket: with launch.mode = "agent" srun starts one task a ` +
			`node, so the option would ` +
			`count the sockets of that task, not those of the node; set slurm.gpus_per_node instead`,
		`slurm.extra = ["--gpus-per-task=1"]`: `job.toml:2:7: slurm.extra: sbatch option "--gpus-per-task=1": with launch.mode = "agent" ` +
			`srun starts one task a node, so the option would count once for all ranks of a node; set slurm.gpus_per_node instead`,
	} {
		checkFaults(t, "name = \"x\"\n"+line+"\nlaunch.command = [\"true\"]", nil, want)
		checkFaults(t, "name = \"x\"\n"+line+"\nlaunch.command = [\"true\"]\nlaunch.mode = \"task\"", nil)
	}
}

func TestBadArrayIsAFault(t *testing.T) {
	for array, want := range map[string]string{
		"0-15:5%2": "",
		"a":        `slurm.array "a": "a" is neither an index nor a range; write 0-15, 1,3,7 or 0-20:5`,
		"3-1":      `slurm.array "3-1": the range "3-1" runs backwards; write the lower number first`,
		"0-5000":   "", // the site may allow it
		"1%0":      `slurm.array "1%0": write after % how many elements may run at once, 1 or more`,
	} {
		var faults []string
		if want != "" {
			faults = []string{"job.toml:2:7: " + want}
		}
		checkFaults(t, fmt.Sprintf("name = \"x\"\nslurm.array = %q%s", array, command), nil, faults...)
	}
}

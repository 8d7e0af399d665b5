package jobfile

import (
	"slices"
	"strings"
	"testing"
)

// checkWarnings compares the warnings for a valid job with the wanted beginnings.
func checkWarnings(t *testing.T, src string, want ...string) {
	t.Helper()
	_, warnings, err := parse(src)
	got := lines(warnings)
	same := slices.EqualFunc(got, want, func(line, beginning string) bool { return strings.HasPrefix(line, beginning) })
	if err != nil || !same {
		t.Errorf("%s\n: error %v, warnings\n\t%s\nwant\n\t%s", src, err, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestLaunchersInTheCommandAreWarnedOf(t *testing.T) {
	const place = "job.toml:3:1: launch.command: each rank would start further ranks with "
	for line, want := range map[string]string{
		`command = ["torchrun", "--nproc-per-node=8", "train.py"]`:                                   place + "torchrun, ",
		`command = ["torchrun", "train.py"]` + "\nnproc_per_node = 4":                                place + "torchrun, ",
		`command = ["python", "-m", "torch.distributed.run", "train.py"]`:                            place + "torch.distributed.run, ",
		`command = ["accelerate", "launch", "train.py"]`:                                             place + "accelerate, ",
		`command = ["deepspeed", "train.py"]`:                                                        place + "deepspeed, ",
		`command = ["srun", "./train"]` + "\nnproc_per_node = 1":                                     place + "srun, ",
		`command = ["bash", "-c", "exec mpirun -n 8 ./train"]`:                                       place + "mpirun, ",
		`command = ["torchrun", "--nproc-per-node=8", "train.py"]` + "\nnproc_per_node = 1":          "",
		`command = ["python", "train.py", "--launcher", "torchrun"]`:                                 "",
		`command = ["bash", "-c", "echo srun; exec python train.py"]` + "\nnproc_per_node = \"gpu\"": "",
	} {
		var wanted []string
		if want != "" {
			wanted = []string{want}
		}
		checkWarnings(t, "name = \"x\"\n[launch]\n"+line+"\n", wanted...)
	}
	const escape = "to start one launcher on each node, write launch.nproc_per_node = 1"
	for launcher, has := range map[string]bool{"torchrun": true, "mpirun": false} {
		_, warnings, err := parse("name = \"x\"\n[launch]\ncommand = [\"" + launcher + "\", \"x\"]\n")
		if err != nil || len(warnings) != 1 || strings.HasSuffix(warnings[0].Message, escape) != has {
			t.Errorf("%s: %q, %v", launcher, lines(warnings), err)
		}
	}
}

func TestTrainBesideACommandIsWarnedOf(t *testing.T) {
	const begin = "name = \"x\"\n[launch]\ncommand = [\"true\"]\n"
	checkWarnings(t, begin+"[train]\nepochs = 3\n", "job.toml:4:2: [train] has no effect with launch.command")
	checkWarnings(t, begin+"[train.evaluate]\nbest = \"loss\"\n") // ckpt prune uses it
	checkWarnings(t, begin+"[train]\n")
}

func TestTimeoutsInTheWrongOrderAreWarnedOf(t *testing.T) {
	for text, want := range map[string]string{
		"launch.hang = \"10m\"":                       `job.toml:2:8: launch.hang = "10m0s" is not longer than mpi.timeout = "10m0s": `,
		"mpi.timeout = \"1h\"":                        `job.toml:2:5: launch.hang = "30m0s" is not longer than mpi.timeout = "1h0m0s": `,
		"launch.hang = \"0s\"\nmpi.timeout = \"1h\"":  "",
		"launch.hang = \"2h\"\nmpi.timeout = \"1h\"":  "",
		"mpi.timeout = \"60s\"":                       `job.toml:2:5: mpi.timeout = "1m0s" is not longer than launch.grace = "1m0s": `,
		"launch.grace = \"11m\"":                      `job.toml:2:8: mpi.timeout = "10m0s" is not longer than launch.grace = "11m0s": `,
		"launch.grace = \"5s\"\nmpi.timeout = \"6s\"": "",
		"": "",
	} {
		var wanted []string
		if want != "" {
			wanted = []string{want}
		}
		checkWarnings(t, "name = \"x\"\n"+text+builtin, wanted...)
	}
	// a command has its own process group
	checkWarnings(t, "name = \"x\"\nlaunch.command = [\"true\"]\nlaunch.hang = \"1m\"\nlaunch.grace = \"20m\"\n")
	checkWarnings(t, "name = \"x\"\nlaunch.command = [\"true\"]\nlaunch.hang = \"1m\"\nmpi.timeout = \"2m\"\n",
		`job.toml:3:8: launch.hang = "1m0s" is not longer than mpi.timeout = "2m0s": `)
}

func TestOverlappingRowsAreWarnedOf(t *testing.T) {
	for ranges, want := range map[string]string{
		`train = "0:9", eval = "9:10"`: "",
		`train = "0:9", eval = "8:10"`: "job.toml:5:56: train.data.eval: the rows 8:9 are also trained on (train.data.train)",
		`train = "5:9", eval = "0:10"`: "job.toml:5:56: train.data.eval: the rows 5:9 are also trained on (train.data.train)",
		`train = "0:10"`:               "",
	} {
		var wanted []string
		if want != "" {
			wanted = []string{want}
		}
		checkWarnings(t, "name = \"x\"\n[train]\nloss = \"mse\"\nmodel = { kind = \"dense\" }\ndata = { kind = \"generated\", rows = 10, "+
			ranges+" }\n", wanted...)
	}
}

func TestSecretsInTheScriptAreWarnedOf(t *testing.T) {
	src := `name = "x"
[setup]
script = ["ulimit -n 4096", "export WANDB_API_KEY=0123456789abcdef", "export HF_TOKEN=$(cat ~/.token)"]
[launch]
command = ["python", "train.py", "--api-key", "0123456789abcdef", "--tokenizer", "bert-base-uncased", "--hf-token=hf_0123456789"]
[setup.env]
MY_TOKEN = "0123456789abcdef"
TOKEN_FILE = "/home/ann/token"
TOKENIZERS_PARALLELISM = "false"
`
	checkWarnings(t, src,
		"job.toml:3:1: item 2 of setup.script sets WANDB_API_KEY, which looks like a secret",
		"job.toml:5:1: item 3 of launch.command sets --api-key, which looks like a secret",
		"job.toml:5:1: item 7 of launch.command sets --hf-token, which looks like a secret",
		"job.toml:7:1: setup.env.MY_TOKEN looks like a secret, but all who can read the job file can read it: keep it in a file")
	_, warnings, _ := parse(src)
	for _, w := range warnings {
		if strings.Contains(w.Message, "0123456789") {
			t.Errorf("the secret is shown: %s", w)
		}
	}
}

func TestVariablesThatNoShellReadsAreWarnedOf(t *testing.T) {
	const begin = "name = \"x\"\n[launch]\ncommand = "
	checkWarnings(t, begin+`["python", "train.py", "--out=$HOME/out", "${X}", "${local_rank}", "a$", "$(id)", "$1", "cost$5"]`+
		"\n[setup.env]\nA = \"$PWD/a\"\nB = \"5$\"\nC = \"C_$rank\"\n",
		"job.toml:3:1: item 3 of launch.command: $HOME is not expanded, so ranks get this text: write command = [",
		"job.toml:3:1: item 4 of launch.command: ${X} is not expanded",
		`job.toml:5:1: setup.env.A: $PWD is not expanded, so ranks get this text: set the variable in setup.script, "export A=..."`)
	checkWarnings(t, begin+`["bash", "-c", "exec python train.py $HOME"]`+"\n")
	checkWarnings(t, begin+`["env", "A=1", "sh", "-euc", "exec python train.py $HOME"]`+"\n")
	checkWarnings(t, begin+`["./own", "--out", "$HOME/out"]`+"\n")
	checkWarnings(t, begin+`["python3", "-c", "print('$HOME')"]`+"\n")
}

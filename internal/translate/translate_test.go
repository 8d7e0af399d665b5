package translate

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ddpbatch/internal/jobfile"
	words "ddpbatch/internal/text"
	"ddpbatch/slurm"
	"ddpbatch/templates"
)

// update writes the translations anew. Read every line of the difference after using it.
var update = flag.Bool("update", false, "write testdata/*.toml anew")

// scripts returns the names of testdata/*.sbatch.
func scripts(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.sbatch"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	return files
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// translated returns the translation of a script, and its job.
func translated(t testing.TB, file string) (string, *jobfile.Job) {
	t.Helper()
	name := filepath.Base(file)
	result, err := Script(read(t, file), Options{Source: name, Name: name, Base: "."})
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	job, warnings, err := jobfile.Parse("job.toml", "/work", []byte(result.Text), nil)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%s: %v, %v\n%s", file, warnings, err, result.Text)
	}
	return result.Text, job
}

func TestScriptsComeOutAsTheseJobFiles(t *testing.T) {
	for _, file := range scripts(t) {
		text, _ := translated(t, file)
		golden := strings.TrimSuffix(file, ".sbatch") + ".toml"
		if *update {
			if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want := read(t, golden); text != want {
			t.Errorf("%s:\n%s\nwant:\n%s", file, text, want)
		}
	}
}

// asked is what options request from Slurm. It is worked out here from sbatch(1) alone.
type asked struct {
	nodes, cores, gpus string // cores and GPUs of a node, the GPUs with their type
	others             map[string]string
}

// notCompared are options that ddpbatch sets itself, or counts in a different way.
var notCompared = strings.Fields("job-name output error open-mode export chdir nodes ntasks ntasks-per-node cpus-per-task " +
	"gpus-per-task gpus-per-node")

func askedBy(options []slurm.Given, part int) asked {
	a := asked{nodes: "1", others: map[string]string{}}
	number := map[string]int{}
	kind := ""
	for _, g := range options {
		if g.Part != part {
			continue
		}
		colon := strings.LastIndexByte(g.Value, ':') + 1
		number[g.Name], _ = strconv.Atoi(g.Value[colon:])
		if strings.HasPrefix(g.Name, "gpus-per-") {
			kind = g.Value[:colon]
		}
		switch {
		case g.Name == "nodes":
			a.nodes, _, _ = strings.Cut(g.Value, "-")
		case !slices.Contains(notCompared, g.Name):
			a.others[g.Name] = g.Value
		}
	}
	nodes, _ := strconv.Atoi(a.nodes)
	tasks := max(1, number["ntasks-per-node"])
	if n := number["ntasks"]; n > 0 {
		if number["ntasks-per-node"] > 0 {
			nodes = n / number["ntasks-per-node"]
			a.nodes = strconv.Itoa(nodes)
		}
		tasks = (n + nodes - 1) / nodes
	}
	a.cores = strconv.Itoa(tasks * max(1, number["cpus-per-task"]))
	a.gpus = kind + strconv.Itoa(max(number["gpus-per-node"], tasks*number["gpus-per-task"]))
	return a
}

// The job's own batch script requests the same from Slurm as the original script. If the original requests no cores, the job may have more.
func TestJobsAskForTheSame(t *testing.T) {
	for _, file := range scripts(t) {
		_, job := translated(t, file)
		script, err := job.BatchScript("/proj/runs/x").Render(templates.Batch)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		before, err1 := slurm.Directives(read(t, file))
		after, err2 := slurm.Directives(script)
		if err1 != nil || err2 != nil {
			t.Fatalf("%s: %v, %v", file, err1, err2)
		}
		checkSyntax(t, file, script)
		parts := before[len(before)-1].Part
		if last := after[len(after)-1].Part; last != parts {
			t.Errorf("%s: %d components, want %d", file, last+1, parts+1)
		}
		for part := range parts + 1 {
			checkAsked(t, file, askedBy(after, part), askedBy(before, part))
		}
	}
}

// checkAsked compares what a job requests with what its script requested.
func checkAsked(t *testing.T, file string, got, want asked) {
	t.Helper()
	if filepath.Base(file) == "ranges.sbatch" { // the script requests no cores
		want.cores = "8" // one for each rank
	}
	if got.nodes != want.nodes || got.cores != want.cores || got.gpus != want.gpus {
		t.Errorf("%s: %s nodes, %s cores, %s GPUs; want %s, %s, %s", file, got.nodes, got.cores, got.gpus,
			want.nodes, want.cores, want.gpus)
	}
	if _, requeues := want.others["requeue"]; requeues && want.others["signal"] == "" {
		delete(got.others, "signal") // ddpbatch's own warning of a job that is requeued
	}
	for _, others := range []map[string]string{want.others, got.others} {
		for name := range others {
			if got.others[name] != want.others[name] {
				t.Errorf("%s: --%s=%s, want %s", file, name, got.others[name], want.others[name])
			}
		}
	}
}

// checkSyntax makes bash read a batch script without running it.
func checkSyntax(t *testing.T, file, script string) {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		return
	}
	cmd := exec.Command(bash, "-n")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s: bash -n: %v\n%s", file, err, out)
	}
}

// TestJobsRunTheSame checks which ranks are started, and with which environment. The expected values come from reading the scripts.
func TestJobsRunTheSame(t *testing.T) {
	for name, want := range map[string]struct {
		counts  []int
		mode    string
		command string // the words, separated by |
		env     map[string]string
	}{
		"torchrun_multi": {[]int{8}, "agent", "python3|-u|train.py|--arch|resnet50|--epochs|90|--data|/datasets/imagenet",
			map[string]string{"LOGLEVEL": "INFO", "NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "8"}},
		"master_addr": {[]int{4}, "agent", "python|-u|pretrain.py|--data|/scratch/corpus|--seq-length|1024|--lr|3e-4",
			map[string]string{"NCCL_SOCKET_IFNAME": "ib0"}},
		"srun_ranks": {[]int{4}, "task", "python|train.py|--batch-size|16", map[string]string{"OMP_NUM_THREADS": "8"}},
		"lightning": {[]int{2}, "task", "python3|train.py|fit|--trainer.num_nodes=4|--trainer.devices=2|model.widths=[64,128]",
			map[string]string{"NCCL_DEBUG": "INFO", "PYTHONFAULTHANDLER": "1"}},
		"accelerate": {[]int{8}, "agent", "python3|-u|finetune.py|--model|meta/llama|--lr|2e-5",
			map[string]string{"GPUS_PER_NODE": "8", "HF_HOME": "/proj/cache/hf", "ACCELERATE_MIXED_PRECISION": "bf16",
				"SCRIPT":      "finetune.py",
				"SCRIPT_ARGS": "     --model meta/llama     --lr 2e-5     "}},
		"array": {[]int{1}, "agent",
			`bash|-c|exec python sweep.py --index ${SLURM_ARRAY_TASK_ID} --lr 0.01 --out out/"${SLURM_ARRAY_TASK_ID}"`, nil},
		"requeue_trap": {[]int{4}, "agent", "python3|-u|main.py|--resume|auto", nil},
		"pyxis":        {[]int{8}, "task", "python|-u|pretrain.py|--config|conf/gpt.yaml", nil},
		"apptainer":    {[]int{4}, "agent", "python3|-u|segment.py|--epochs|10", nil},
		"mpi":          {[]int{8}, "agent", "./heat|--grid|4096|input.nml", map[string]string{"OMP_NUM_THREADS": "1"}},
		"single_gpu":   {[]int{1}, "agent", "python|train.py", nil},
		"arrays_megatron": {[]int{8}, "agent",
			`bash|-c|exec python3 -u pretrain_gpt.py --num-layers 32 --hidden-size 4096 --norm 'rms norm' --save "${SCRATCH}"/ckpt`,
			map[string]string{"CUDA_DEVICE_MAX_CONNECTIONS": "1"}},
		"deepspeed": {[]int{4}, "agent", "python3|-u|train.py|--local_rank=${local_rank}|--deepspeed|--deepspeed_config|ds.json",
			map[string]string{"WANDB_PROJECT": "bloom"}},
		"many_sruns":    {[]int{2}, "task", "python|train.py|--seed|0", nil},
		"conda_bashrc":  {[]int{2}, "agent", "python|-u|ppo.py|--local-rank=${local_rank}|--seed=1", nil},
		"heterogeneous": {[]int{1, 4, 4}, "agent", "python|serve.py", nil},
		"uneven":        {[]int{3, 2, 2}, "agent", "python|ranks.py", map[string]string{"PYTHONUNBUFFERED": "1"}},
		"ranges":        {[]int{8}, "agent", "python3|-u|-m|pkg.train", map[string]string{"MODE": "fast"}},
		"functions":     {[]int{1}, "agent", `bash|-c|exec ./simulate --group "${GROUP}" --version ${VERSION}`, nil},
		"command_grows": {[]int{4}, "task", "bash|-c|exec bash -c '\n    source export_DDP_vars.sh\n    '\"${CMD}\"'\n    '",
			map[string]string{"OMP_NUM_THREADS": "32", "NCCL_DEBUG": "INFO", "SLURM_CPU_BIND": "cores"}},
		"heredoc_config": {[]int{4}, "agent",
			"bash|-c|exec python -u train.py --deepspeed ./ds_config.${SLURM_JOBID}.json --seed ${SLURM_ARRAY_TASK_ID}",
			map[string]string{"ACCELERATE_MIXED_PRECISION": "bf16"}},
		"arrays_grow": {[]int{4}, "task",
			"bash|-c|eval \"$ARGS_ARRAY\"\nexec python -u train.py \"${ARGS[@]}\"", nil},
		"modules_use": {[]int{16}, "task", "./fluid|case.cfg", map[string]string{"SRUN_CPUS_PER_TASK": "", "OMP_NUM_THREADS": "1"}},
	} {
		_, job := translated(t, filepath.Join("testdata", name+".sbatch"))
		if got := strings.Join(job.Launch.Command, "|"); got != want.command {
			t.Errorf("%s: command %s\nwant %s", name, got, want.command)
		}
		if !slices.Equal(job.Launch.NprocPerNode.Counts, want.counts) || job.Launch.Mode != want.mode {
			t.Errorf("%s: %v ranks, mode %s; want %v, %s", name, job.Launch.NprocPerNode, job.Launch.Mode, want.counts, want.mode)
		}
		if len(job.Env) != len(want.env) {
			t.Errorf("%s: env %q, want %q", name, job.Env, want.env)
		}
		for variable, value := range want.env {
			if got, set := job.Env[variable]; !set || got != value {
				t.Errorf("%s: %s=%q, want %q", name, variable, got, value)
			}
		}
	}
}

func TestBadScriptsAreRefused(t *testing.T) {
	for _, test := range []struct{ script, want string }{
		{"", "the script is empty"},
		{" \n\n", "the script is empty"},
		{"import torch\n", "its first line must begin with #!"},
		{"#!/usr/bin/env python3\nprint(1)\n", "line 1: .*only scripts for sh, bash, dash and ksh"},
		{"#!/bin/tcsh\nsrun x\n", "line 1: .*only scripts for sh"},
		{"#!/bin/bash\r\nsrun x\r\n", "DOS line endings"},
		{"#!/bin/bash\nsrun \x00\n", "NUL"},
		{"#!/bin/bash\nsrun \xff\n", "line 2: it is not UTF-8 text"},
		{"#!/bin/bash\n#SBATCH -N 2\nmodule load x\necho hello\n", "it has no launch line"},
		{"#!/bin/bash\nfor learning_rate in 0.1 0.03 0.01 0.003 0.001; do\n  srun python x.py\ndone\n",
			`^line 2: its launch line is inside "for learning_rate in 0.1 0.03 0.01 0.003 0.001; do ...", which cannot be translated: ` +
				`move it out of the loop, and write the loop's values into \[sweep\] of the job file \(docs/job/sweeps.md\), ` +
				`or for further tries launch.max_restarts$`},
		{"#!/bin/bash\nif true; then torchrun x.py; fi\n",
			`^line 2: its launch line is inside "if true; then torchrun x.py; fi", which cannot be translated: move it out$`},
		{"#!/bin/bash\necho 'a\nsrun x\n", "line 2: not valid shell text"},
		{"#!/bin/bash\n#SBATCH --nodes\nsrun x\n", "line 2: --nodes needs a value|line 2: \"--nodes\" needs a value"},
		{"#!/bin/bash\n#SBATCH -N 2 x\nsrun x\n", "line 2: sbatch refuses"},
		{"#!/bin/bash\n\nsrun torchrun --nproc-per-node many x.py\n",
			`line 3: torchrun: --nproc-per-node: "many" is not a number of workers`},
		{"#!/bin/bash\nsrun torchrun --nproc-per-node 2\n", "line 2: torchrun: no script follows its flags"},
		{"#!/bin/bash\nsrun torchrun --nprok 2 x.py\n", "line 2: torchrun: run has no flag --nprok; try "},
		{"#!/bin/bash\nsrun -N 2\n", "line 2: no program follows srun's options"},
		{"#!/bin/bash\nmpirun -n 2 a : -n 2 b\n", "line 2: mpirun starts several programs"},
		{"#!/bin/bash\naccelerate launch --num_processes x t.py\n", `line 2: accelerate launch: --num_processes must be a number, not "x"`},
		{"#!/bin/bash\naccelerate config\n", `line 2: of accelerate only`},
		{"#!/bin/bash\nsrun bash -c 'cd x; for i in 1; do torchrun a.py; done'\n", "line 2: the script of bash does more"},
		{"#!/bin/bash\nhorovodrun -np 4 python x.py\n", "line 2: horovodrun is a launcher that cannot be translated"},
		{"#!/bin/bash\nsrun x " + strings.Repeat("y", maxScript), "longer than 65536 bytes"},
	} {
		result, err := Script(test.script, Options{Base: "."})
		if err == nil || result.Text != "" || !regexp.MustCompile(test.want).MatchString(err.Error()) {
			t.Errorf("%.60q: %v\n%s\nwant %s", test.script, err, result.Text, test.want)
		}
	}
}

func TestCommandsAreTranslated(t *testing.T) {
	for line, want := range map[string][]string{
		"torchrun --nproc-per-node 8 train.py --lr 0.1": {`name = "train"`, "nodes = 1", "nproc_per_node = 8",
			`command = ["python3", "-u", "train.py", "--lr", "0.1"]`},
		"torchrun --nnodes=2:4 --nproc_per_node=4 --max-restarts 3 -m pkg.mod a": {`name = "mod"`, "nodes = 4", "min_nodes = 2",
			"max_restarts = 3", `command = ["python3", "-u", "-m", "pkg.mod", "a"]`},
		"python -m torch.distributed.launch --nproc_per_node=4 a.py": {
			`command = ["python", "-u", "a.py", "--local-rank=${local_rank}"]`},
		"python -m torch.distributed.launch --nproc_per_node=4 --use_env a.py": {`command = ["python", "-u", "a.py"]`},
		"mpirun -n 8 -npernode 4 prog in.txt": {`name = "prog"`, "nodes = 2",
			"nproc_per_node = 4", "no MPI"},
		"mpiexec.hydra -np 4 -ppn 2 -genv X 1 ./a": {"nodes = 2", "nproc_per_node = 2", `X = "1"`,
			`command = ["./a"]`},
		"accelerate launch --num_processes 4 --num_cpu_threads_per_process=2 t.py": {"nproc_per_node = 4", `OMP_NUM_THREADS = "2"`,
			`command = ["python3", "-u", "t.py"]`},
		"srun -N2 --ntasks-per-node=4 -c 2 -p gpu -t 10 -J x -l python t.py 'a b' $HOME": {`name = "x"`, "nodes = 2",
			"nproc_per_node = 4", `mode = "task"`,
			"cpus_per_task = 2", `partition = "gpu"`, "time = 10", `command = ["bash", "-c", "exec python t.py 'a b' ${HOME}"]`},
		"srun -N2 -c32 --gpus-per-task=4 torchrun --nproc-per-node 4 t.py": {"cpus_per_task = 8", "gpus_per_node = 4"},
		"srun -M east,west -N2 torchrun --nproc-per-node 4 t.py":           {`clusters = "east,west"`},
		"./prog --launcher torchrun":                                       {`command = ["./prog", "--launcher", "torchrun"]`},
		"numactl -N 0 torchrun --nproc-per-node 2 t.py":                    {`command = ["numactl", "-N", "0", "python3", "-u", "t.py"]`},
		"WORLD_SIZE=8 torchrun --nproc-per-node 8 t.py":                    {"nproc_per_node = 8", "left out: export WORLD_SIZE=8"},
		"srun --gpus 8 -n 8 ./sim":                                         {"gpus = 8", "nproc_per_node = 8"},
		"A=1 B='x y' exec python t.py --max-tokens 2048 --api-key abc --tokenizer=gpt2": {`A = "1"`, `B = "x y"`,
			`"--max-tokens", "2048", "--api-key", "***", "--tokenizer=gpt2"`, "not copied"},
		"python t.py --api-key abc123def --auth-token=def456ghi": {`"--api-key", "***", "--auth-token=***"`,
			`"export API_KEY=$(cat FILE)", "export AUTH_TOKEN=$(cat FILE)"; then write`},
		"singularity run --nv i.sif bash -c 'torchrun --nproc-per-node 2 t.py'": {"nproc_per_node = 2",
			`command = ["singularity", "run", "--nv", "i.sif", "python3", "-u", "t.py"]`},
	} {
		result, err := Command(line, Options{Source: "a command line", Base: "."})
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		for _, text := range want {
			if !strings.Contains(result.Text, text) {
				t.Errorf("%s: no %s in\n%s", line, text, result.Text)
			}
		}
		if _, _, err := jobfile.Parse("job.toml", "/work", []byte(result.Text), nil); err != nil {
			t.Errorf("%s: %v\n%s", line, err, result.Text)
		}
	}
	for _, line := range []string{"", "ls -l", "python a.py; rm b", "torchrun 'a", "for i in 1; do torchrun a; done",
		"torchrun", "a\x00b"} {
		if result, err := Command(line, Options{Base: "."}); err == nil {
			t.Errorf("%q: %s", line, result.Text)
		}
	}
}

// srun's own --gpus-per-task decides which GPUs each task of a script sees.
func TestOneGPUPerTaskOfSrun(t *testing.T) {
	for gpus, want := range map[string]string{
		"1": `gpus = "one"  # each rank sees one GPU: srun's --gpus-per-task=1`,
		"2": "# line 5: ddpbatch calls srun itself, without the script's --gpus-per-task=2",
	} {
		script := "#!/bin/bash\n#SBATCH -N1\n#SBATCH -n2\n#SBATCH --gres=gpu:4\nsrun --gpus-per-task=" + gpus + " python3 t.py\n"
		result, err := Script(script, Options{Source: "s.sbatch", Base: "."})
		if err != nil || !strings.Contains(result.Text, want) {
			t.Errorf("%s: %v, no %q in\n%s", gpus, err, want, result.Text)
		}
	}
}

// No value in a script that may be a secret appears in the translation.
func TestSecretsAreNamedAndNotCopied(t *testing.T) {
	const secret = "q7Zx91Lmn4Rt"
	for _, script := range []string{
		"export WANDB_API_KEY=" + secret, "export HF_TOKEN='" + secret + "'", "MY_PASSWORD=" + secret + " srun python x.py",
		"wandb login " + secret, "KEY=" + secret + "\necho x", "TOKEN=" + secret + "\nsrun python x.py --token $TOKEN",
		"ARGS='--api-key " + secret + "'\nexport ARGS", "srun python x.py --api-key " + secret, "srun python x.py api_key=" + secret,
		"export PROXY=http://me:" + secret + "@proxy:80", "if true; then export AWS_SECRET_ACCESS_KEY=" + secret + "; fi",
		"cat > conf <<END\napi_key: " + secret + "\nEND", "trap 'curl --token " + secret + "' TERM",
		"A=(\"--api-key\" \"" + secret + "\" $(cat a))\nsrun python x.py ${A[@]}", "A=(api_key=" + secret +
			" $(cat a))\nsrun python x.py ${A[@]}",
		"A=('--api-key=" + secret + "' $(cat a))\nsrun python x.py ${A[@]}", "A=($(cat a) '--api-key' '" + secret +
			"')\nsrun python x.py ${A[@]}",
		"A=(--password " + secret + ")\nsrun python x.py ${A[@]}",
		"#SBATCH --export=ALL,API_KEY=" + secret, "#SBATCH --comment='password=" + secret + "'",
		"srun bash -c 'x --password " + secret + "; y'",
	} {
		result, err := Script("#!/bin/bash\n"+script+"\nsrun python last.py\n", Options{Base: "."})
		if err != nil {
			result, err = Script("#!/bin/bash\n"+script+"\n", Options{Base: "."})
		}
		if err != nil || strings.Contains(result.Text, secret) {
			t.Errorf("%s: %v\n%s", script, err, result.Text)
		}
	}
	result, err := Script("#!/bin/bash\nexport TOKENIZERS_PARALLELISM=false HF_TOKEN=$(cat ~/.token)\nsrun python x.py\n",
		Options{Base: "."})
	if err != nil || !strings.Contains(result.Text, `TOKENIZERS_PARALLELISM = "false"`) ||
		!strings.Contains(result.Text, `"export HF_TOKEN=$(cat ~/.token)"`) {
		t.Errorf("%v\n%s", err, result.Text)
	}
}

// The parser calls itself for nested parts. The largest script must fit into its stack, and must not take too long.
func TestDeepNestingDoesNotCrash(t *testing.T) {
	for _, part := range []string{"$(", "if ", "${a:-", "x | "} {
		script := "#!/bin/bash\n" + strings.Repeat(part, (maxScript-100)/len(part))
		if _, err := Script(script, Options{Base: "."}); err == nil {
			t.Errorf("%q: no error", part)
		}
	}
}

// Values that double with each line are not expanded.
func TestDoublingValuesAreBounded(t *testing.T) {
	script := "#!/bin/bash\nA0=xxxxxxxx\n"
	for i := range 100 {
		script += fmt.Sprintf("A%d=$A%d$A%d\n", i+1, i, i)
	}
	if _, err := Script(script+"srun python x.py $A100\n", Options{Base: "."}); err != nil {
		t.Error(err)
	}
}

func FuzzScript(f *testing.F) {
	for _, file := range scripts(f) {
		f.Add(read(f, file))
	}
	f.Add("#!/bin/bash\n#SBATCH -J '\x1b[31m\"\"\"'\nexport A=\"\u202e\\n'''\"\nsrun python \"$A\" '\x1b]0;x\x07' $'\\x1b'\n")
	f.Add("#!/bin/sh\nA=1; B=$A$A; export B; echo $A; " +
		"eval \"$(conda shell.bash hook)\"; conda activate x; exec srun -n2 x $B \"$@\" ~/y {a,b} *\n")
	f.Fuzz(func(t *testing.T, script string) {
		checkOutcome(t, func(o Options) (Result, error) { return Script(script, o) })
		checkOutcome(t, func(o Options) (Result, error) { return Command(script, o) })
	})
}

// checkOutcome checks that the result is either an error or a job file that can be read. Neither may affect a terminal.
func checkOutcome(t *testing.T, translate func(Options) (Result, error)) {
	t.Helper()
	result, err := translate(Options{Source: "x\n\x1b", Name: "\xff/y", Base: "."})
	if err != nil {
		if strings.ContainsFunc(err.Error(), words.Unsafe) || result.Text != "" {
			t.Fatalf("%q, %q", err, result.Text)
		}
		return
	}
	if strings.ContainsFunc(strings.ReplaceAll(result.Text, "\n", ""), words.Unsafe) {
		t.Fatalf("%q", result.Text)
	}
	if _, _, err := jobfile.Parse("job.toml", "/work", []byte(result.Text), nil); err != nil {
		t.Fatalf("%v\n%s", err, result.Text)
	}
}

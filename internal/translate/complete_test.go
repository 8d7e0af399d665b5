package translate

import (
	"strings"
	"testing"

	"ddpbatch/internal/jobfile"
)

// TestNothingIsDroppedWithoutAWord: what ranks need is translated. A comment describes the parts of a script that are not translated.
func TestNothingIsDroppedWithoutAWord(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   []string
		not    string // "": anything
	}{
		"a file that a here-document writes": {
			"#SBATCH -N1\nconf=ds.$SLURM_JOBID.json\ncat <<EOT > $conf\n{}\nEOT\nsrun python t.py --deepspeed $conf\n",
			[]string{`"conf=ds.$SLURM_JOBID.json"`, `"cat <<EOT > $conf\n{}\nEOT"`, "ds.${SLURM_JOBID}.json"}, "left out"},
		"a file of what ddpbatch sets": {"#SBATCH -N1\nexport MASTER_ADDR=n1\necho $MASTER_ADDR > hosts\nsrun python t.py\n",
			[]string{"# line 4: not translated: echo $MASTER_ADDR > hosts: it writes MASTER_ADDR, which only ranks have"}, "script ="},
		"what is only printed": {"#SBATCH -N1\nX=$(hostname)\necho $X >&2\necho $X > /dev/null\nsrun python t.py\n",
			[]string{"left out: echo $X >&2", "left out: echo $X > /dev/null"}, "script ="},
		"modules behind an environment": {"#SBATCH -N1\nmodule load a\nsource activate e\nmodule load b c\nsrun python t.py\n",
			[]string{`modules = ["a"]`, `conda = "e"`, `script = ["module load b c"]`}, ""},
		"options that sbatch does not read": {"#SBATCH -N1\necho x\n#SBATCH --mem=1G\nsrun python t.py\n",
			[]string{"# line 4: left out: #SBATCH --mem=1G: sbatch reads no options after the first command"}, "\nmem ="},
		"an array that only the job knows": {"#SBATCH -N1\nA=(--lr $(cat lr))\nsrun python t.py \"${A[@]}\"\n",
			[]string{`script = ["A=(--lr $(cat lr))", "export A_ARRAY=$(declare -p A)"]`,
				`"eval \"$A_ARRAY\"\nexec python t.py \"${A[@]}\""`, "# line 4: A comes from setup.script as A_ARRAY"}, ""},
		"an array of ranks' answers": {"#SBATCH -N2\nIPS=($(srun hostname -i))\nsrun python t.py --host ${IPS[0]}\n",
			[]string{"not translated: IPS=($(srun hostname -i)): it may start ranks", `"exec python t.py --host ${IPS[0]}"`}, "script ="},
		"an array with a number drawn once": {"#SBATCH -N1\nA=(--seed $RANDOM)\nsrun python t.py \"${A[@]}\"\n",
			[]string{`script = ["A=(--seed $RANDOM)", "export A_ARRAY=$(declare -p A)"]`, `\nexec python t.py \"${A[@]}\""`},
			"--seed ${RANDOM}"},
		"a number drawn once": {"#SBATCH -N1\nA=\"--seed $RANDOM\"\nsrun python t.py $A\n",
			[]string{`script = ["export A=\"--seed $RANDOM\""]`, "exec python t.py ${A}"}, "not translated"},
		"lines that set an array and more": {"#SBATCH -N1\nMODE=slow\nA=(--lr 1)\nif [ -n \"$FAST\" ]; then A+=(--fast); MODE=fast; fi\n" +
			"./prepare.sh $MODE\nsrun python t.py \"${A[@]}\"\n",
			[]string{`"MODE=slow"`, `"A=(--lr 1)"`, `then A+=(--fast); MODE=fast; fi"`, `"./prepare.sh $MODE"`,
				`"export A_ARRAY=$(declare -p A)"`,
				`command = ["bash", "-c", "eval \"$A_ARRAY\"\nexec python t.py \"${A[@]}\""]`}, "not translated"},
		"a variable that a condition sets": {
			"#SBATCH -N1\nif [ -f ckpt.pt ]; then RESUME=\"--resume ckpt.pt\"; fi\nsrun python t.py $RESUME\n",
			[]string{`fi", "export RESUME"]`, `"exec python t.py ${RESUME}"`}, "not translated"},
		"a variable that a condition changes": {
			"#SBATCH -N1\nLR=1\nif [ -n \"$FAST\" ]; then LR=2; fi\nsrun python t.py --lr $LR\n",
			[]string{`script = ["export LR=1", "if [ -n \"$FAST\" ]; then LR=2; fi"]`, `"exec python t.py --lr ${LR}"`}, "[setup.env]"},
		"an array that grows": {"#SBATCH -N1\nA=(--lr 1)\nA+=(--wd \"2 3\")\nsrun python t.py \"${A[@]}\"\n",
			[]string{`["A=(--lr 1)", "A+=(--wd \"2 3\")", "export A_ARRAY=$(declare -p A)"]`,
				`"eval \"$A_ARRAY\"\nexec python t.py \"${A[@]}\""`}, ""},
		"an element for each job of an array": {
			"#SBATCH -N1 -a0-1\nR=$HOME/r\nL=($R/a $R/b)\nsrun python t.py ${L[$SLURM_ARRAY_TASK_ID]}\n",
			[]string{`"eval \"$L_ARRAY\"\nexec python t.py ${L[$SLURM_ARRAY_TASK_ID]}"`,
				`script = ["R=$HOME/r", "L=($R/a $R/b)", "export L_ARRAY=$(declare -p L)"]`}, ""},
		"an array that the setup needs, too": {"#SBATCH -N1\nA=($(cat a))\n./prepare.sh \"${A[0]}\"\nsrun python t.py ${A[1]}\n",
			[]string{`script = ["A=($(cat a))", "./prepare.sh \"${A[0]}\"", "export A_ARRAY=$(declare -p A)"]`,
				`"eval \"$A_ARRAY\"\nexec python t.py ${A[1]}"`}, ""},
		"an array with a secret": {"#SBATCH -N1\nA=(--api-key q7Zx91Lmn4Rt $(cat a))\nsrun python t.py ${A[@]}\n",
			[]string{"not copied"}, "q7Zx"},
		"an array that nothing needs": {"#SBATCH -N1\nnodes=( $(scontrol show hostnames) )\nsrun python t.py\n",
			[]string{"# line 3: left out: nodes=( $(scontrol show hostnames) ): it is not needed here"}, ""},
		"a launcher in a variable": {"#SBATCH -N2\nL=\"accelerate launch --num_processes $((2 * G)) --main_process_ip $(head -1 h)\"\n" +
			"srun $L t.py\n", []string{`"t.py"`, "--num_processes"}, `${L}`},
		"a folder that has to be there": {"#SBATCH -N1\ncd /proj/x || exit 1\nsrun python t.py\n",
			[]string{`workdir = "/proj/x"`}, "script ="},
		"a folder, or what to do without it": {"#SBATCH -N1\ncd /proj/x || { echo no >&2; exit 1; }\ncd y || exit\nsrun python t.py\n",
			[]string{`workdir = "/proj/x/y"`}, "script ="},
		"a folder, or another": {"#SBATCH -N1\ncd /local/$USER || cd /tmp\ncd out || mkdir out\ncd /proj || true\nsrun python t.py\n",
			[]string{`"cd /local/$USER || cd /tmp"`, `"cd out || mkdir out"`, `"cd /proj || true"`, `workdir = "."`}, "not translated"},
		"all the environment, and more": {"#SBATCH -N1 --export=FOO=1,ALL\nsrun --export=BAR=2,all python t.py\n",
			[]string{`FOO = "1"`, `BAR = "2"`}, "not translated"},
		"lines of a file that sbatch never sees": {
			"#SBATCH -N1\ncat > sub.sh <<EOF\n#SBATCH --mem=1G\nEOF\nX=\"\n#SBATCH --mem=2G\n\"\nsrun python t.py\n",
			[]string{`<<EOF\n#SBATCH --mem=1G\nEOF"`}, "left out: #SBATCH"},
		"options that do not begin their lines": {"  #SBATCH --mem=1G\n#SBATCH -N1\n##SBATCH --mem=2G\nif true; then\n  #SBATCH " +
			"--mem=3G\n  echo x\nfi\n" +
			"srun python t.py\n#SBATCH --mem=4G\n",
			[]string{"# line 2: left out: #SBATCH --mem=1G: sbatch reads options only at the beginning of a line",
				"# line 6: left out: #SBATCH --mem=3G: sbatch reads no options after",
				"# line 10: left out: #SBATCH --mem=4G: sbatch reads no options after"},
			"##SBATCH"},
		"a file of what the job does not set": {"#SBATCH -N1\nN=$(srun hostname)\necho $N > hosts\nsrun python t.py\n",
			[]string{"# line 4: not translated: echo $N > hosts: it writes N, which the job does not set"}, "script ="},
		"an environment that is not all": {"#SBATCH -N1 --export=PATH,FOO=1\nsrun python t.py\n",
			[]string{"not translated: --export=PATH,FOO=1: the job gets the environment of the shell that submits", `FOO = "1"`}, ""},
		"all clusters": {"#SBATCH -N1 -M all\nsrun python t.py\n", []string{"not translated: --clusters=all: name one"}, "clusters ="},
		"a launcher in a variable in a variable": {
			"#SBATCH -N2\nexport L=\"torchrun --nproc_per_node $((G * 2)) --rdzv_id $(date +%s)\"\n" +
				"export C=\"$L t.py --x 1\"\nsrun $C\n", []string{`command = ["python3", "-u", "t.py", "--x", "1"]`}, "setup.env"},
		"a variable behind the script": {"#SBATCH -N1\nL=\"torchrun --nproc_per_node $((G * 2))\"\nA=\"--out $(date " +
			"+%s)\"\nsrun $L t.py $A\n",
			[]string{`script = ["export A=\"--out $(date +%s)\""]`, "exec python3 -u t.py ${A}"}, ""},
		"a variable behind a launcher's module": {
			"#SBATCH -N1\nA=\"--out run-$(date +%s)\"\nsrun torchrun --nproc_per_node 4 -m pkg.train $A\n",
			[]string{`script = ["export A=\"--out run-$(date +%s)\""]`, "exec python3 -u -m pkg.train ${A}"}, "not translated"},
		"a launcher that is a module": {"#SBATCH -N1\nA=\"--rdzv_id $(date +%s)\"\nsrun python -m torch.distributed.run $A t.py\n",
			[]string{`command = ["python", "-u", "t.py"]`}, "not translated"},
		"what each rank would run": {"#SBATCH -N1\nC=\"torchrun --nproc_per_node $((G * 2)) t.py --name $(date +%s)\"\nsrun $C\n",
			[]string{"# line 4: not translated: $(date +%s): each rank would do this, but the script does it once: set it in setup.script"},
			""},
		"what each rank would draw": {"#SBATCH -N1\nsrun python t.py --seed $RANDOM --port $((RANDOM % 9))\n",
			[]string{"# line 3: not translated: ${RANDOM}: each rank", "# line 3: not translated: $((RANDOM % 9)): each rank"}, ""},
		"what each rank runs": {"#SBATCH -N1\nsrun bash -c 'python t.py --name $(hostname)'\n",
			[]string{"exec python t.py --name $(hostname)"}, "not translated"},
		"time within a shell": {"#SBATCH -N1\nsrun bash -c \"time torchrun --nproc_per_node 4 t.py\"\n",
			[]string{"nproc_per_node = 4", `command = ["python3", "-u", "t.py"]`, "# line 3: left out: time: "}, ""},
		"a loop behind the launch line": {"#SBATCH -N1\nsrun python t.py\nfor i in 1 2; do\n srun python eval.py $i\ndone\n",
			[]string{`"t.py"`, "# line 4: not translated: for i in 1 2; do srun python eval.py $i done: a loop with a launch line, " +
				"but a job has only one, which is line 3: [sweep]"}, "it comes after"},
		"a condition before a likelier launch line": {"#SBATCH -N1\nif true; then srun -n1 ./prepare; fi\nsrun python t.py\n",
			[]string{`"t.py"`, "srun -n1 ./prepare; fi: a condition with a launch line, but a job has only one, which is line 4"}, ""},
		"a loop that cleans up": {"#SBATCH -N1\nfor i in 1 2; do srun rm -rf /tmp/$i; done\npython t.py\n",
			[]string{`"t.py"`, "rm -rf /tmp/$i; done: a loop: [sweep]"}, "a loop with"},
		"options that sbatch does not have": {"#SBATCH --nodess=3 --lustre-quota-of-site=5\nsrun python t.py\n",
			[]string{`extra = ["--nodess=3", "--lustre-quota-of-site=5"]`,
				"# line 2: not translated: --nodess=3: sbatch itself does not have this option, so it is only in extra, in case your " +
					"site adds it; did you mean --nodes?"},
			"translated: --lustre"},
		"a condition that looks for a launcher": {"#SBATCH -N1\nif ! command -v accelerate >/dev/null; then pip install accelerate; fi\n" +
			"srun python t.py\n", []string{`"t.py"`}, "a condition with"},
		"steps before and after": {
			"#SBATCH -N2\nsrun -n1 python a.py\nsrun -n1 ./watch &\nsrun python t.py\necho a\necho b\n",
			[]string{"line 3: not translated: srun -n1 python a.py: a job has only one launch line, which is line 5; to " +
				"run this before the ranks, once at each start on the job's first node, write it without srun into setup.script\n",
				"which is line 5\n",
				"echo a: it comes after the launch line: launch.on_end names", "echo b: it comes after the launch line\n"}, ""},
		"time": {"#SBATCH -N1\ntime srun python t.py\n", []string{"# line 3: left out: time: "}, ""},
		"cores for each GPU": {"#SBATCH -N1 --ntasks-per-node=2 --cpus-per-gpu=8 -G4\nsrun --ntasks-per-node=4 python t.py\n",
			[]string{"cpus_per_gpu = 8"}, "one core each"},
	} {
		result, err := Script("#!/bin/bash\n"+c.script, Options{Source: "x", Name: "x", Base: "."})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(result.Text, want) {
				t.Errorf("%s: no %s in\n%s", name, want, result.Text)
			}
		}
		if c.not != "" && strings.Contains(result.Text, c.not) {
			t.Errorf("%s: %s in\n%s", name, c.not, result.Text)
		}
		if _, _, err := jobfile.Parse("job.toml", "/work", []byte(result.Text), nil); err != nil {
			t.Errorf("%s: %v\n%s", name, err, result.Text)
		}
	}
	for _, script := range []string{
		"srun -n1 python prep.py\nfor try in 1 2; do\n srun python t.py && break\ndone\n",
		"python prep.py\nif [ -f c ]; then srun python t.py --resume c; else srun python t.py; fi\n",
		"while ! srun python t.py; do :; done\nsrun --ntasks=1 python report.py\n",
	} {
		if result, err := Script("#!/bin/bash\n"+script, Options{Base: "."}); err == nil ||
			!strings.Contains(err.Error(), "its launch line is inside") || !strings.Contains(err.Error(), "; if the job is line ") {
			t.Errorf("%s: %v\n%s", script, err, result.Text)
		}
	}
	if result, err := Script("#!/bin/bash\nsrun -n 4 --multi-prog conf\n", Options{Base: "."}); err == nil ||
		!strings.Contains(err.Error(), "line 2: srun --multi-prog starts several programs") {
		t.Errorf("%v\n%s", err, result.Text)
	}
}

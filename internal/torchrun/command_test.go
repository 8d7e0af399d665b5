package torchrun

import (
	"slices"
	"strings"
	"testing"
)

// TestRunGivesTheWorkersCommand checks which command a worker executes.
func TestRunGivesTheWorkersCommand(t *testing.T) {
	for line, want := range map[string]string{
		"train.py --lr 1":              "python3 -u train.py --lr 1",
		"-- train.py --lr 1":           "train.py --lr 1",
		"--no-python train.py -m":      "train.py -m",
		"--no-python -- sh -c x":       "sh -c x",
		"-m pkg.mod a":                 "python3 -u -m pkg.mod a",
		"-m -- pkg.mod a":              "python3 -u -m pkg.mod a", // as in torchrun, where -- only ends the flags
		"--pass-local-rank train.py a": "python3 -u train.py --local-rank=${local_rank} a",
		"--use-env train.py a":         "python3 -u train.py a",
		"-m --pass-local-rank mod a":   "python3 -u -m mod --local-rank=${local_rank} a",
	} {
		checkCommand(t, nil, line, strings.Fields(want))
	}
	checkCommand(t, nil, "--run-path --no-python /a/train.py b", []string{"python3", "-u", "-c", runPathProgram, "/a/train.py", "b"})
	checkCommand(t, nil, "--run-path train.py", []string{"python3", "-u", "-c", runPathProgram, "train.py"})
	checkCommand(t, variables{"PYTHON_EXEC": "/opt/python"}, "train.py", []string{"/opt/python", "-u", "train.py"})
	checkCommand(t, variables{"PYTHON_EXEC": "/opt/python"}, "-- train.py", []string{"train.py"})
	checkCommand(t, variables{"PET_NO_PYTHON": "1"}, "train.py", []string{"train.py"})
	checkCommand(t, variables{"PET_MODULE": "1"}, "pkg", []string{"python3", "-u", "-m", "pkg"})
}

func checkCommand(t *testing.T, environ variables, line string, want []string) {
	t.Helper()
	o, _, err := Parse(strings.Fields(line), environ.lookup)
	if err != nil {
		t.Errorf("%q: %v", line, err)
		return
	}
	if got, err := o.Argv(environ["PYTHON_EXEC"]); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q: %q, %v; want %q", line, got, err, want)
	}
}

func TestRunsPython(t *testing.T) {
	for _, row := range []struct {
		want    bool
		command []string
	}{
		{true, []string{"python3", "train.py"}},
		{true, []string{"/opt/env/bin/python3.12", "-u", "-m", "train"}},
		{true, []string{"python", "-c", "import torch"}},
		{true, []string{"python3.13t", "-"}},
		{true, []string{"./train.py", "--lr", "1"}},
		{true, []string{"python3", "train.py", "--strategy", "deepspeed"}},
		{true, []string{"env", "-u", "LANG", "A=1", "python3", "train.py"}},
		{true, []string{"bash", "-c", "source env/bin/activate && exec python train.py"}},
		{true, []string{"/bin/bash", "-lc", "module load cuda; $PYTHON train.py --lr 1"}},
		{true, []string{"sh", "-c", `"$0" train.py`, "python3"}},
		{true, []string{"conda", "run", "-n", "torch", "python", "train.py"}},
		{true, []string{"env", "A=1", "bash", "-c", "(cd src; python3 -m train)"}},
		{true, []string{"apptainer", "exec", "--nv", "torch.sif", "python3", "train.py"}},
		{true, []string{"docker", "run", "--rm", "torch", "bash", "-c", "python train.py"}},
		{true, []string{"numactl", "--membind", "0", "timeout", "60", "python3", "train.py"}},
		{true, []string{"/my code/train.py"}},
		{true, []string{"env", "A=1", "./train.py"}},
		{true, []string{"nice", "-n", "5", "numactl", "-l", "./train.py"}},
		{true, []string{"timeout", "60s", "./train.py", "--lr", "1"}},
		{true, []string{"bash", "-c", "cd src && ./train.py"}},
		{true, []string{"bash", "-c", "ls src\nA=1 ./train.py"}},
		{true, []string{"bash", "-c", "if [ -e x ]; then ${PYTHON:-python3} train.py; fi"}},
		{true, []string{"bash", "-c", "$(which python3) train.py"}},

		{false, nil},
		{false, []string{"./train"}},
		{false, []string{"./train", "--script", "train.py"}},
		{false, []string{"env", "PYTHON=/usr/bin/python3", "./train"}},
		{false, []string{"env", "SCRIPT=train.py", "./train"}},
		{false, []string{"bash", "train.sh", "python3"}},
		{false, []string{"sh", "-c", "echo $RANK"}},
		{false, []string{"python3-config", "--libs"}},
		{false, []string{"apptainer", "exec", "mpi.sif", "./train"}},
		// the script is an argument of a program behind a wrapper
		{false, []string{"numactl", "./train", "--config", "conf.py"}},
		{false, []string{"numactl", "--membind", "0", "./train", "5", "conf.py"}},
		{false, []string{"timeout", "60", "./train", "--script", "x.py"}},
		{false, []string{"bash", "-c", "./train --script x.py"}},
		{false, []string{"bash", "-c", "module load cuda && exec ./train $OPTIONS x.py"}},
		{false, []string{"env", "A=1", "bash", "-c", "cp x.py /tmp; ./train"}},
		{false, []string{"apptainer", "exec", "mpi.sif", "./train", "x.py"}},
		// a program that starts ranks itself also serves their store itself
		{false, []string{"torchrun", "train.py"}},
		{false, []string{"python3", "-m", "torch.distributed.run", "train.py"}},
		{false, []string{"python3", "-u", "-m", "torch.distributed.launch", "train.py"}},
		{false, []string{"bash", "-c", "torchrun --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT train.py"}},
		{false, []string{"apptainer", "exec", "torch.sif", "accelerate", "launch", "train.py"}},
	} {
		if got := runsPython(row.command); got != row.want {
			t.Errorf("%q: %t", row.command, got)
		}
	}
}

func TestFindLauncher(t *testing.T) {
	for command, want := range map[string]string{
		"torchrun --nproc-per-node 8 train.py":                    "torchrun",
		"/opt/venv/bin/torchrun train.py":                         "torchrun",
		"python -m torch.distributed.run train.py":                "torch.distributed.run",
		"python3 -u -m torch.distributed.launch train.py":         "torch.distributed.launch",
		"accelerate launch train.py":                              "accelerate",
		"accelerate config":                                       "",
		"deepspeed train.py":                                      "deepspeed",
		"srun python train.py":                                    "srun",
		"mpirun -np 4 ./train":                                    "mpirun",
		"env A=1 mpiexec.hydra ./train":                           "mpiexec.hydra",
		"A=1":                                                     "",
		"apptainer exec --nv image.sif torchrun train.py":         "torchrun",
		"python train.py --launcher torchrun":                     "",
		"python -m torchvision torchrun":                          "",
		"python train.py -m torch.distributed.run":                "",
		"./train srun":                                            "",
		"apptainer exec image.sif python train.py --starter srun": "",
		"./torchrun.py":                                           "",
		"":                                                        "",
	} {
		if got := FindLauncher(strings.Fields(command)); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	for script, want := range map[string]string{
		"cd /data && exec torchrun train.py":        "torchrun",
		"python train.py; echo srun":                "",
		"if true; then srun ./train; fi":            "srun",
		"python prepare.py\nmpirun -n 4 ./train":    "mpirun",
		"exec python train.py --note 'torchrun it'": "",
	} {
		if got := FindLauncher([]string{"bash", "-c", script}); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	if got := FindLauncher([]string{"", "srun"}); got != "" {
		t.Errorf("behind an empty word: %q", got)
	}
}

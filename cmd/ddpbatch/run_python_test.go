package main

import (
	"os/exec"
	"strings"
	"testing"

	"ddpbatch/mpi/launch"
)

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
		// a script that a program behind a wrapper reads
		{false, []string{"numactl", "./train", "--config", "conf.py"}},
		{false, []string{"numactl", "--membind", "0", "./train", "5", "conf.py"}},
		{false, []string{"timeout", "60", "./train", "--script", "x.py"}},
		{false, []string{"bash", "-c", "./train --script x.py"}},
		{false, []string{"bash", "-c", "module load cuda && exec ./train $OPTIONS x.py"}},
		{false, []string{"env", "A=1", "bash", "-c", "cp x.py /tmp; ./train"}},
		{false, []string{"apptainer", "exec", "mpi.sif", "./train", "x.py"}},
		// what starts ranks itself serves their store itself
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

// TestRunServesTorch: who serves PyTorch's store.
func TestRunServesTorch(t *testing.T) {
	script := "train.py"
	for line, want := range map[string]bool{
		script:                                                true,
		"-m train":                                            true,
		"--run-path " + script:                                true,
		"-- python3 " + script:                                true,
		"--no-python python3 " + script:                       true,
		"-- ./train":                                          false,
		"--no-python ./train":                                 false,
		"-m torch.distributed.run " + script:                  false,
		"--torch-store -- ./train":                            true,
		"--torch-store=true -- ./train":                       true,
		"--torch-store=false " + script:                       false,
		"--torch_store=false -- python3 x.py":                 false,
		"--master-port 2000 " + script:                        false, // may be for a server of the script's own
		"--torch-store --master-port 2000 " + script:          true,
		"--master-port 0 " + script:                           true, // a free one
		"--standalone --master-port 2000 " + script:           true, // passed over
		"--nnodes 2 --node-rank 0 --master-addr n1 " + script: true,
		"--nnodes 2 --node-rank 0 --master-addr n1 --master-port 2000 " + script:         false,
		"--nnodes 2 --rdzv-endpoint n1:2000 --node-rank 0 " + script:                     false,
		"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1:2000 --node-rank 0 " + script: true,
	} {
		cfg, _, err := placed(t, shell(t), line)
		if err != nil || cfg.TorchStore != want {
			t.Errorf("%s: %t, %v", line, cfg.TorchStore, err)
		}
	}
	no := false
	job := &workers{command: []string{"python3", script}}
	if o := (&runOptions{}); !o.servesTorch(job, &launch.AgentConfig{}) {
		t.Error("a job of Python, and no store")
	}
	job.launch.TorchStore = &no
	if o := (&runOptions{}); o.servesTorch(job, &launch.AgentConfig{}) {
		t.Error("a store, against launch.torch_store")
	}
	for _, environ := range []map[string]string{agents(t), tasks(t)} {
		for line, want := range map[string]bool{script: true, "--master-port 2000 " + script: false, "-- ./train": false} {
			cfg, _, err := placed(t, environ, line)
			if err != nil || cfg.TorchStore != want {
				t.Errorf("in a step, %s: %t, %v", line, cfg.TorchStore, err)
			}
		}
	}
}

// TestRunMeetsElsewhere: agents of a step that get another --master-port meet at other ports, too.
func TestRunMeetsElsewhere(t *testing.T) {
	bare, _, err := placed(t, agents(t), "x")
	if err != nil {
		t.Fatal(err)
	}
	first, _, err := placed(t, agents(t), "--master-port 2000 x")
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := placed(t, agents(t), "--master-port 2001 x")
	if err != nil || first.Ports[0] == second.Ports[0] || first.Ports[0] == bare.Ports[0] || second.MasterPort != 2001 {
		t.Errorf("agents meet at %v, %v and %v, %v", bare.Ports, first.Ports, second.Ports, err)
	}
}

// TestRunMasterPortIsServed: a rank 0 that serves its MASTER_PORT itself hears which flag leaves that to it.
func TestRunMasterPortIsServed(t *testing.T) {
	t.Parallel()
	python := python(t)
	run := func(flags ...string) (string, error) {
		const script = `import os, socket; socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))); print("serves")`
		args := append(append([]string{"run", "--standalone"}, flags...), "--", python, "-c", script)
		out, err := exec.Command("ddpbatch", args...).CombinedOutput()
		return string(out), err
	}
	const says = "pass --torch-store=false (launch.torch_store = false in a job)"
	if out, err := run(); err == nil || !strings.Contains(strings.Join(strings.Fields(out), " "), says) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := run("--torch-store=false"); err != nil || !strings.Contains(out, "serves") {
		t.Errorf("%v: %s", err, out)
	}
}

package translate

import (
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/jobfile"
)

// TestComponentsComeOut: the job file requests what a script requests for its components, or says that it does not.
func TestComponentsComeOut(t *testing.T) {
	for name, c := range map[string]struct {
		head, launch string
		counts       []int // ranks on each node
		mode         string
		says         []string
	}{
		"tasks": {"-n4 -N1\n#SBATCH hetjob\n#SBATCH -N2 -n4 -c3 --gpus-per-task=1 --mem=9G", "srun --het-group=0,1 ./x",
			[]int{4, 2, 2}, "task", []string{"cpus_per_task = 3", "gpus_per_task = 1", `mem = "9G"`, "nproc_per_node = 2"}},
		"a launcher": {"-N1\n#SBATCH hetjob\n#SBATCH -N2 --gpus-per-task=4 --time=5 -o x",
			"srun --het-group=0,1 torchrun --nproc-per-node 4 x.py",
			[]int{4}, "agent", []string{"gpus_per_node = 4", "not translated: --time=5: a component has no key", "--output=x is left out"}},
		"a word": {"-N1\n#SBATCH hetjob\n#SBATCH -N2 -c2 --gpus-per-socket=1", "srun --het-group=0,1 torchrun --nproc-per-node gpu x.py",
			nil, "agent", []string{"not translated: 2 cores of each node", "write gpus_per_node"}},
		"another range": {"-N1\n#SBATCH hetjob\n#SBATCH hetjob\n#SBATCH -N2-4", "srun ./x",
			[]int{1}, "agent", []string{"[[slurm.component]]  # component 2", "the least number of nodes", "only on the first component"}},
		"one of two": {"-N1\n#SBATCH hetjob\n#SBATCH -N1", "srun --het-group=1 ./x", []int{1}, "agent",
			[]string{"on 1 component of 2", `command = ["./x"]`}},
		"two commands": {"-N1\n#SBATCH hetjob\n#SBATCH -N1", "srun ./a : --het-group=1 ./b", []int{1}, "agent",
			[]string{"not translated: the commands after a colon", `command = ["./a"]`}},
	} {
		result, err := Script("#!/bin/bash\n#SBATCH "+c.head+"\n"+c.launch+"\n", Options{Source: "x", Name: "x", Base: "."})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		job, _, err := jobfile.Parse("job.toml", "/work", []byte(result.Text), nil)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, result.Text)
			continue
		}
		if !slices.Equal(job.Launch.NprocPerNode.Counts, c.counts) || job.Launch.Mode != c.mode {
			t.Errorf("%s: ranks %v, mode %s", name, job.Launch.NprocPerNode.Counts, job.Launch.Mode)
		}
		for _, says := range c.says {
			if !strings.Contains(result.Text, says) {
				t.Errorf("%s: %q is not in\n%s", name, says, result.Text)
			}
		}
	}
	for head, says := range map[string]string{
		"-a1-3\n#SBATCH hetjob\n#SBATCH -N1":                           "array",
		"-N1" + strings.Repeat("\n#SBATCH hetjob\n#SBATCH -N1", 128):   "at most 128",
		"-N60000\n#SBATCH hetjob\n#SBATCH -N60000 --ntasks-per-node=2": "at most 65536",
	} {
		_, err := Script("#!/bin/bash\n#SBATCH "+head+"\nsrun ./x\n", Options{Source: "x", Name: "x", Base: "."})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20s: %v, want %q", head, err, says)
		}
	}
}

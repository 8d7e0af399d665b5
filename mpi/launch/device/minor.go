package device

import (
	"slices"
	"strconv"
	"strings"
)

// gpuVariables tell which of the node's GPUs Slurm gave to the step, or to the job, by the node's own numbers (sbatch(1) and srun(1), output
// environment variables). The step's counts where both are set: the job's may be that of the node of the batch script.
var gpuVariables = []string{"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}

// minors are the device numbers of the GPUs that CUDA_VISIBLE_DEVICES names; "" where one is not known. They differ where Slurm confines a
// job to its devices (cgroup.conf, ConstrainDevices): there CUDA sees no others, and counts from 0.
func (r Request) minors(ids []string) []string {
	unknown := make([]string, len(ids))
	var given []string
	for _, name := range gpuVariables {
		if text, ok := r.Lookup(name); ok {
			given = strings.Split(text, ",")
			break
		}
	}
	if given == nil {
		if r.slurmGives() {
			return unknown
		}
		return ids // CUDA counts all of them
	}
	numbers := make([]int, len(given))
	for i, text := range given {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return unknown
		}
		numbers[i] = n
	}
	slices.Sort(numbers)
	if len(slices.Compact(slices.Clone(numbers))) != len(ids) || len(numbers) != len(ids) {
		return unknown
	}
	for _, names := range [][]int{numbers, counted(len(ids))} {
		if found := translate(ids, names, numbers); found != nil {
			return found
		}
	}
	return unknown
}

// translate replaces each id, which is the i-th of names, by the i-th of numbers; nil where one is none of names.
func translate(ids []string, names, numbers []int) (found []string) {
	for _, id := range ids {
		n, err := strconv.Atoi(id)
		at := slices.Index(names, n)
		if err != nil || at < 0 {
			return nil
		}
		found = append(found, strconv.Itoa(numbers[at]))
	}
	return found
}

func counted(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

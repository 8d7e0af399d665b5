package device

import (
	"cmp"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// visibleVariables list which GPUs a process sees. One is NVIDIA's (CUDA C++ Programming Guide, environment variables) and two are
// AMD's (ROCm, "GPU isolation techniques"). The first variable that is set counts.
var visibleVariables = []string{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}

// GPUs lists the GPUs that a process with these variables sees here, in the variable's own notation, and the variable's name. If
// none of the variables is set, it lists the GPUs that Slurm gave this node, or else the machine's, numbered from 0, and the name
// is "".
// is "".
func (n *Node) GPUs(lookup func(string) (string, bool)) (ids []string, name string) {
	ids, name = visible(lookup)
	if len(ids) == 0 && name == "" {
		ids = nvidiaDevices(n.machine.root)
	}
	return ids, name
}

// visible reads the variables. The list ends at the first invalid entry, as it does for CUDA.
func visible(lookup func(string) (string, bool)) (ids []string, name string) {
	for _, name := range visibleVariables {
		list, ok := lookup(name)
		if !ok {
			continue
		}
		for id := range strings.SplitSeq(list, ",") {
			id = strings.TrimSpace(id)
			if id == "" || strings.HasPrefix(id, "-") || id == "NoDevFiles" {
				break
			}
			ids = append(ids, id)
		}
		return ids, name
	}
	text, _ := lookup("SLURM_GPUS_ON_NODE")
	const most = 1 << 10
	if n, err := strconv.Atoi(text); err == nil && n <= most {
		for i := range n {
			ids = append(ids, strconv.Itoa(i))
		}
	}
	return ids, ""
}

// slurmGives reports whether Slurm gave GPUs to this job.
func (r Request) slurmGives() bool {
	_, ok := r.Lookup("SLURM_GPUS_ON_NODE")
	return ok
}

// gpus plans which GPUs the worker sees, and returns the agent's GPUs, as CUDA numbers them.
func (r Request) gpus(p *Share, n *Node) ([]string, error) {
	if r.Builtin {
		return nil, nil // it computes on cores only
	}
	ids, name := n.GPUs(r.Lookup)
	if r.VirtualLocalRank && len(ids) == 0 {
		return nil, fmt.Errorf("--virtual-local-rank gives each worker one GPU, but none is visible here")
	}
	if len(ids) == 0 {
		if r.GPUs == "one" {
			return nil, fmt.Errorf("each worker is to have its own GPU (gpus = one), but none is visible here: ask Slurm for GPUs " +
				"(gpus_per_node), or leave it out")
		}
		return nil, nil
	}
	if r.Task && r.GPUs != "all" && len(ids) < r.LocalWorldSize && !r.shared(ids, name) {
		r.taskGPUs(p, ids, name)
		return ids, nil
	}
	return r.agentGPUs(p, ids, name)
}

// agentGPUs shares the agent's GPUs (in task mode, those of the node's tasks) among its workers, or lets each see all of them.
func (r Request) agentGPUs(p *Share, ids []string, name string) ([]string, error) {
	if len(ids) < r.LocalWorldSize && r.GPUs != "all" {
		if name == "" && r.GPUs != "one" && !r.VirtualLocalRank && !r.slurmGives() {
			// The user did not ask for the GPUs that this machine happens to have. The job may well use none, and torchrun starts it.
			p.warn(`%d workers share this machine's %s, if they use any, and none has the number of LOCAL_RANK %d: `+
				`nproc_per_node = "gpu" is one worker for each GPU, `+
				"gpus = all (--gpus all) says that sharing is meant, CUDA_VISIBLE_DEVICES= (empty) that they use none",
				r.LocalWorldSize, gpuCount(len(ids)), len(ids))
			return ids, nil
		}
		who, fewer := "workers", `nproc_per_node = "gpu" is one each`
		if r.Task {
			who, fewer = "tasks", "srun --ntasks-per-node"
		}
		return nil, fmt.Errorf("%d %s on this node would share %s (%s): start fewer (%s), ask for more GPUs, or allow it "+
			"with gpus = all (--gpus all)",
			r.LocalWorldSize, who, gpuCount(len(ids)), strings.Join(ids, ","), fewer)
	}
	if r.GPUs != "one" && !r.VirtualLocalRank {
		return ids, nil
	}
	p.Env = append(p.Env, cmp.Or(name, visibleVariables[0])+"="+ids[r.LocalRank%len(ids)])
	if r.VirtualLocalRank {
		p.Env = append(p.Env, "LOCAL_RANK=0")
	}
	return ids, nil
}

// shared reports whether the tasks of this node, each of which sees the given GPUs, are known to see the same ones. That is so if
// Slurm has given the node no further GPUs and bound no task to any (slurmd's variable covers --gpus-per-task, --gpu-bind and
// --ntasks-per-gpu alike), or if no variable distinguishes tasks.
func (r Request) shared(ids []string, name string) bool {
	_, each := r.Lookup("SLURM_GPUS_PER_TASK")
	bind, _ := r.Lookup("SLURMD_TRES_BIND") // gpu:per_task:1
	if each || strings.Contains(bind, "gpu") && !strings.HasSuffix(bind, "none") {
		return false
	}
	text, given := r.Lookup("SLURM_GPUS_ON_NODE")
	n, err := strconv.Atoi(text)
	return err == nil && n <= len(ids) || !given && (name == "" || r.Pretend)
}

// taskGPUs is for a task that sees fewer GPUs than its node has tasks, as with srun --gpus-per-task and --gpu-bind. The GPUs are
// its own, and LOCAL_RANK is not an index into them. If Slurm gave no GPUs, the variable was set in another way, for each task or
// for all alike.
func (r Request) taskGPUs(p *Share, ids []string, name string) {
	if !r.slurmGives() {
		p.warn("%d tasks on this node share %s (%s) if %s is the same for all of them: ask for one GPU each with --gpus-per-node, "+
			"or pass --gpus all if that is meant",
			r.LocalWorldSize, gpuCount(len(ids)), strings.Join(ids, ","), name)
	}
	switch {
	case r.VirtualLocalRank:
		p.Env = append(p.Env, "LOCAL_RANK=0")
	case r.LocalRank >= len(ids):
		p.warn("LOCAL_RANK is %d, but this task sees %s: a script that uses GPU number LOCAL_RANK fails. If each task has its own GPUs "+
			"(--gpus-per-task, --gpu-bind), pass --virtual-local-rank, so that LOCAL_RANK is 0, or ask for GPUs with --gpus-per-node",
			r.LocalRank, gpuCount(len(ids)))
	}
}

func gpuCount(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return strconv.Itoa(n) + " GPUs"
}

var nvidiaDevice = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^nvidia[0-9]+$`) })

// nvidiaDevices lists the GPUs for which the machine has device files, numbered from 0 as CUDA does.
func nvidiaDevices(root fs.FS) (ids []string) {
	entries, err := fs.ReadDir(root, "dev")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if nvidiaDevice().MatchString(e.Name()) {
			ids = append(ids, strconv.Itoa(len(ids)))
		}
	}
	return ids
}

// numaOf is the NUMA node of the NVIDIA GPU with the given minor number, or -1 if it is not known.
func numaOf(root fs.FS, id string) int {
	minor, err := strconv.Atoi(id)
	if err != nil { // a UUID
		return -1
	}
	const folder = "proc/driver/nvidia/gpus"
	entries, err := fs.ReadDir(root, folder)
	if err != nil {
		return -1
	}
	for _, e := range entries {
		text, err := fs.ReadFile(root, folder+"/"+e.Name()+"/information")
		if err != nil || !slices.Contains(strings.Fields(minorLine(string(text))), strconv.Itoa(minor)) {
			continue
		}
		node, err := fs.ReadFile(root, "sys/bus/pci/devices/"+strings.ToLower(e.Name())+"/numa_node")
		if n, bad := strconv.Atoi(strings.TrimSpace(string(node))); err == nil && bad == nil {
			return n
		}
	}
	return -1
}

func minorLine(text string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "Device Minor:"); ok {
			return rest
		}
	}
	return ""
}

// gpuVariables list which of the node's GPUs Slurm gave to the step, or to the job, by the node's own numbers (sbatch(1) and
// srun(1), output environment variables). The step's variable takes precedence: the job's may describe the node of the batch
// script.
var gpuVariables = []string{"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}

// minors are the device numbers of the GPUs that CUDA_VISIBLE_DEVICES names; "" for an unknown one. The two numberings differ if
// Slurm confines a job to its devices (cgroup.conf, ConstrainDevices): then CUDA sees only these, and counts from 0.
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
		return ids // CUDA numbers all GPUs of the machine
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

// translate replaces each id, which is the i-th of names, by the i-th of numbers. It returns nil if an id is not among names.
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

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

// visibleVariables say which GPUs a process sees: NVIDIA's (CUDA C++ Programming Guide, environment variables), and AMD's two
// (ROCm, "GPU isolation techniques"), of which the first that is set counts.
var visibleVariables = []string{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}

// GPUs lists the GPUs that a process with these variables sees here, as they are written there, and the variable; where none is
// set, what Slurm gave this node, or else those of the machine, numbered from 0, and "".
func (n *Node) GPUs(lookup func(string) (string, bool)) (ids []string, name string) {
	ids, name = visible(lookup)
	if len(ids) == 0 && name == "" {
		ids = nvidiaDevices(n.machine.root)
	}
	return ids, name
}

// visible is what the variables say. The list ends at the first that is not valid, as CUDA's does.
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

// slurmGives tells whether Slurm gave GPUs to this job.
func (r Request) slurmGives() bool {
	_, ok := r.Lookup("SLURM_GPUS_ON_NODE")
	return ok
}

// gpus plans which GPUs the worker sees, and returns those of the agent, as CUDA numbers them.
func (r Request) gpus(p *Share, n *Node) ([]string, error) {
	if r.Builtin {
		return nil, nil // it computes on cores
	}
	ids, name := n.GPUs(r.Lookup)
	if r.VirtualLocalRank && len(ids) == 0 {
		return nil, fmt.Errorf("--virtual-local-rank gives each worker one GPU, and none is visible here")
	}
	if len(ids) == 0 {
		if r.GPUs == "one" {
			return nil, fmt.Errorf("each worker is to have a GPU of its own (gpus = one), and none is visible here: ask Slurm for GPUs " +
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

// agentGPUs shares the agent's GPUs (those of the node's tasks, in task mode) among its workers, or lets all see all of them.
func (r Request) agentGPUs(p *Share, ids []string, name string) ([]string, error) {
	if len(ids) < r.LocalWorldSize && r.GPUs != "all" {
		if name == "" && r.GPUs != "one" && !r.VirtualLocalRank && !r.slurmGives() {
			// nobody asked for the GPUs that this machine happens to have: a job that uses none is as likely, and torchrun starts it
			p.warn(`%d workers share this machine's %s, if they use any, and none has the number of LOCAL_RANK %d: nproc_per_node = "gpu" is one worker for each GPU, `+
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

// shared tells whether the tasks of this node, of which each sees the given GPUs, are known to see the same ones: Slurm has given the node
// no more and bound no task to any (slurmd's variable tells of --gpus-per-task, --gpu-bind and --ntasks-per-gpu alike), or no variable
// tells tasks apart.
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

// taskGPUs is for a task that sees fewer GPUs than its node has tasks, as srun --gpus-per-task and --gpu-bind make it: they are its own,
// and LOCAL_RANK is no number among them. Where Slurm gave no GPUs, somebody else has set the variable, for each task or for all alike.
func (r Request) taskGPUs(p *Share, ids []string, name string) {
	if !r.slurmGives() {
		p.warn("%d tasks on this node share %s (%s) if %s is the same for all of them: one GPU each is asked for with --gpus-per-node, "+
			"and --gpus all says that this is meant",
			r.LocalWorldSize, gpuCount(len(ids)), strings.Join(ids, ","), name)
	}
	switch {
	case r.VirtualLocalRank:
		p.Env = append(p.Env, "LOCAL_RANK=0")
	case r.LocalRank >= len(ids):
		p.warn("LOCAL_RANK is %d, and this task sees %s: a script that uses GPU number LOCAL_RANK fails. Where each task has its own "+
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

// nvidiaDevices lists the GPUs that the machine has device files of, numbered from 0 as CUDA does.
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

// numaOf is the NUMA node of NVIDIA's GPU with the given minor number; -1 where the machine does not say.
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

// gpuVariables tell which of the node's GPUs Slurm gave to the step, or to the job, by the node's own numbers (sbatch(1) and srun(1),
// output environment variables). The step's counts where both are set: the job's may be that of the node of the batch script.
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

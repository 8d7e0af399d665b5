package device

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

// twoSockets is a machine of 2 sockets, a NUMA node each, of 4 cores with 2 threads (core i and i+8), 2 level 3 caches a socket, and
// 4 GPUs: 0 and 1 at node 1, 2 and 3 at node 0.
func twoSockets() fstest.MapFS {
	root := fstest.MapFS{}
	put := func(name, text string) { root[name] = &fstest.MapFile{Data: []byte(text + "\n")} }
	put("sys/devices/system/node/node0/cpulist", "0-3,8-11")
	put("sys/devices/system/node/node1/cpulist", "4-7,12-15")
	for core := range 16 {
		folder := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", core)
		own := core % 8
		put(folder+"topology/thread_siblings_list", fmt.Sprintf("%d,%d", own, own+8))
		first := own / 4 * 4
		put(folder+"topology/package_cpus_list", fmt.Sprintf("%d-%d,%d-%d", first, first+3, first+8, first+11))
		first = own / 2 * 2
		put(folder+"cache/index3/shared_cpu_list", fmt.Sprintf("%d-%d,%d-%d", first, first+1, first+8, first+9))
	}
	for gpu, node := range []int{1, 1, 0, 0} {
		pci := fmt.Sprintf("0000:%02X:00.0", 0x1b+gpu)
		put("proc/driver/nvidia/gpus/"+pci+"/information", fmt.Sprintf("Model: \t\t X\nDevice Minor: \t %d", gpu))
		put("sys/bus/pci/devices/"+strings.ToLower(pci)+"/numa_node", fmt.Sprint(node))
	}
	return root
}

func lookup(vars ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, v := range vars {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}
}

func upTo(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

func TestGPUsAreAssignedToWorkers(t *testing.T) {
	none := fstest.MapFS{}
	devices := fstest.MapFS{"dev/nvidia0": {}, "dev/nvidia1": {}, "dev/nvidiactl": {}, "dev/nvidia-uvm": {}}
	for name, tt := range map[string]struct {
		r    Request
		root fs.FS
		env  string // of the worker's share
		err  string
		warn string
	}{
		"no GPUs": {r: Request{LocalRank: 1, LocalWorldSize: 4}, root: none},
		"one each, and there are": {r: Request{LocalRank: 1, LocalWorldSize: 2, Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1")},
			root: none},
		"more GPUs than workers": {r: Request{LocalRank: 1, LocalWorldSize: 2, Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1,2,3")},
			root: none},
		"more workers than GPUs": {r: Request{LocalWorldSize: 4, Lookup: lookup("CUDA_VISIBLE_DEVICES=2,3")}, root: none,
			err: "4 workers on this node would share 2 GPUs (2,3)"},
		"one GPU shared unasked": {r: Request{LocalWorldSize: 2, GPUs: "auto", Lookup: lookup("SLURM_GPUS_ON_NODE=1")}, root: none,
			err: "would share 1 GPU (0)"},
		"by device files": {r: Request{LocalWorldSize: 3}, root: devices,
			warn: "3 workers share this machine's 2 GPUs, if they use any, and none has the number of LOCAL_RANK 2"},
		"by device files, tasks": {r: Request{LocalWorldSize: 3, Task: true}, root: devices,
			warn: "CUDA_VISIBLE_DEVICES= (empty) that they use none"},
		"by device files, as asked": {r: Request{LocalWorldSize: 3, GPUs: "all"}, root: devices},
		"by device files, virtual":  {r: Request{LocalWorldSize: 3, VirtualLocalRank: true}, root: devices, err: "would share 2 GPUs"},
		"by device files, enough":   {r: Request{LocalWorldSize: 2}, root: devices},
		"by device files, one each": {r: Request{LocalWorldSize: 3, GPUs: "one"}, root: devices, err: "would share 2 GPUs"},
		"ours uses none": {r: Request{LocalWorldSize: 3, Builtin: true, Lookup: lookup("CUDA_VISIBLE_DEVICES=0")},
			root: none},
		"shared, as asked": {r: Request{LocalRank: 3, LocalWorldSize: 4, GPUs: "all",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=2,3")}, root: none},
		"hidden by the user": {r: Request{LocalWorldSize: 4, Lookup: lookup("CUDA_VISIBLE_DEVICES=")}, root: devices},
		"hidden by Slurm":    {r: Request{LocalWorldSize: 4, Lookup: lookup("CUDA_VISIBLE_DEVICES=NoDevFiles")}, root: devices},
		"one": {r: Request{LocalRank: 1, LocalWorldSize: 2, GPUs: "one",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=5, GPU-77")}, root: none, env: "CUDA_VISIBLE_DEVICES=GPU-77"},
		"one, of AMD's": {r: Request{LocalRank: 1, LocalWorldSize: 2, GPUs: "one",
			Lookup: lookup("ROCR_VISIBLE_DEVICES=0,1")}, root: none, env: "ROCR_VISIBLE_DEVICES=1"},
		"one, by device files": {r: Request{LocalRank: 1, LocalWorldSize: 2, GPUs: "one"}, root: devices,
			env: "CUDA_VISIBLE_DEVICES=1"},
		"one of too few": {r: Request{LocalRank: 1, LocalWorldSize: 3, GPUs: "one",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1")}, root: none, err: "would share"},
		"one of none": {r: Request{LocalWorldSize: 1, GPUs: "one"}, root: none, err: "none is visible"},
		"virtual": {r: Request{LocalRank: 1, LocalWorldSize: 2, VirtualLocalRank: true,
			Lookup: lookup("CUDA_VISIBLE_DEVICES=4,6")}, root: none, env: "CUDA_VISIBLE_DEVICES=6 LOCAL_RANK=0"},
		"virtual without GPUs": {r: Request{LocalWorldSize: 1, VirtualLocalRank: true}, root: none, err: "none is visible"},
		"a task with a GPU of its own": {r: Request{LocalRank: 1, LocalWorldSize: 2, Task: true,
			Lookup: lookup("CUDA_VISIBLE_DEVICES=1", "SLURM_GPUS_ON_NODE=2")}, root: none,
			warn: "LOCAL_RANK is 1, but this task sees 1 GPU"},
		"the first such task": {r: Request{LocalRank: 0, LocalWorldSize: 2, Task: true,
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0", "SLURM_GPUS_ON_NODE=2")}, root: none},
		"such a task, virtual": {r: Request{LocalRank: 1, LocalWorldSize: 2, Task: true, VirtualLocalRank: true,
			Lookup: lookup("CUDA_VISIBLE_DEVICES=1", "SLURM_GPUS_ON_NODE=2")}, root: none, env: "LOCAL_RANK=0"},
		"a task bound to its own": {r: Request{LocalRank: 1, LocalWorldSize: 2, Task: true,
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0", "SLURM_GPUS_ON_NODE=1", "SLURM_GPUS_PER_TASK=1")}, root: none,
			warn: "this task sees 1 GPU"},
		"a task, shared unasked": {r: Request{LocalRank: 1, LocalWorldSize: 2, Task: true,
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0", "SLURM_GPUS_ON_NODE=1")}, root: none, err: "2 tasks on this node would share 1 GPU"},
		"shared unasked, by the first": {r: Request{LocalRank: 0, LocalWorldSize: 2, Task: true,
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0", "SLURM_GPUS_ON_NODE=1")}, root: none, err: "would share"},
		"shared unasked, virtual": {r: Request{LocalRank: 1, LocalWorldSize: 2, Task: true, VirtualLocalRank: true,
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0", "SLURM_GPUS_ON_NODE=1")}, root: none, err: "would share"},
		"shared unasked, one": {r: Request{LocalRank: 1, LocalWorldSize: 2, Task: true, GPUs: "one",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0", "SLURM_GPUS_ON_NODE=1")}, root: none, err: "would share"},
		"tasks that share as they asked": {r: Request{LocalRank: 1, LocalWorldSize: 2, Task: true, GPUs: "all",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0", "SLURM_GPUS_ON_NODE=1")}, root: none},
		"two tasks a GPU, asked for": {r: Request{LocalRank: 1, LocalWorldSize: 2, Task: true, VirtualLocalRank: true,
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0", "SLURM_GPUS_ON_NODE=1", "SLURMD_TRES_BIND=gpu:single:2")},
			root: none, env: "LOCAL_RANK=0"},
		"set by hand, nobody knows": {r: Request{LocalRank: 0, LocalWorldSize: 2, Task: true,
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0")}, root: none,
			warn: "2 tasks on this node share 1 GPU (0) if CUDA_VISIBLE_DEVICES is the same"},
		"simulated tasks": {r: Request{LocalRank: 0, LocalWorldSize: 2, Task: true, Pretend: true,
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0")}, root: none, err: "would share"},
		"tasks bound to none": {r: Request{LocalRank: 1, LocalWorldSize: 2, Task: true,
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0", "SLURM_GPUS_ON_NODE=1", "SLURMD_TRES_BIND=gpu:none")}, root: none, err: "would share"},
		"a task that sees all": {r: Request{LocalRank: 1, LocalWorldSize: 2, Task: true,
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1")}, root: none},
		"a word that is none": {r: Request{LocalWorldSize: 1, GPUs: "two"}, root: none, err: `GPUs "two"`},
		"more than there can be": {r: Request{LocalWorldSize: 2, Lookup: lookup("SLURM_GPUS_ON_NODE=99999999999999999999")},
			root: none},
		"a list that ends at an invalid": {r: Request{LocalWorldSize: 2, Lookup: lookup("CUDA_VISIBLE_DEVICES=0,-1,1")},
			root: none, err: "share 1 GPU"},
	} {
		if tt.r.Lookup == nil {
			tt.r.Lookup = lookup()
		}
		p, err := NodeOf(upTo(4), tt.root).Assign(tt.r)
		if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: error %v, want %q", name, err, tt.err)
			continue
		}
		if got := strings.Join(p.Env, " "); got != tt.env {
			t.Errorf("%s: environment %q, want %q", name, got, tt.env)
		}
		if got := strings.Join(p.Warnings, "; "); !strings.Contains(got, tt.warn) || (got == "") != (tt.warn == "") {
			t.Errorf("%s: warnings %q, want %q", name, got, tt.warn)
		}
	}
}

func TestCoresAreAssignedToWorkers(t *testing.T) {
	all := upTo(16)
	for name, tt := range map[string]struct {
		r       Request
		granted []int
		cores   []int // nil: not bound
		threads int
		err     string
	}{
		"a command keeps all":     {r: Request{LocalWorldSize: 2}, granted: all, threads: 4},
		"alone":                   {r: Request{LocalWorldSize: 1}, granted: all, threads: 8},
		"more workers than cores": {r: Request{LocalRank: 5, LocalWorldSize: 20, Builtin: true}, granted: all, threads: 1},
		"ours has its own": {r: Request{LocalRank: 1, LocalWorldSize: 2, Builtin: true}, granted: all,
			cores: upTo(16)[8:], threads: 8},
		"ours of few": {r: Request{LocalRank: 1, LocalWorldSize: 2, Builtin: true}, granted: []int{3, 5, 7},
			cores: []int{7}, threads: 1},
		"a bound task": {r: Request{LocalRank: 1, LocalWorldSize: 4, Task: true, Lookup: lookup("SLURM_CPUS_ON_NODE=16")},
			granted: []int{4, 5, 12, 13}, threads: 2},
		"ours, a bound task": {r: Request{LocalRank: 1, LocalWorldSize: 4, Task: true, Builtin: true,
			Lookup: lookup("SLURM_CPUS_ON_NODE=16")}, granted: []int{4, 5, 12, 13}, cores: []int{4, 5, 12, 13}, threads: 2},
		"a task bound to one core": {r: Request{LocalRank: 1, LocalWorldSize: 4, Task: true, Lookup: lookup("SLURM_CPUS_ON_NODE=16")},
			granted: []int{4}, threads: 1},
		"a task, no such variable": {r: Request{LocalRank: 1, LocalWorldSize: 4, Task: true}, granted: []int{1, 2, 3, 4}, threads: 1},
		"a task, no number": {r: Request{LocalRank: 1, LocalWorldSize: 4, Task: true,
			Lookup: lookup("SLURM_CPUS_ON_NODE=4(x2)")}, granted: []int{1, 2, 3, 4}, threads: 1},
		"an unbound task": {r: Request{LocalRank: 1, LocalWorldSize: 4, Task: true, Lookup: lookup("SLURM_CPUS_ON_NODE=16")},
			granted: all, threads: 2},
		"node, no GPU, first": {r: Request{LocalRank: 0, LocalWorldSize: 4, NUMA: "node"}, granted: all,
			cores: []int{0, 1, 2, 3, 8, 9, 10, 11}, threads: 2},
		"node, no GPU, last": {r: Request{LocalRank: 3, LocalWorldSize: 4, NUMA: "node"}, granted: all,
			cores: []int{4, 5, 6, 7, 12, 13, 14, 15}, threads: 2},
		"node of the GPU": {r: Request{LocalRank: 0, LocalWorldSize: 4, NUMA: "node",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1,2,3")}, granted: all, cores: []int{4, 5, 6, 7, 12, 13, 14, 15}, threads: 2},
		"socket of the GPU": {r: Request{LocalRank: 3, LocalWorldSize: 4, NUMA: "socket",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1,2,3")}, granted: all, cores: []int{0, 1, 2, 3, 8, 9, 10, 11}, threads: 2},
		"confined, and counted from 0": {r: Request{LocalRank: 0, LocalWorldSize: 2, NUMA: "node",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1", "SLURM_GPUS_ON_NODE=2", "SLURM_STEP_GPUS=2,3", "SLURM_JOB_GPUS=0,1")},
			granted: all, cores: []int{0, 1, 2, 3, 8, 9, 10, 11}, threads: 4},
		"the job's, in another order": {r: Request{LocalRank: 0, LocalWorldSize: 2, NUMA: "node",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=1,0", "SLURM_JOB_GPUS=3,1")}, granted: all,
			cores: []int{0, 1, 2, 3, 8, 9, 10, 11}, threads: 4},
		"not confined": {r: Request{LocalRank: 0, LocalWorldSize: 2, NUMA: "node",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=3,1", "SLURM_STEP_GPUS=1,3")}, granted: all,
			cores: []int{0, 1, 2, 3, 8, 9, 10, 11}, threads: 4},
		// if the GPUs' nodes are not known, worker 0 of 2 is bound to node 0
		"fewer than Slurm gave": {r: Request{LocalRank: 0, LocalWorldSize: 2, NUMA: "node",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1", "SLURM_STEP_GPUS=0,1,2")}, granted: all,
			cores: []int{0, 1, 2, 3, 8, 9, 10, 11}, threads: 4},
		"Slurm does not say which": {r: Request{LocalRank: 0, LocalWorldSize: 2, NUMA: "node",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1", "SLURM_GPUS_ON_NODE=2")}, granted: all,
			cores: []int{0, 1, 2, 3, 8, 9, 10, 11}, threads: 4},
		"Slurm says no numbers": {r: Request{LocalRank: 0, LocalWorldSize: 2, NUMA: "node",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1", "SLURM_STEP_GPUS=0,x")}, granted: all,
			cores: []int{0, 1, 2, 3, 8, 9, 10, 11}, threads: 4},
		"Slurm says one twice": {r: Request{LocalRank: 0, LocalWorldSize: 2, NUMA: "node",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1", "SLURM_STEP_GPUS=0,0")}, granted: all,
			cores: []int{0, 1, 2, 3, 8, 9, 10, 11}, threads: 4},
		"exclusive": {r: Request{LocalRank: 1, LocalWorldSize: 4, NUMA: "exclusive",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1,2,3")}, granted: all, cores: []int{12, 13, 14, 15}, threads: 4},
		"exclusive, the other half": {r: Request{LocalRank: 0, LocalWorldSize: 4, NUMA: "exclusive",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1,2,3")}, granted: all, cores: []int{4, 5, 6, 7}, threads: 4},
		"core complex, no GPU": {r: Request{LocalRank: 2, LocalWorldSize: 4, NUMA: "core-complex"}, granted: all,
			cores: []int{4, 5, 12, 13}, threads: 2},
		"node, of which some granted": {r: Request{LocalRank: 1, LocalWorldSize: 2, NUMA: "node"}, granted: []int{0, 1, 6},
			cores: []int{6}, threads: 1},
		"no core near the GPU": {r: Request{LocalRank: 0, LocalWorldSize: 2, NUMA: "node",
			Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1")}, granted: []int{0, 1}, err: "no core near its GPU"},
		"a word that is none": {r: Request{LocalWorldSize: 1, NUMA: "core"}, granted: all, err: `NUMA binding "core"`},
		"no such worker":      {r: Request{LocalRank: 2, LocalWorldSize: 2}, granted: all, err: "not in a local world of 2"},
	} {
		if tt.r.Lookup == nil {
			tt.r.Lookup = lookup()
		}
		p, err := NodeOf(tt.granted, twoSocketsRoot).Assign(tt.r)
		if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: error %v, want %q", name, err, tt.err)
			continue
		}
		var got []int
		if p.Cores != nil {
			got = cores(p.Cores)
		}
		if !slices.Equal(got, tt.cores) || p.Threads != tt.threads {
			t.Errorf("%s: cores %v and %d threads, want %v and %d", name, got, p.Threads, tt.cores, tt.threads)
		}
	}
}

var twoSocketsRoot = twoSockets()

// Binding to NUMA nodes is refused on a machine without sysfs, as in some containers.
func TestNUMAWithoutSysfsIsRefused(t *testing.T) {
	r := Request{LocalWorldSize: 1, NUMA: "node", Lookup: lookup()}
	if p, err := NodeOf(upTo(4), fstest.MapFS{}).Assign(r); err == nil {
		t.Errorf("bound to %+v", p)
	}
}

// The number of a NUMA node is not an index: nodes without memory, or gaps, may come before it.
func TestNUMANodesMayHaveGaps(t *testing.T) {
	root := twoSockets()
	root["sys/devices/system/node/node8/cpulist"] = root["sys/devices/system/node/node1/cpulist"]
	delete(root, "sys/devices/system/node/node1/cpulist")
	root["sys/bus/pci/devices/0000:1b:00.0/numa_node"] = &fstest.MapFile{Data: []byte("8\n")}
	p, err := NodeOf(upTo(16), root).Assign(Request{LocalWorldSize: 2, NUMA: "node", Lookup: lookup("CUDA_VISIBLE_DEVICES=0,1")})
	if want := []int{4, 5, 6, 7, 12, 13, 14, 15}; err != nil || !slices.Equal(cores(p.Cores), want) {
		t.Errorf("%v, %v; want %v", p.Cores, err, want)
	}
}

// TestExclusiveWorkersShareNothing checks, for up to 16 workers, that workers with cores of their own do not share them.
func TestExclusiveWorkersShareNothing(t *testing.T) {
	for workers := 1; workers <= 16; workers++ {
		for _, kind := range []string{"exclusive", "core-complex"} {
			var taken unix.CPUSet
			for local := range workers {
				p, err := NodeOf(upTo(16),
					twoSocketsRoot).Assign(Request{LocalRank: local, LocalWorldSize: workers, NUMA: kind, Lookup: lookup()})
				if err != nil {
					t.Fatal(err)
				}
				for _, core := range cores(p.Cores) {
					if p.Own && taken.IsSet(core) {
						t.Errorf("%s: core %d is also that of worker %d of %d", kind, core, local, workers)
					}
					taken.Set(core)
				}
			}
		}
	}
}

func TestTooFewCoresAreWarnedOf(t *testing.T) {
	for _, tt := range []struct {
		r       Request
		granted int
		want    string
	}{
		{Request{LocalWorldSize: 4, Lookup: lookup("SLURM_STEP_ID=0")}, 1, "srun granted 1 core for 4 workers"},
		{Request{LocalWorldSize: 4, CPUsPerTask: 2, Lookup: lookup("SLURM_STEP_ID=0")}, 4,
			"asked for 2 cores a worker, and srun granted 4 for 4"},
		{Request{LocalWorldSize: 4, CPUsPerTask: 2, Lookup: lookup("SLURM_STEP_ID=0")}, 8, ""},
		{Request{LocalWorldSize: 4, Task: true, Lookup: lookup("SLURM_STEP_ID=0")}, 1, ""},
		{Request{LocalWorldSize: 4, Task: true, CPUsPerTask: 3, Lookup: lookup("SLURM_STEP_ID=0")}, 1, "granted 1 for 1"},
		{Request{LocalWorldSize: 4, Lookup: lookup()}, 1, ""},
		{Request{LocalWorldSize: 4, CPUsPerTask: 2, Pretend: true, Lookup: lookup("SLURM_STEP_ID=0")}, 1, ""},
	} {
		p, err := NodeOf(upTo(tt.granted), fstest.MapFS{}).Assign(tt.r)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(p.Warnings, "; "); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%+v: warnings %q, want %q", tt.r, got, tt.want)
		}
	}
}

// TestWarnsOfWhatIsTrue checks that a warning advises options of srun only if they would help: the machine must have more cores, and
// ddpbatch's own script must not have called srun.
func TestWarnsOfWhatIsTrue(t *testing.T) {
	step := lookup("SLURM_STEP_ID=0")
	for _, tt := range []struct {
		r       Request
		granted int
		online  string
		want    string
	}{
		{Request{LocalWorldSize: 1, CPUsPerTask: 4, Scripted: true, Lookup: step}, 2, "0-1",
			"asked for 4 cores a worker, and this machine has 2 for 1: ask for fewer"},
		{Request{LocalWorldSize: 2, CPUsPerTask: 4, Lookup: step}, 4, "0-3", "this machine has 4 for 2"},
		{Request{LocalWorldSize: 1, CPUsPerTask: 4, Scripted: true, Lookup: step}, 2, "0-7",
			"srun granted 2 for 1: the batch script asked for all"},
		{Request{LocalWorldSize: 1, CPUsPerTask: 4, Lookup: step}, 2, "0-7",
			"srun granted 2 for 1: pass --cpus-per-task to srun itself, and --cpu-bind=none"},
		{Request{LocalWorldSize: 2, Lookup: step}, 1, "0", ""},
		{Request{LocalWorldSize: 2, Lookup: step}, 1, "0-1", "srun granted 1 core for 2 workers: pass --cpus-per-task"},
	} {
		root := fstest.MapFS{"sys/devices/system/cpu/online": {Data: []byte(tt.online + "\n")}}
		p, err := NodeOf(upTo(tt.granted), root).Assign(tt.r)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(p.Warnings, "; ")
		if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") ||
			strings.Contains(got, "--cpu-bind") != strings.Contains(tt.want, "pass") {
			t.Errorf("%d of cores %s: warnings %q, want %q", tt.granted, tt.online, got, tt.want)
		}
	}
}

func TestThisMachineCanBeRead(t *testing.T) {
	node, err := This()
	if err != nil {
		t.Fatal(err)
	}
	if n := physical(node.granted, &node.machine); n < 1 || n > node.Cores() {
		t.Errorf("%d physical cores of %d", n, node.Cores())
	}
	p, err := node.Assign(Request{LocalWorldSize: 1, Lookup: lookup("CUDA_VISIBLE_DEVICES=")})
	if err != nil || p.Threads < 1 || p.Threads > node.Cores() {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestNoCoreIsReadWithoutSMT(t *testing.T) {
	root := twoSockets()
	root[cpus+"/smt/active"] = &fstest.MapFile{Data: []byte("0\n")}
	p, err := NodeOf(upTo(16), root).Assign(Request{LocalWorldSize: 1, Lookup: lookup()})
	if err != nil || p.Threads != 16 {
		t.Errorf("%+v, %v", p, err)
	}
}

func FuzzParseList(f *testing.F) {
	f.Add("0-3,8")
	f.Add("9-")
	f.Fuzz(func(t *testing.T, text string) {
		for _, core := range parseList(text) {
			if core < 0 || core > maxCore {
				t.Errorf("%q holds core %d", text, core)
			}
		}
	})
}

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// Report is what was found on the nodes of a job.
type Report struct {
	Nodes    []Node
	Pairs    []Pair // of Nodes, by their numbers
	Backend  string // what data goes through between nodes: mpi.Comm.Backend
	Findings []Finding
}

// judge makes the findings: first what all nodes have in common, and then what differs between nodes or is wrong.
func (r *Report) judge() {
	var f findings
	var wrong findings
	equal := wrong.differences(r.Nodes)
	hosts := r.hosts(func(Node) bool { return true })
	if len(r.Nodes) == 1 {
		f.ok("nodes", "%s: %s", hosts, equal)
	} else {
		f.ok("nodes", "%s, %s, with the same %s", text.Plural(len(r.Nodes), "node"), hosts, equal)
	}
	r.clocks(&f, &wrong)
	r.network(&f, &wrong)
	for _, n := range r.Nodes {
		wrong.node(n)
	}
	slices.SortStableFunc(wrong, func(a, b Finding) int {
		return strings.Compare(string(a.Level), string(b.Level)) // fail, warn
	})
	r.Findings = append(f, wrong...)
}

// hosts returns the nodes for which has is true, as a host list.
func (r *Report) hosts(has func(Node) bool) string {
	var names []string
	for _, n := range r.Nodes {
		if has(n) {
			names = append(names, n.Host)
		}
	}
	return slurm.FoldHostlist(names)
}

// property is what nodes of one job usually have in common.
type property struct {
	name string
	of   func(Node) string // "": the node has none
	do   string            // what to do if it differs
}

var properties = []property{
	{"ddpbatch", func(n Node) string { return n.Version }, "use one program on every node"},
	{"kernel", func(n Node) string { return n.Kernel }, "ask the administrators whether these nodes are up to date"},
	{"cores", func(n Node) string { return fmt.Sprint(n.Cores) },
		"the slowest node sets the pace; slurm.constraint or slurm.exclusive ask for equal nodes"},
	{"memory", func(n Node) string { return text.Bytes(n.Memory >> 30 << 30) }, "slurm.constraint asks for equal nodes"},
	{"GPUs", gpuNames, "slurm.constraint or slurm.gres ask for equal nodes"},
	{"driver", func(n Node) string {
		if len(n.GPUs) == 0 {
			return ""
		}
		return n.GPUs[0].Driver
	}, "ask the administrators whether these nodes are up to date"},
	{"networks", func(n Node) string { return strings.Join(n.Networks, ", ") },
		"ask the administrators whether a link came up too slow, or did not come up"},
	{"RDMA", func(n Node) string { return strings.Join(n.RDMA, ", ") },
		"ask the administrators whether a card or cable has failed (ibstat)"},
	{"open files", func(n Node) string { return limitText(n.OpenFiles) },
		"an administrator can set the same limits for slurmd on all nodes (ulimit -Hn)"},
	{"processes", func(n Node) string { return limitText(n.Processes) },
		"an administrator can set the same limits for slurmd on all nodes (ulimit -Hu)"},
	{"locked memory", func(n Node) string {
		if n.LockedMemory < 0 {
			return "unlimited"
		}
		return text.Bytes(uint64(n.LockedMemory))
	}, "an administrator can set the same limits for slurmd on all nodes (ulimit -Hl); RDMA needs a high one"},
	{"folder", func(n Node) string { return n.Folder.Type },
		"the nodes must see the same folder: set run_dir and workdir to one that they share"},
	{"time service", func(n Node) string { return n.Clock }, "ask the administrators whether it runs on all nodes (chronyc tracking)"},
}

func limitText(n int64) string {
	if n < 0 {
		return "unlimited"
	}
	return fmt.Sprint(n)
}

// gpuNames lists a node's GPUs: "4 x NVIDIA A100-SXM4-40GB".
func gpuNames(n Node) string {
	counts := map[string]int{}
	for _, g := range n.GPUs {
		counts[g.Name]++
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d x %s", counts[name], name))
	}
	return strings.Join(list, ", ")
}

// differences adds a finding for each property that differs between nodes, and returns those that are the same.
func (f *findings) differences(nodes []Node) (equal string) {
	var same []string
	for _, p := range properties {
		by := map[string][]string{}
		for _, n := range nodes {
			by[p.of(n)] = append(by[p.of(n)], n.Host)
		}
		values := slices.SortedFunc(maps.Keys(by), func(a, b string) int { // the most frequent first
			if d := len(by[b]) - len(by[a]); d != 0 {
				return d
			}
			return strings.Compare(a, b)
		})
		if len(values) == 1 {
			if values[0] != "" {
				same = append(same, fmt.Sprintf("%s (%s)", p.name, values[0]))
			}
			continue
		}
		const most = 4
		var list, odd []string
		for i, value := range values {
			if value == "" {
				value = "none"
			}
			if i < most {
				list = append(list, value+" on "+slurm.FoldHostlist(by[values[i]]))
			}
			if i > 0 {
				odd = append(odd, by[values[i]]...)
			}
		}
		if n := len(values) - most; n > 0 {
			list = append(list, fmt.Sprintf("and %d more", n))
		}
		f.warn(p.name, p.do, "%s", strings.Join(list, ", "))
		(*f)[len(*f)-1].Nodes = slurm.FoldHostlist(odd)
	}
	return strings.Join(same, ", ")
}

const (
	leastFolder  = 1 << 30 // bytes
	mostGPUInUse = 1 << 30 // bytes; more in use before the job begins is a fault
	hotGPU       = 85      // degrees Celsius of an idle GPU
)

const shareFolder = "call this in a folder that all nodes share, and set run_dir and workdir to such a folder"

// node adds a finding for everything that is wrong with one node.
func (f *findings) node(n Node) {
	before := len(*f)
	for _, p := range n.Problems {
		level := Warn
		if p.Fatal {
			level = Fail
		}
		f.add(level, p.Check, "", "%s", p.Text)
	}
	for _, said := range n.GPUError {
		f.fail("gpu", "an administrator should drain the node; launch.check = [\"nvidia-smi\"] keeps runs off it",
			"a GPU does not answer: %s",
			said)
	}
	for _, g := range n.GPUs {
		if g.Uncorrected > 0 {
			f.fail("gpu", "an administrator should reset or replace it", "the memory of GPU %d has had %s that could not be corrected",
				g.Index,
				text.Plural(g.Uncorrected, "error"))
		}
		if g.MemoryUsed > mostGPUInUse {
			f.warn("gpu", "an administrator can end processes that a finished job has left (nvidia-smi, fuser /dev/nvidia*)",
				"other processes use %s of the %s of GPU %d",
				text.Bytes(uint64(g.MemoryUsed)), text.Bytes(uint64(g.Memory)), g.Index)
		}
		if g.Celsius >= hotGPU {
			f.warn("gpu", "an administrator should check its cooling", "GPU %d is %d degrees hot, and slows down", g.Index, g.Celsius)
		}
	}
	switch d := n.Folder; {
	case d.Error != "":
		f.fail("folder", shareFolder, "cannot write a file in %s: %s", d.Path, d.Error)
	case !n.FolderShared:
		f.fail("folder", shareFolder, "%s is not the folder that the first node sees by that path (a file made there is not here)", d.Path)
	case d.Free < leastFolder:
		f.warn("folder", "free some space", "%s has only %s free", d.Path, text.Bytes(d.Free))
	}
	if n.MemoryFree > 0 && n.MemoryFree < n.Memory/2 {
		f.warn("memory", "check who else uses the node (slurm.exclusive asks for whole nodes)", "only %s of %s are free",
			text.Bytes(n.MemoryFree), text.Bytes(n.Memory))
	}
	if len(n.Unresolved) > 0 {
		f.warn("names", "start with srun --mpi=pmi2, which does not use names, or ask an administrator to correct /etc/hosts or the "+
			"name service", "names of nodes cannot be resolved: %s", text.Few(n.Unresolved, 4))
	}
	for i := range (*f)[before:] {
		(*f)[before+i].Nodes = n.Host
	}
}

// How far clocks may differ. Slurm's munge tolerates five minutes; of two files that are changed within a second, their times decide which
// is newer.
const (
	clockWarn = time.Second
	clockFail = 2 * time.Minute
)

func (r *Report) clocks(f, wrong *findings) {
	if len(r.Nodes) < 2 {
		return
	}
	most := time.Duration(0)
	for _, n := range r.Nodes {
		ahead := time.Duration(n.ClockAheadS * float64(time.Second))
		most = max(most, ahead.Abs())
		level := Warn
		switch {
		case ahead.Abs() < clockWarn:
			continue
		case ahead.Abs() >= clockFail:
			level = Fail
		}
		way := "ahead of"
		if ahead < 0 {
			way = "behind"
		}
		wrong.add(level, "clocks", "an administrator should check its time service", "its clock is %v %s that of %s",
			ahead.Abs().Round(time.Millisecond), way, r.Nodes[0].Host)
		(*wrong)[len(*wrong)-1].Nodes = n.Host
	}
	f.ok("clocks", "at most %v from that of %s", most.Round(time.Microsecond), r.Nodes[0].Host)
}

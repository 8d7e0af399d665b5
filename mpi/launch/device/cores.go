package device

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cores lists a mask's cores in ascending order.
func cores(mask *unix.CPUSet) []int {
	list := make([]int, 0, mask.Count())
	for core := 0; len(list) < cap(list); core++ {
		if mask.IsSet(core) {
			list = append(list, core)
		}
	}
	return list
}

func maskOf(list []int) *unix.CPUSet {
	mask := new(unix.CPUSet)
	for _, core := range list {
		mask.Set(core)
	}
	return mask
}

// bind plans which cores the worker is bound to. A user's command keeps all of the agent's cores, unless the user asks for a
// binding: it may do its own.
func (r Request) bind(p *Share, granted []int, gpus []string, m *machine) error {
	if r.NUMA != "" {
		return r.bindNUMA(p, granted, gpus, m)
	}
	if !r.Builtin {
		return nil
	}
	if r.boundBySrun(len(granted)) {
		p.Cores, p.Own = maskOf(granted), true
		return nil
	}
	if part := portion(granted, r.LocalRank, r.LocalWorldSize); part != nil {
		p.Cores, p.Own = maskOf(part), true
	}
	return nil
}

// portion is part i of n of a list of cores. The first parts may have one core more than the rest. It is nil if there are too few cores.
func portion(list []int, i, n int) []int {
	if n > len(list) || i >= n {
		return nil
	}
	size, longer := len(list)/n, len(list)%n
	from := i*size + min(i, longer)
	to := from + size
	if i < longer {
		to++
	}
	return list[from:to]
}

// bindNUMA binds as torchrun's --numa-binding does, near the worker's GPU. If the worker has no GPU, or its location is not known,
// workers are spread over the groups of cores in blocks.
func (r Request) bindNUMA(p *Share, granted []int, gpus []string, m *machine) error {
	groups := within(m.groups(r.NUMA), granted)
	if len(groups) == 0 {
		return fmt.Errorf("bind workers by %s: this machine does not report which cores belong together, "+
			"or none of them may be used here; leave --numa-binding out", r.NUMA)
	}
	group := r.groupOf(r.LocalRank, gpus, groups, m)
	if group < 0 {
		return fmt.Errorf("bind worker %d by %s: no core near its GPU was granted to this step; ask Slurm for whole nodes (exclusive), "+
			"or leave --numa-binding out", r.LocalRank, r.NUMA)
	}
	chosen := groups[group]
	if r.NUMA == "exclusive" || r.NUMA == "core-complex" {
		among, place := 0, 0
		for local := range r.LocalWorldSize {
			if r.groupOf(local, gpus, groups, m) != group {
				continue
			}
			if local < r.LocalRank {
				place++
			}
			among++
		}
		if part := portion(chosen, place, among); part != nil {
			chosen, p.Own = part, true
		}
	}
	p.Cores = maskOf(chosen)
	return nil
}

// groupOf is the index of the group that a worker is bound to, or -1 if its GPU is near none of them.
func (r Request) groupOf(local int, gpus []string, groups [][]int, m *machine) int {
	if near := m.node(r.numaNode(local, gpus, m)); len(near) > 0 {
		return slices.IndexFunc(groups, func(g []int) bool { return overlaps(g, near) })
	}
	return local * len(groups) / r.LocalWorldSize
}

// numaNode is the number of the NUMA node of a worker's GPU, or -1 if it is not known. A task of srun does not know other tasks' GPUs.
func (r Request) numaNode(local int, gpus []string, m *machine) int {
	if len(gpus) == 0 || r.Task {
		return -1
	}
	return numaOf(m.root, r.minors(gpus)[local%len(gpus)])
}

// within reduces each group to its granted cores, and drops groups without any.
func within(groups [][]int, granted []int) (left [][]int) {
	for _, group := range groups {
		part := slices.DeleteFunc(slices.Clone(group), func(core int) bool { return !slices.Contains(granted, core) })
		if len(part) > 0 {
			left = append(left, part)
		}
	}
	return left
}

func overlaps(a, b []int) bool {
	return slices.ContainsFunc(a, func(core int) bool { return slices.Contains(b, core) })
}

// machine is the topology of this computer's cores. Each part is read when it is first needed, as that takes a file for each core.
// A part that the computer does not report is empty.
type machine struct {
	root fs.FS
	sets map[string][][]int // by the name of a file that every core has
}

const cpus = "sys/devices/system/cpu"

// nodes lists the cores of each NUMA node (sysfs-devices-system-node).
func (m *machine) nodes() (nodes [][]int) {
	folders, _ := fs.Glob(m.root, "sys/devices/system/node/node[0-9]*")
	slices.SortFunc(folders, byNumber)
	for _, folder := range folders {
		nodes = append(nodes, readList(m.root, folder+"/cpulist"))
	}
	return nodes
}

// node lists the cores of the NUMA node with the given number, or none if it does not exist. Numbers may have gaps.
func (m *machine) node(number int) []int {
	if number < 0 {
		return nil
	}
	return readList(m.root, "sys/devices/system/node/node"+strconv.Itoa(number)+"/cpulist")
}

// online lists the machine's cores that are online, whichever processes may use them (sysfs-devices-system-cpu).
func (m *machine) online() []int { return readList(m.root, cpus+"/online") }

// siblings lists the hardware threads of each physical core (sysfs-devices-system-cpu, topology). It is empty if each has one thread.
func (m *machine) siblings() [][]int {
	if active, err := fs.ReadFile(m.root, cpus+"/smt/active"); err == nil && strings.TrimSpace(string(active)) == "0" {
		return nil
	}
	return m.read("topology/thread_siblings_list")
}

// groups are the sets of cores that one kind of binding chooses among.
func (m *machine) groups(kind string) [][]int {
	switch kind {
	case "socket":
		return m.read("topology/package_cpus_list")
	case "core-complex":
		return m.read("cache/index3/shared_cpu_list")
	}
	return m.nodes()
}

func (m *machine) read(name string) [][]int {
	sets, ok := m.sets[name]
	if !ok {
		sets = readSets(m.root, name)
		if m.sets == nil {
			m.sets = make(map[string][][]int)
		}
		m.sets[name] = sets
	}
	return sets
}

// readSets reads each core's file of the given name, a list of cores. It returns every set once, in the order of their first cores.
func readSets(root fs.FS, name string) (sets [][]int) {
	folders, _ := fs.Glob(root, cpus+"/cpu[0-9]*")
	slices.SortFunc(folders, byNumber)
	seen := make(map[int]bool)
	for _, folder := range folders {
		list := readList(root, folder+"/"+name)
		if len(list) == 0 || seen[list[0]] {
			continue
		}
		seen[list[0]] = true
		sets = append(sets, list)
	}
	return sets
}

// byNumber compares paths by the numbers at their ends: node10 comes after node9.
func byNumber(a, b string) int { return trailing(a) - trailing(b) }

func trailing(p string) int {
	n, err := strconv.Atoi(strings.TrimLeft(path.Base(p), "abcdefghijklmnopqrstuvwxyz"))
	if err != nil {
		return -1
	}
	return n
}

func readList(root fs.FS, name string) []int {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return nil
	}
	return parseList(strings.TrimSpace(string(text)))
}

// maxCore is the highest core that a CPUSet of the kernel's default size holds (CPU_SET(3)).
const maxCore = 1023

// parseList parses a list such as "0-3,8" (cpuset(7), "List format"), and returns nil for anything else.
func parseList(text string) []int {
	var list []int
	for word := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(word, "-")
		first, err := strconv.Atoi(low)
		last := first
		if isRange && err == nil {
			last, err = strconv.Atoi(high)
		}
		if err != nil || first < 0 || last < first || last > maxCore {
			return nil
		}
		for core := first; core <= last; core++ {
			list = append(list, core)
		}
	}
	return list
}

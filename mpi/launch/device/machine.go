package device

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// machine is how the cores of this computer lie together. Each part is read when it is first asked for, as that takes a file for each core;
// what the computer does not tell is empty.
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

// node lists the cores of one NUMA node by its number, which may have gaps before it; none where there is no such node.
func (m *machine) node(number int) []int {
	if number < 0 {
		return nil
	}
	return readList(m.root, "sys/devices/system/node/node"+strconv.Itoa(number)+"/cpulist")
}

// online lists the cores that the machine runs, whoever may use them (sysfs-devices-system-cpu).
func (m *machine) online() []int { return readList(m.root, cpus+"/online") }

// siblings lists the hardware threads of each physical core (sysfs-devices-system-cpu, topology); empty where each has one.
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

// readSets reads the list of cores that each core has under a name; every set once, in the order of their first cores.
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

// maxCore is the most that a CPUSet of the kernel's default size holds (CPU_SET(3)).
const maxCore = 1023

// parseList reads "0-3,8" (cpuset(7), "List format"); nil where it is anything else.
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

package launch

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// cores counts those that this process, and so a worker, may run on
// (sched_getaffinity(2)).
func cores() int {
	var mask unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mask); err != nil {
		return runtime.NumCPU() // a machine with more cores than the mask has bits
	}
	return max(1, mask.Count())
}

// coresOf is the share of the cores of this process that are the worker's own; nil where there are fewer cores than workers, or
// where the command is the user's, who may have plans of his own for them.
func (c AgentConfig) coresOf(p Place) *unix.CPUSet {
	var mask unix.CPUSet
	if !c.Builtin || unix.SchedGetaffinity(0, &mask) != nil {
		return nil
	}
	return share(&mask, p.LocalRank, p.LocalWorldSize)
}

// share is part i of n of a set of cores, the first ones longer than the rest by one at most; nil where there are not enough.
func share(mask *unix.CPUSet, i, n int) *unix.CPUSet {
	all := make([]int, 0, mask.Count())
	for core := 0; len(all) < cap(all); core++ {
		if mask.IsSet(core) {
			all = append(all, core)
		}
	}
	if n > len(all) || i >= n {
		return nil
	}
	size, longer := len(all)/n, len(all)%n
	from := i*size + min(i, longer)
	to := from + size
	if i < longer {
		to++
	}
	var part unix.CPUSet
	for _, core := range all[from:to] {
		part.Set(core)
	}
	return &part
}

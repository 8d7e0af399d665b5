package slurm

import (
	"strconv"
	"strings"
)

// inGroup tells whether an element of an array is among those that Slurm shows as one group:
// "[0,3,6-9,20-40:5%2]", where %2 is how many may run at once. Slurm cuts long groups
// short, with three dots ("[1-3,5...%2]") or, in squeue's narrow columns, in the middle of a
// number ("[1-3,5,1"); an element may then be in what is not shown, so it counts as in.
func inGroup(element, group string) bool {
	list, bracket := strings.CutPrefix(group, "[")
	if !bracket {
		return group == element
	}
	list, whole := strings.CutSuffix(list, "]")
	list, _, _ = strings.Cut(list, "%")
	if !whole || strings.HasSuffix(list, "...") {
		return true
	}
	n, err := strconv.ParseUint(element, 10, 32)
	if err != nil {
		return false
	}
	for item := range strings.SplitSeq(list, ",") {
		if inSpan(n, item) {
			return true
		}
	}
	return false
}

// inSpan tells whether n is in "7", "3-6" or "20-40:5".
func inSpan(n uint64, item string) bool {
	bounds, step, hasStep := strings.Cut(item, ":")
	low, high, isRange := strings.Cut(bounds, "-")
	if !isRange {
		high = low
	}
	if !hasStep {
		step = "1"
	}
	lo, err1 := strconv.ParseUint(low, 10, 32)
	hi, err2 := strconv.ParseUint(high, 10, 32)
	by, err3 := strconv.ParseUint(step, 10, 32)
	if err1 != nil || err2 != nil || err3 != nil || by == 0 {
		return false
	}
	return lo <= n && n <= hi && (n-lo)%by == 0
}

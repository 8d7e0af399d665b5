package slurm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxCount is the largest count of one node; Slurm keeps them in 16 bits.
const maxCount = 1<<16 - 1

// ParseTaskCounts reads the run-length form that Slurm gives one number per node in, such as
// SLURM_STEP_TASKS_PER_NODE or SLURM_JOB_CPUS_PER_NODE: "2(x3),1" is 2, 2, 2, 1, in node order.
// More than maxNodes or [MaxNodes] numbers are an error, found before memory is taken for them.
func ParseTaskCounts(s string, maxNodes int) ([]int, error) {
	limit := min(maxNodes, MaxNodes)
	var counts []int
	for item := range strings.SplitSeq(s, ",") {
		count, times, err := parseCount(item)
		if err != nil {
			return nil, fmt.Errorf("counts %s: %w", clip(s), err)
		}
		if times > limit-len(counts) {
			return nil, fmt.Errorf("counts %s: for more than the %d nodes allowed here", clip(s), limit)
		}
		for range times {
			counts = append(counts, count)
		}
	}
	return counts, nil
}

// parseCount reads "2" or "2(x3)".
func parseCount(item string) (count, times int, err error) {
	number, repeat, repeated := strings.Cut(item, "(x")
	if repeated {
		digits, closed := strings.CutSuffix(repeat, ")")
		if !closed {
			return 0, 0, fmt.Errorf("%s has no closing bracket; write 2(x3)", clip(item))
		}
		if times, err = parseInt(digits); err != nil {
			return 0, 0, err
		}
		if times == 0 {
			return 0, 0, fmt.Errorf("%s repeats no times", clip(item))
		}
	} else {
		times = 1
	}
	if count, err = parseInt(number); err != nil {
		return 0, 0, err
	}
	if count > maxCount {
		return 0, 0, fmt.Errorf("%d on one node, more than the %d that Slurm can count", count, maxCount)
	}
	return count, times, nil
}

// FormatTaskCounts writes one number per node as Slurm does: 2, 2, 2, 1 is "2(x3),1".
func FormatTaskCounts(counts []int) string {
	var b strings.Builder
	for i := 0; i < len(counts); {
		next := i + 1
		for next < len(counts) && counts[next] == counts[i] {
			next++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(counts[i]))
		if next-i > 1 {
			fmt.Fprintf(&b, "(x%d)", next-i)
		}
		i = next
	}
	return b.String()
}

// parseInt reads decimal digits, without a sign, up to 31 bits.
func parseInt(digits string) (int, error) {
	n, err := strconv.ParseUint(digits, 10, 31)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is too large a number", clip(digits))
	case err != nil:
		return 0, fmt.Errorf("%s is not a number", clip(digits))
	}
	return int(n), nil
}

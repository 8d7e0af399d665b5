package command

import (
	"slices"
	"strconv"
	"strings"
)

// Peers reads a list of those to run beside ddpbatch: known words, or none.
func Peers(list string, known []string) ([]string, error) {
	if list == "none" {
		return nil, nil
	}
	return Words("peers", list, known)
}

// Words reads a list of known words, or all. They may be written with _ or -, as other libraries do.
func Words(flag, list string, known []string) ([]string, error) {
	if list == "all" {
		return known, nil
	}
	var out []string
	for word := range strings.SplitSeq(list, ",") {
		word = strings.NewReplacer("_", "", "-", "").Replace(strings.TrimSpace(word))
		if !slices.Contains(known, word) {
			return nil, Usagef("-%s: there is no %q; it is one of %s", flag, word, strings.Join(known, ", "))
		}
		if !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	return out, nil
}

// Numbers reads a list of numbers from low to high.
func Numbers(flag, list string, low, high int) ([]int, error) {
	var out []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < low || n > high {
			return nil, Usagef("-%s: %q is no number from %d to %d", flag, word, low, high)
		}
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out, nil
}

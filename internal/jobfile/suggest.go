package jobfile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"ddpbatch/slurm"
)

// unknown says that the last name of key is no key of table n, and what may have been meant.
func unknown(n *node, key toml.Key, v any) string {
	table, name := key[:len(key)-1], key[len(key)-1]
	what := "key " + key.String()
	if _, isTable := v.(map[string]any); isTable {
		what = "table [" + key.String() + "]"
	}
	var advice error
	if n.advise != nil {
		advice = n.advise(name)
	}
	if advice != nil && !errors.Is(advice, slurm.ErrUnknownOption) {
		return advice.Error()
	}
	if near := Nearest(name, slices.Sorted(maps.Keys(n.keys))); near != "" {
		return fmt.Sprintf("unknown %s: did you mean %s?", what, n.keys[near].show(below(table, near)))
	}
	if home, elsewhere := schema().find(name); elsewhere != nil {
		return fmt.Sprintf("unknown %s: did you mean %s?", what, elsewhere.show(home))
	}
	if advice != nil {
		return advice.Error()
	}
	return fmt.Sprintf("unknown %s; known here: %s", what, strings.Join(slices.Sorted(maps.Keys(n.keys)), ", "))
}

// Nearest returns the name that takes the fewest edits to get from the given one, the first of
// several; empty where none is near enough to be meant.
func Nearest(name string, names []string) string {
	best, limit := "", max(2, len(name)/3)+1
	for _, candidate := range names {
		if d := distance(name, candidate); d < limit && d < min(len(name), len(candidate)) {
			best, limit = candidate, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two names, in bytes: the fewest insertions, removals and
// replacements that make one the other.
func distance(a, b string) int {
	const tooLong = 64 // no key is that long
	if len(a) > tooLong || len(b) > tooLong {
		return max(len(a), len(b))
	}
	row := make([]int, len(b)+1) // from the first i bytes of a to the first j of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

package output

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxRank bounds what is taken for a rank; more is a slip of the pen.
const maxRank = 1<<20 - 1

// ParseMap reads the value of torchrun's --redirects and --tee: one mode for all local ranks ("3"), or one for each that
// has any ("0:3,12:1"); ranks that are left out have none. A rank that is named twice has its last mode. Modes: 0 none,
// 1 standard output, 2 standard error, 3 both.
func ParseMap(s string) (Map, error) {
	if !strings.Contains(s, ":") {
		mode, err := parseMode(s)
		if err != nil {
			return Map{}, fmt.Errorf("%q: %w", s, err)
		}
		return Map{All: mode}, nil
	}
	m := Map{Ranks: map[int]Mode{}}
	for _, pair := range strings.Split(s, ",") {
		rank, mode, ok := strings.Cut(pair, ":")
		if !ok {
			return Map{}, fmt.Errorf("%q: %q is not RANK:MODE, as in 0:3,1:1", s, pair)
		}
		r, err := parseRank(rank)
		if err != nil {
			return Map{}, fmt.Errorf("%q: %w", s, err)
		}
		if m.Ranks[r], err = parseMode(mode); err != nil {
			return Map{}, fmt.Errorf("%q: %w", s, err)
		}
	}
	return m, nil
}

// Named are the local ranks that the map names one by one, in ascending order; none where one mode is for all.
func (m Map) Named() []int { return slices.Sorted(maps.Keys(m.Ranks)) }

func parseMode(s string) (Mode, error) {
	if len(s) != 1 || s[0] < '0' || s[0] > '3' {
		return None, fmt.Errorf("%q is no mode: 0 (none), 1 (standard output), 2 (standard error) or 3 (both)", s)
	}
	return Mode(s[0] - '0'), nil
}

func parseRank(s string) (int, error) {
	for _, r := range s {
		if r < '0' || r > '9' { // no sign, no space: Atoi takes a sign
			return 0, notRank(s)
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > maxRank {
		return 0, notRank(s)
	}
	return n, nil
}

func notRank(s string) error { return fmt.Errorf("%q is no rank: a number from 0 to %d", s, maxRank) }

package output

import (
	"fmt"
	"slices"
	"strings"
)

// ParseRanks reads ranks as torchrun's --local-ranks-filter has them ("0,3"), and ranges ("8-11", both included). The
// ranks come back in ascending order, each once; there are none in "", which means all of them to those who ask.
func ParseRanks(s string) ([]int, error) {
	if s == "" {
		return nil, nil
	}
	seen := map[int]bool{}
	named := 0
	for _, part := range strings.Split(s, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		first, err := parseRank(low)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", s, err)
		}
		last := first
		if isRange {
			if last, err = parseRank(high); err != nil {
				return nil, fmt.Errorf("%q: %w", s, err)
			}
		}
		if last < first {
			return nil, fmt.Errorf("%q: the range %s ends before it begins", s, strings.TrimSpace(part))
		}
		if named += last - first + 1; named > maxRank+1 {
			return nil, fmt.Errorf("%q names more ranks than there can be (%d)", s, maxRank+1)
		}
		for rank := first; rank <= last; rank++ {
			seen[rank] = true
		}
	}
	ranks := make([]int, 0, len(seen))
	for rank := range seen {
		ranks = append(ranks, rank)
	}
	slices.Sort(ranks)
	return ranks, nil
}

package model

import (
	"fmt"
	"strings"

	"ddpbatch/mpi/internal/algorithm"
)

// Named finds the entry that a user asks for. Where it may not be used, the error says why, and what may.
func Named[F any](entries []algorithm.Entry[F], name string, size int, canonicalOnly bool) (algorithm.Entry[F], error) {
	for i := range entries {
		e := &entries[i].Traits
		if e.Name != name {
			continue
		}
		if why := refusal(e, size, canonicalOnly); why != "" {
			return algorithm.Entry[F]{}, fmt.Errorf("algorithm %q %s; possible here: %s", name, why, possible(entries, size, canonicalOnly))
		}
		return entries[i], nil
	}
	return algorithm.Entry[F]{}, fmt.Errorf("algorithm %q is not one of this collective's; possible here: %s", name, possible(entries, size, canonicalOnly))
}

// refusal is why the entry may not be used, or nothing.
func refusal(e *algorithm.Traits, size int, canonicalOnly bool) string {
	switch {
	case !fits(e, size):
		return fmt.Sprintf("does not work for %d ranks", size)
	case canonicalOnly && !e.Canonical:
		return "does not combine in canonical order: it needs deterministic = false, and an operation that commutes"
	}
	return ""
}

func possible[F any](entries []algorithm.Entry[F], size int, canonicalOnly bool) string {
	var names []string
	for i := range entries {
		if refusal(&entries[i].Traits, size, canonicalOnly) == "" {
			names = append(names, entries[i].Name)
		}
	}
	return strings.Join(names, ", ")
}

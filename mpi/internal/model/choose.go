package model

import (
	"fmt"
	"math"
	"strings"

	"ddpbatch/mpi/internal/algorithm"
)

// Choose returns the entry with the least cost for size ranks and a buffer of n bytes (see [algorithm.Entry]), among those that fit
// and, with canonicalOnly, keep the canonical order. Of equal ones it returns the first. It does not allocate. Every table has such
// an entry; without one, Choose returns the zero Entry.
func Choose[F any](entries []algorithm.Entry[F], m algorithm.Machine, size, n int, canonicalOnly bool) algorithm.Entry[F] {
	best, least := -1, math.Inf(1)
	for i := range entries {
		e := &entries[i].Traits
		if !fits(e, size) || canonicalOnly && !e.Canonical {
			continue
		}
		if cost := costOf(e, m, size, n); best < 0 || beats(cost, least) {
			best, least = i, cost
		}
	}
	if best < 0 {
		return algorithm.Entry[F]{}
	}
	return entries[best]
}

// Named returns the entry that a user asks for. If it may not be used, the error says why, and which entries may.
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
	return algorithm.Entry[F]{}, fmt.Errorf("algorithm %q is not one of this collective's; possible here: %s", name,
		possible(entries, size, canonicalOnly))
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

// Prediction is the model's prediction for one algorithm.
type Prediction struct {
	Name    string
	Seconds float64 // 0 if it does not work for this number of ranks
	Refusal string  // why it may not be chosen; "": it may
	Chosen  bool    // Choose returns it
}

// Predict explains a choice: it returns a prediction for every algorithm, in the same order.
func Predict(all []algorithm.Traits, m algorithm.Machine, size, n int, canonicalOnly bool) []Prediction {
	predictions := make([]Prediction, len(all))
	best := -1
	for i := range all {
		e := &all[i]
		predictions[i] = Prediction{Name: e.Name, Refusal: refusal(e, size, canonicalOnly)}
		if fits(e, size) {
			predictions[i].Seconds = costOf(e, m, size, n)
		}
		if predictions[i].Refusal == "" && (best < 0 || beats(predictions[i].Seconds, predictions[best].Seconds)) {
			best = i
		}
	}
	if best >= 0 {
		predictions[best].Chosen = true
	}
	return predictions
}

// refusal is why the entry may not be used, or "".
func refusal(e *algorithm.Traits, size int, canonicalOnly bool) string {
	switch {
	case !fits(e, size):
		return fmt.Sprintf("does not work for %d ranks", size)
	case canonicalOnly && !e.Canonical:
		return "does not combine in canonical order: it needs deterministic = false, and an operation that commutes"
	}
	return ""
}

func fits(e *algorithm.Traits, size int) bool { return e.Fits == nil || e.Fits(size) }

// costOf is 0 for one rank. It is infinite if the formula's result cannot be a time, so that costs can be compared.
func costOf(e *algorithm.Traits, m algorithm.Machine, size, n int) float64 {
	if size == 1 {
		return 0
	}
	if cost := e.Cost(m, size, n); cost >= 0 {
		return cost
	}
	return math.Inf(1)
}

// margin is the relative amount by which a cost must be lower to count as lower. Costs that are equal on paper may differ in
// floating point, and a sum may differ between processors that fuse it with a product and those that do not.
const margin = 1e-9

// beats reports whether a cost is lower than the least so far.
func beats(cost, least float64) bool { return cost < least*(1-margin) }

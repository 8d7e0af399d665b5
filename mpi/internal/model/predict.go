package model

import "ddpbatch/mpi/internal/algorithm"

// Prediction is what the model says of one algorithm.
type Prediction struct {
	Name    string
	Seconds float64 // 0 if it does not work for this number of ranks
	Refusal string  // why it may not be chosen; empty: it may
}

// Predict explains a choice: a prediction for every entry, in the order of the table.
func Predict[F any](entries []algorithm.Entry[F], m algorithm.Machine, size, n int, canonicalOnly bool) []Prediction {
	predictions := make([]Prediction, len(entries))
	for i := range entries {
		e := &entries[i]
		predictions[i] = Prediction{Name: e.Name, Refusal: refusal(e, size, canonicalOnly)}
		if fits(e, size) {
			predictions[i].Seconds = costOf(e, m, size, n)
		}
	}
	return predictions
}

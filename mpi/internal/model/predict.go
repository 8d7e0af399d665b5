package model

import "ddpbatch/mpi/internal/algorithm"

// Prediction is what the model says of one algorithm.
type Prediction struct {
	Name    string
	Seconds float64 // 0 if it does not work for this number of ranks
	Refusal string  // why it may not be chosen; empty: it may
	Chosen  bool    // Choose takes it
}

// Predict explains a choice: a prediction for every algorithm, in their order.
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

package stats

import (
	"encoding/json"
	"math"
	"slices"
)

// Number is a float64 that may be missing: NaN, null in JSON.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// Samples are the results of launches, in order; NaN if a launch has none.
type Samples []float64

// MarshalJSON implements json.Marshaler.
func (s Samples) MarshalJSON() ([]byte, error) {
	numbers := make([]Number, len(s))
	for i, x := range s {
		numbers[i] = Number(x)
	}
	return json.Marshal(numbers)
}

// Sorted returns the samples that are not missing, sorted.
func (s Samples) Sorted() Samples {
	there := slices.DeleteFunc(slices.Clone(s), math.IsNaN)
	slices.Sort(there)
	return there
}

// Median returns the median, or NaN if there are no samples.
func (s Samples) Median() float64 {
	x := s.Sorted()
	if len(x) == 0 {
		return math.NaN()
	}
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// Interval is an interval that contains the median of all possible launches.
type Interval struct {
	Low      Number `json:"low"`
	High     Number `json:"high"`
	Coverage Number `json:"coverage"` // the probability that it does; below 0.95 for fewer than 6 samples
}

// Interval returns the narrowest pair of order statistics that contains the median with a probability of 95 %, for any distribution (the
// inverted sign test: Conover, Practical Nonparametric Statistics, 3.2).
func (s Samples) Interval() Interval {
	x := s.Sorted()
	n := len(x)
	if n == 0 {
		return Interval{Number(math.NaN()), Number(math.NaN()), 0}
	}
	k := 0
	for k+1 < (n+1)/2 && coverage(n, k+1) >= 0.95 {
		k++
	}
	return Interval{Number(x[k]), Number(x[n-1-k]), Number(coverage(n, k))}
}

// coverage returns the probability that the median is between the samples of rank k and n-1-k, counted from 0: that is, that neither k or
// fewer samples are below it nor k or fewer above.
func coverage(n, k int) float64 {
	chance := math.Pow(0.5, float64(n)) // that none is below
	outside := 0.0
	for i := range k + 1 {
		outside += 2 * chance
		chance *= float64(n-i) / float64(i+1)
	}
	return 1 - outside
}

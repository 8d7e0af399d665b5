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

// Samples are what launches gave, in their order; NaN where one gave nothing.
type Samples []float64

// MarshalJSON implements json.Marshaler.
func (s Samples) MarshalJSON() ([]byte, error) {
	numbers := make([]Number, len(s))
	for i, x := range s {
		numbers[i] = Number(x)
	}
	return json.Marshal(numbers)
}

// Sorted are those that are there.
func (s Samples) Sorted() Samples {
	there := slices.DeleteFunc(slices.Clone(s), math.IsNaN)
	slices.Sort(there)
	return there
}

// Median is NaN where there is none.
func (s Samples) Median() float64 {
	x := s.Sorted()
	if len(x) == 0 {
		return math.NaN()
	}
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// Interval is where the median lies of all launches there could be.
type Interval struct {
	Low      Number `json:"low"`
	High     Number `json:"high"`
	Coverage Number `json:"coverage"` // the chance that it does; below 0.95 where there are fewer than 6 samples
}

// Interval is the narrowest pair of order statistics that covers the median with a chance of 95 %, whatever the
// distribution (the sign test turned round: Conover, Practical Nonparametric Statistics, 3.2).
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

// coverage is the chance that the median lies between the samples of rank k and n-1-k, counted from 0:
// that neither k or fewer samples fall below it nor k or fewer above.
func coverage(n, k int) float64 {
	chance := math.Pow(0.5, float64(n)) // of none below
	outside := 0.0
	for i := range k + 1 {
		outside += 2 * chance
		chance *= float64(n-i) / float64(i+1)
	}
	return 1 - outside
}

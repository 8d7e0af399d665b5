package main

import (
	"encoding/json"
	"math"
	"slices"
)

// number is a float64 that may be missing: NaN, null in JSON.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// samples are what launches gave, in their order; NaN where one gave nothing.
type samples []float64

// MarshalJSON implements json.Marshaler.
func (s samples) MarshalJSON() ([]byte, error) {
	numbers := make([]number, len(s))
	for i, x := range s {
		numbers[i] = number(x)
	}
	return json.Marshal(numbers)
}

// sorted are those that are there.
func (s samples) sorted() samples {
	there := slices.DeleteFunc(slices.Clone(s), math.IsNaN)
	slices.Sort(there)
	return there
}

// median is NaN where there is none.
func (s samples) median() float64 {
	x := s.sorted()
	if len(x) == 0 {
		return math.NaN()
	}
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// interval is where the median lies of all launches there could be.
type interval struct {
	Low      number `json:"low"`
	High     number `json:"high"`
	Coverage number `json:"coverage"` // the chance that it does; below 0.95 where there are fewer than 6 samples
}

// interval is the narrowest pair of order statistics that covers the median with a chance of 95 %, whatever the
// distribution (the sign test turned round: Conover, Practical Nonparametric Statistics, 3.2).
func (s samples) interval() interval {
	x := s.sorted()
	n := len(x)
	if n == 0 {
		return interval{number(math.NaN()), number(math.NaN()), 0}
	}
	k := 0
	for k+1 < (n+1)/2 && coverage(n, k+1) >= 0.95 {
		k++
	}
	return interval{number(x[k]), number(x[n-1-k]), number(coverage(n, k))}
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

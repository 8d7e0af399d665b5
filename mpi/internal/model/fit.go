package model

import (
	"math"
	"slices"

	"ddpbatch/mpi/internal/algorithm"
)

// Lengths are those, in bytes, that messages and reductions are timed with. A byte of a buffer that fits in a core's cache takes less time
// than one of a buffer that does not; the longest is to fit in no cache of a core.
var Lengths = [...]int{8, 4 << 10, 64 << 10, 512 << 10, 16 << 20}

// Times are the seconds that something takes for each of Lengths: none below 0, and none shorter than that of a shorter length.
type Times [len(Lengths)]float64

// Costs are the times of what collectives are made of, on two ranks.
type Costs struct {
	Message   Times // of one that gets an empty answer
	Exchange  Times // of two messages, which both ranks begin at once
	Reduction Times // of so many bytes with as many
}

// At is the machine that a collective with a buffer of n bytes meets. Between two lengths, times are in line; beyond the last, a byte takes
// as long as between the last two. The latency is that of an exchange, as ranks send and receive in nearly all collectives. A byte one way
// never takes longer than a byte each way: where it was measured to, the receiver had stopped polling.
func (c *Costs) At(n int) algorithm.Machine {
	both := c.Exchange.perByte(n)
	return algorithm.Machine{Alpha: apart * c.Exchange[0], Beta: min(c.Message.perByte(n), both), Both: both, Gamma: c.Reduction.perByte(n)}
}

// apart is by how much the latency is longer in a collective than in exchanges that follow one another, as ranks do not begin a collective
// at the same moment. Measured: 1.1 to 1.4.
const apart = 1.2

// perByte is the time of each of n bytes, but for what no byte at all takes.
func (t *Times) perByte(n int) float64 {
	i := 1 // of the longer one of two lengths
	for i < len(Lengths)-1 && n > Lengths[i] {
		i++
	}
	slope := (t[i] - t[i-1]) / float64(Lengths[i]-Lengths[i-1])
	if i == 1 {
		return slope
	}
	return (t[i-1] - t[0] + slope*float64(n-Lengths[i-1])) / float64(n)
}

// Uniform are the costs where each byte takes as long as any other.
func Uniform(m algorithm.Machine) (c Costs) {
	for i, n := range Lengths {
		c.Message[i] = m.Alpha/apart + float64(n)*m.Beta
		c.Exchange[i] = m.Alpha/apart + float64(n)*max(m.Beta, m.Both)
		c.Reduction[i] = float64(n) * m.Gamma
	}
	return c
}

// Usable reports whether the times are such.
func (c *Costs) Usable() bool {
	for _, t := range []*Times{&c.Message, &c.Exchange, &c.Reduction} {
		last := 0.0
		for _, x := range t {
			if !(x >= last && x < 1e3) { // nor is it no number
				return false
			}
			last = x
		}
	}
	return c.Exchange[0] > 0
}

// Samples are the seconds of something that was timed again and again, by length.
type Samples [len(Lengths)][]float64

// Fit makes times of samples: the lower quartile of each length, which interruptions do not move, and of three samples or fewer the
// least. Where a longer message was faster, that is noise. Lengths that were not timed, the last ones, go on as the last two that were; two
// must have been.
func Fit(samples *Samples) (t Times) {
	for i, s := range samples {
		switch {
		case len(s) > 0:
			t[i] = quartile(s)
		case i >= 2:
			t[i] = t[i-1] + (t[i-1]-t[i-2])/float64(Lengths[i-1]-Lengths[i-2])*float64(Lengths[i]-Lengths[i-1])
		default:
			t[i] = math.NaN()
		}
		if i > 0 {
			t[i] = max(t[i], t[i-1])
		}
	}
	return t
}

func quartile(samples []float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[len(sorted)/4]
}

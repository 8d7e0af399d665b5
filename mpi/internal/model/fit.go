package model

import (
	"math"
	"slices"

	"ddpbatch/mpi/internal/algorithm"
)

// Lengths are the lengths, in bytes, with which messages and reductions are timed. A byte takes less time in a buffer that fits
// into a core's cache than in one that does not. The longest fits into no core's cache.
var Lengths = [...]int{8, 4 << 10, 64 << 10, 512 << 10, 16 << 20}

// Times are the seconds that an operation takes for each of Lengths. They are not negative, and do not decrease.
type Times [len(Lengths)]float64

// Costs are the times of the operations that collectives consist of, on two ranks.
type Costs struct {
	Message   Times // of a message with an empty answer
	Exchange  Times // of two messages, one each way, begun at once
	Reduction Times // of one buffer with another of the same length
}

// At returns the machine for a collective with a buffer of n bytes. Between two lengths, times are interpolated linearly. Beyond
// the last, a byte takes as long as between the last two. The latency is that of an exchange, because ranks both send and receive
// in nearly all collectives. A byte one way never costs more than a byte each way: if it was measured to, the receiver had stopped
// polling.
func (c *Costs) At(n int) algorithm.Machine {
	both := c.Exchange.perByte(n)
	return algorithm.Machine{Alpha: apart * c.Exchange[0], Beta: min(c.Message.perByte(n), both), Both: both, Gamma: c.Reduction.perByte(n)}
}

// apart is the ratio of the latency in a collective to that in consecutive exchanges: ranks do not begin a collective at the same
// moment. Measured: 1.1 to 1.4.
const apart = 1.2

// perByte is the time per byte of n bytes, without the time of an empty message.
func (t *Times) perByte(n int) float64 {
	i := 1 // index of the longer one of two lengths
	for i < len(Lengths)-1 && n > Lengths[i] {
		i++
	}
	slope := (t[i] - t[i-1]) / float64(Lengths[i]-Lengths[i-1])
	if i == 1 {
		return slope
	}
	return (t[i-1] - t[0] + slope*float64(n-Lengths[i-1])) / float64(n)
}

// Uniform returns the costs of a machine on which every byte takes the same time.
func Uniform(m algorithm.Machine) (c Costs) {
	for i, n := range Lengths {
		c.Message[i] = m.Alpha/apart + float64(n)*m.Beta
		c.Exchange[i] = m.Alpha/apart + float64(n)*max(m.Beta, m.Both)
		c.Reduction[i] = float64(n) * m.Gamma
	}
	return c
}

// Usable reports whether the times are possible ones.
func (c *Costs) Usable() bool {
	for _, t := range []*Times{&c.Message, &c.Exchange, &c.Reduction} {
		last := 0.0
		for _, x := range t {
			if !(x >= last && x < 1e3) { // also false for NaN
				return false
			}
			last = x
		}
	}
	return c.Exchange[0] > 0
}

// Samples are repeated measurements of the seconds of an operation, by length.
type Samples [len(Lengths)][]float64

// Fit computes times from samples: for each length the lower quartile, which interruptions do not affect, and the least of three
// samples or fewer. If a longer message was faster, that is noise, and it gets the time of the shorter one. If the last lengths
// were not timed, the line through the last two that were is continued; there must be two.
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

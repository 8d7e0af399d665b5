package optim

import "math"

// warmUp rises linearly to the first rate of the schedule that follows.
type warmUp struct {
	steps int64
	then  Schedule
}

func (w warmUp) LR(step int64) float64 {
	if step >= w.steps {
		return w.then.LR(step - w.steps)
	}
	return w.then.LR(0) * (float64(step+1) / float64(w.steps))
}

type constant float64

func (c constant) LR(int64) float64 { return float64(c) }

type stepDecay struct {
	lr, gamma float64
	size      int64
}

func (s stepDecay) LR(step int64) float64 { return s.lr * math.Pow(s.gamma, float64(step/s.size)) }

type cosine struct {
	lr, least float64
	steps     int64
}

func (c cosine) LR(step int64) float64 { return anneal(c.lr, c.least, progress(step, c.steps)) }

type linear struct {
	lr, least float64
	steps     int64
}

func (l linear) LR(step int64) float64 {
	part := progress(step, l.steps)
	return float64(l.lr*(1-part)) + float64(l.least*part)
}

func progress(step, steps int64) float64 { return float64(min(step, steps)) / float64(steps) }

// OneCycleLR's pct_start, div_factor and final_div_factor.
const (
	cycleRise  = 0.3
	cycleStart = 25
	cycleEnd   = 1e4
)

type oneCycle struct {
	lr    float64
	steps int64
}

// LR reaches the top between two steps where 0.3 n is no whole number, as OneCycleLR does.
func (o oneCycle) LR(step int64) float64 {
	first := o.lr / cycleStart
	last := float64(o.steps - 1)
	top := float64(cycleRise*float64(o.steps)) - 1
	at := min(float64(step), last)
	if at <= top {
		return anneal(first, o.lr, at/top)
	}
	return anneal(o.lr, first/cycleEnd, (at-top)/(last-top))
}

// anneal goes from one rate to another along half a cosine, as part goes from 0 to 1. The conversion keeps the
// compiler from fusing: see the package's documentation.
func anneal(from, to, part float64) float64 {
	return to + float64((from-to)/2*(math.Cos(math.Pi*part)+1))
}

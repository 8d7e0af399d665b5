package tick

import "time"

// Count is a reading of the counter.
type Count int64

// Clock turns readings into times. Its zero value is not usable.
type Clock struct {
	time  time.Time
	count Count
}

// NewClock starts a clock.
func NewClock() Clock { return Clock{time: time.Now(), count: Now()} }

// Scale is how fast the counter has counted until now. Readings that are turned into times by one scale keep their order.
type Scale struct {
	clock Clock
	rate  float64 // nanoseconds a count; 0 where none has passed
}

// Scale measures the counter against the system's clock.
func (k Clock) Scale() Scale {
	span, counts := time.Since(k.time), Now()-k.count
	if counts <= 0 {
		return Scale{clock: k}
	}
	return Scale{clock: k, rate: float64(span) / float64(counts)}
}

// Time is when c was read, to some microseconds, and not before the clock began.
func (s Scale) Time(c Count) time.Time {
	return s.clock.time.Add(time.Duration(float64(max(0, c-s.clock.count)) * s.rate))
}

// Since is the time from c until now.
func (k Clock) Since(c Count) time.Duration { return max(0, time.Since(k.Scale().Time(c))) }

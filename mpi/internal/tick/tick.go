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

// Time is when c was read, to some microseconds, and not before the clock began.
func (k Clock) Time(c Count) time.Time {
	span, counts := time.Since(k.time), Now()-k.count
	if counts <= 0 || c <= k.count {
		return k.time
	}
	return k.time.Add(time.Duration(float64(c-k.count) / float64(counts) * float64(span)))
}

// Since is the time from c until now.
func (k Clock) Since(c Count) time.Duration { return max(0, time.Since(k.Time(c))) }

package tick

import (
	"math"
	"time"
)

// Count is a reading of the counter.
type Count int64

// Clock converts readings to times. Its zero value is not usable.
type Clock struct {
	time  time.Time
	count Count
}

// NewClock starts a clock.
func NewClock() Clock {
	at, count := readBoth(time.Now, Now)
	return Clock{time: at, count: count}
}

// readings is how often readBoth reads both.
const readings = 5

// readBoth reads the system's clock and the counter at one moment. Between two readings another process may get the core, for
// milliseconds or longer. So it reads the counter before and after the clock, several times, and takes the reading with the
// shortest time in between.
func readBoth(clock func() time.Time, counter func() Count) (at time.Time, count Count) {
	least := Count(math.MaxInt64)
	before := counter()
	for range readings {
		now := clock()
		after := counter()
		if width := after - before; width < least {
			least, at, count = width, now, before+width/2
		}
		before = after
	}
	return at, count
}

// Scale is the rate of the counter until now. Readings that one Scale converts to times keep their order.
type Scale struct {
	clock Clock
	rate  float64 // nanoseconds per count; 0 if the counter has not advanced
}

// Scale measures the counter against the system's clock.
func (k Clock) Scale() Scale {
	at, count := readBoth(time.Now, Now)
	if count <= k.count {
		return Scale{clock: k}
	}
	return Scale{clock: k, rate: float64(at.Sub(k.time)) / float64(count-k.count)}
}

// Time returns when c was read, to within some microseconds, but not before the clock began.
func (s Scale) Time(c Count) time.Time {
	return s.clock.time.Add(time.Duration(float64(max(0, c-s.clock.count)) * s.rate))
}

// Since returns the time from c until now.
func (k Clock) Since(c Count) time.Duration { return max(0, time.Since(k.Scale().Time(c))) }

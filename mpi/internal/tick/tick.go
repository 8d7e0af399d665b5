package tick

import (
	"math"
	"time"
)

// Count is a reading of the counter.
type Count int64

// Clock turns readings into times. Its zero value is not usable.
type Clock struct {
	time  time.Time
	count Count
}

// NewClock starts a clock.
func NewClock() Clock {
	at, count := readBoth(time.Now, Now)
	return Clock{time: at, count: count}
}

// readings is how often readBoth reads at most.
const readings = 5

// readBoth reads the system's clock and the counter at one moment. Between two readings another process may get the processor, for
// milliseconds or longer. So it reads the counter on both sides of the clock, several times, and takes the reading whose two sides are
// closest.
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

// Scale is how fast the counter has counted until now. Readings that are turned into times by one scale keep their order.
type Scale struct {
	clock Clock
	rate  float64 // nanoseconds a count; 0 where none has passed
}

// Scale measures the counter against the system's clock.
func (k Clock) Scale() Scale {
	at, count := readBoth(time.Now, Now)
	if count <= k.count {
		return Scale{clock: k}
	}
	return Scale{clock: k, rate: float64(at.Sub(k.time)) / float64(count-k.count)}
}

// Time is when c was read, to some microseconds, and not before the clock began.
func (s Scale) Time(c Count) time.Time {
	return s.clock.time.Add(time.Duration(float64(max(0, c-s.clock.count)) * s.rate))
}

// Since is the time from c until now.
func (k Clock) Since(c Count) time.Duration { return max(0, time.Since(k.Scale().Time(c))) }

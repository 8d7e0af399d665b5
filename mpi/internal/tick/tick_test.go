package tick

import (
	"testing"
	"time"
)

func TestCounterGivesTheTime(t *testing.T) {
	k := NewClock()
	for range 10 {
		before := time.Now()
		c := Now()
		after := time.Now()
		for time.Since(after) < 5*time.Millisecond { // give the clock time to measure the counter's speed
		}
		if at := k.Scale().Time(c); at.Before(before.Add(-time.Millisecond)) || at.After(after.Add(time.Millisecond)) {
			t.Errorf("read between %v and %v, and taken for %v", before, after, at)
		}
		if since := k.Since(c); since < 4*time.Millisecond {
			t.Errorf("at least 5 ms ago, and taken for %v", since)
		}
	}
	if !k.Scale().Time(-1 << 62).Equal(k.time) {
		t.Error("a reading from before the clock began")
	}
}

// Another process may get the core between the readings of the clock and of the counter. The clock's start and its scale must not depend on
// that.
func TestReadBothIsNotMisledByAPause(t *testing.T) {
	start := time.Now()
	for paused := range 2 * readings {
		reads, passed := 0, time.Duration(0)
		tick := func() time.Duration { // a reading takes a microsecond, but one of them takes a second more
			if passed += time.Microsecond; reads == paused {
				passed += time.Second
			}
			reads++
			return passed
		}
		at, count := readBoth(func() time.Time { return start.Add(tick()) }, func() Count { return Count(tick()) })
		if off := at.Sub(start) - time.Duration(count); off.Abs() > 2*time.Microsecond {
			t.Errorf("with a pause before reading %d the clock and the counter were read %v apart", paused, off)
		}
	}
}

func BenchmarkScale(b *testing.B) {
	k := NewClock()
	for b.Loop() {
		k.Scale()
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}

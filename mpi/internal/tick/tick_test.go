package tick

import (
	"testing"
	"time"
)

func TestTime(t *testing.T) {
	k := NewClock()
	for range 10 {
		before := time.Now()
		c := Now()
		after := time.Now()
		for time.Since(after) < 5*time.Millisecond { // let the clock find out how fast the counter counts
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

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}

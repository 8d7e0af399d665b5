package distributed

import (
	"testing"
	"time"
)

// TestInterval compares with Young's example values, computed by hand: sqrt(2 x 50 s x 10,000 s) = 1,000 s.
func TestInterval(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ cost, mtbf, want time.Duration }{
		{50 * time.Second, 10_000 * time.Second, 1000 * time.Second},
		{2 * time.Second, 100 * time.Second, 20 * time.Second},
		{0, time.Hour, 0}, {time.Second, 0, 0}, {-1, time.Hour, 0},
	} {
		if got := Interval(test.cost, test.mtbf); got.Round(time.Microsecond) != test.want {
			t.Errorf("Interval(%v, %v) = %v, want %v", test.cost, test.mtbf, got, test.want)
		}
	}
}

func TestTimesArePercentilesOfTheWindow(t *testing.T) {
	t.Parallel()
	w := &window{}
	if got := w.times(); got != (Times{}) {
		t.Errorf("empty: %v", got)
	}
	for i := 100; i >= 1; i-- { // the window keeps 64 to 1
		w.add(time.Duration(i))
	}
	// The 95th percentile of 1 to 64 by nearest rank is that of rank ceil(60.8) = 61.
	if got := w.times(); got != (Times{Last: 1, P95: 61}) {
		t.Errorf("64 to 1: %v", got)
	}
}

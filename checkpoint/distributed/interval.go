package distributed

import (
	"math"
	"time"
)

// Interval is the time between saves that loses least to saves and failures together: sqrt(2 cost mtbf), where
// cost is what a save costs the training (Stats.Stall) and mtbf the mean time between failures of the whole job. It holds for
// cost well below mtbf. J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974;
// J. T. Daly (2006) refines it.
func Interval(cost, mtbf time.Duration) time.Duration {
	if cost <= 0 || mtbf <= 0 {
		return 0
	}
	return time.Duration(math.Sqrt(2 * float64(cost) * float64(mtbf)))
}

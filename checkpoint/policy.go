package checkpoint

import (
	"errors"
	"fmt"
	"time"
)

// minKeep is the smallest retention: with one, a corrupt checkpoint has nothing before it.
const minKeep = 2

// Policy says which checkpoints of a run stay: those that any of its rules keeps, and always the
// newest good one, what is pinned, and the bases of deltas that stay. What a later attempt has given
// up stays until later attempts have Last of their own. The zero value keeps all.
type Policy struct {
	Last   int           // the newest so many; at least 2 where any rule is set
	Every  int64         // those of steps that are multiples of it; 0: none
	Within time.Duration // those made no longer ago than this, so that long after the run only the other rules hold; 0: none
	Best   int           // the best so many by Metric, newer ones first among equals; 0: none
	Metric string        // a key of State.Metrics
	Max    bool          // a larger Metric is the better one
}

// Validate refuses a policy that makes no sense, or leaves a run nothing to fall back to.
func (p Policy) Validate() error {
	switch {
	case p == Policy{}:
		return nil
	case p.Every < 0:
		return fmt.Errorf("keep_every is %d: must be a number of steps, or 0 (none)", p.Every)
	case p.Within < 0:
		return fmt.Errorf("keep_within is %v: must be a duration, or 0 (none)", p.Within)
	case p.Best < 0:
		return fmt.Errorf("keep_best is %d: must be 0 (none) or more", p.Best)
	case p.Best > 0 && p.Metric == "":
		return errors.New("keep_best needs the metric to compare by")
	case p.Last < minKeep:
		return fmt.Errorf("keep_last is %d: must be at least %d, or a corrupt checkpoint has nothing before it", p.Last, minKeep)
	}
	return nil
}

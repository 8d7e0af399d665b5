package trainer

import (
	"slices"
	"time"

	"ddpbatch/checkpoint/distributed"
)

// saveCost is what saving has cost this rank.
type saveCost struct {
	count        int
	stall        time.Duration // in which training stood still
	first, began time.Time     // the first save, and the newest
	every        time.Duration // between the newest two
	told         int           // saves that metrics have told of
	warned       bool
	recent       []stall // of the newest saves, the oldest first
}

// stall is how long training stood still for a save.
type stall struct {
	step int64
	took time.Duration
}

func (c *saveCost) add(step int64, start, end time.Time) {
	if c.count > 0 {
		c.every = start.Sub(c.began)
	} else {
		c.first = start
	}
	c.count++
	c.began = start
	c.stall += end.Sub(start)
	const enough = 16 // there are two in flight at most, and with a node-local disk a few more
	if len(c.recent) == enough {
		c.recent = append(c.recent[:0], c.recent[1:]...)
	}
	c.recent = append(c.recent, stall{step, end.Sub(start)})
}

// of is the stall of the newest save of a step; 0 where it is not known any more.
func (c *saveCost) of(step int64) time.Duration {
	for _, s := range slices.Backward(c.recent) {
		if s.step == step {
			return s.took
		}
	}
	return 0
}

// warnOfStall says, once and on rank 0, that saves come too often: that training stands still for them a tenth of its time.
func (t *trainer) warnOfStall() {
	const enough, share = 5 * time.Second, 10
	c := &t.cost
	if t.env.Comm.Rank() != 0 || c.warned || c.stall < enough || c.stall < t.now().Sub(c.first)/share {
		return
	}
	c.warned = true
	t.log.Warn("training often stands still for checkpoints: save less often (checkpoint.every_steps), or asynchronously",
		"stalled", c.stall, "since", t.now().Sub(c.first), "saves", c.count, "every_steps", t.plan.EverySteps)
}

// addSave tells in a line of metrics of the newest save, if none has yet. It reports whether there is something to tell.
func (m *metrics) addSave(t *trainer) bool {
	if t.cost.told == t.cost.count {
		return false
	}
	s := t.saver.Stats()
	if s.Saves == t.cost.told {
		return false
	}
	t.cost.told = s.Saves
	seconds, stall := s.Total.Last.Seconds(), t.cost.of(s.Step).Seconds()
	ratio := s.Ratio()
	m.SaveS, m.SaveStallS, m.SaveBytes, m.SaveRatio = &seconds, &stall, &s.Stored, &ratio
	return true
}

// reportSaves tells, on rank 0, what checkpoints have cost, and how often to save where the job's computers fail once a day.
func (t *trainer) reportSaves() {
	if t.saver == nil || t.env.Comm.Rank() != 0 || t.cost.count == 0 {
		return
	}
	s, count := t.saver.Stats(), t.cost.count
	advice := distributed.Interval(t.cost.stall/time.Duration(count), 24*time.Hour)
	t.log.Info("checkpoints", "saves", count, "stalled", t.cost.stall, "newest_took", s.Total.Last, "stored_bytes", s.Stored, "ratio", s.Ratio(),
		"interval", t.cost.every, "interval_for_a_failure_a_day", advice.Round(time.Second))
}

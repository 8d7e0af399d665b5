package trainer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/internal/text"
)

// saveCost is what saving has cost this rank.
type saveCost struct {
	count        int
	stall        time.Duration // in which training stood still
	since        time.Time     // when this attempt began
	first, began time.Time     // the first save, and the newest
	reported     int           // saves that are in metrics
	warned       bool
	recent       []stall // of the newest saves, the oldest first
}

// stall is how long training stood still for a save.
type stall struct {
	step           int64
	took           time.Duration
	waited, copied time.Duration // of that, for the save before and to copy the state
}

// add takes note of a save of a step, with what the Saver says of it.
func (c *saveCost) add(step int64, start, end time.Time, s distributed.Stats) {
	if c.count == 0 {
		c.first = start
	}
	c.count++
	c.began = start
	c.stall += end.Sub(start)
	const most = 16 // there are two in flight at most, and with a node-local disk a few more
	if len(c.recent) == most {
		c.recent = append(c.recent[:0], c.recent[1:]...)
	}
	c.recent = append(c.recent, stall{step, end.Sub(start), s.Wait, s.Copy})
}

// of is the stall of the newest save of a step; zero where it is not known any more.
func (c *saveCost) of(step int64) stall {
	for _, s := range slices.Backward(c.recent) {
		if s.step == step {
			return s
		}
	}
	return stall{}
}

// warnOfStall says, once and on rank 0, that saves come too often: that training stands still for them a tenth of its time.
func (t *trainer) warnOfStall() {
	const least, share = 5 * time.Second, 10
	c := &t.cost
	if t.env.Comm.Rank() != 0 || c.warned || c.stall < least || c.stall < t.now().Sub(c.first)/share {
		return
	}
	c.warned = true
	t.log.Warn("training often stands still for checkpoints: save less often (checkpoint.every_steps), or asynchronously",
		"stalled", c.stall, "since", t.now().Sub(c.first), "saves", c.count, "every_steps", t.policy.EverySteps)
}

// resumeCost is what it has cost this rank to go on from a checkpoint.
type resumeCost struct {
	find, load time.Duration
	bytes      int64 // of the checkpoint, on disk
	reported   bool
}

func (c *resumeCost) String() string {
	return fmt.Sprintf("found in %s, %s loaded in %s", timeText(c.find), text.Bytes(uint64(c.bytes)), timeText(c.load))
}

// failures is how seldom a job is thought to be struck, for the advice of how often to save.
const failures = 24 * time.Hour

// reportSaves tells, on rank 0, what checkpoints have cost, and how often to save where the job is struck once a day.
func (t *trainer) reportSaves() {
	if t.saver == nil || t.env.Comm.Rank() != 0 {
		return
	}
	if s := t.saver.Stats(); s.Saves > 0 {
		t.print("%s\n", t.cost.report(s, t.now().Sub(t.cost.since), t.saver.Space()))
	}
}

// report is a line for a person; all is how long the attempt has taken. It leaves out what is only noise: by how much a state gets smaller
// that is hardly longer than its manifest, and advice from saves that hardly take any time.
func (c *saveCost) report(s distributed.Stats, all time.Duration, space checkpoint.Space) string {
	const (
		leastBytes = 1 << 20
		leastStall = time.Millisecond
	)
	var line strings.Builder
	fmt.Fprintf(&line, "rank 0 | checkpoints | %d saved | the newest %s", s.Saves, text.Bytes(uint64(s.Stored)))
	if s.Raw >= leastBytes {
		fmt.Fprintf(&line, ", %.2f of its arrays", s.Ratio())
	}
	fmt.Fprintf(&line, " | training waited %s", timeText(c.stall))
	if all > 0 {
		fmt.Fprintf(&line, ", %.1f %% of the time", 100*float64(c.stall)/float64(all))
	}
	if c.count > 1 {
		fmt.Fprintf(&line, " | saved every %s", timeText(c.began.Sub(c.first)/time.Duration(c.count-1)))
	}
	if each := c.stall / time.Duration(max(c.count, 1)); each >= leastStall {
		fmt.Fprintf(&line, " | with a failure a day, one every %s loses least", timeText(advisedInterval(each, s.Total.P95)))
	}
	if space.Total > 0 {
		fmt.Fprintf(&line, " | on %s, of which %s were free before", space.Type, text.Bytes(space.Free))
	}
	return line.String()
}

// advisedInterval is how often to save where a save stalls training for so long, and takes so long in all: in the background the one can be
// far shorter than the other, and a save that begins before the last one has ended waits for that.
func advisedInterval(stall, total time.Duration) time.Duration {
	return max(distributed.Interval(stall, failures), total)
}

// timeText is a time as exact as a person reads it.
func timeText(d time.Duration) string {
	for _, step := range []struct{ from, unit time.Duration }{
		{10 * time.Minute, time.Minute}, {10 * time.Second, time.Second}, {time.Second, 100 * time.Millisecond},
		{10 * time.Millisecond, time.Millisecond},
	} {
		if d >= step.from {
			return d.Round(step.unit).String()
		}
	}
	return d.Round(10 * time.Microsecond).String()
}

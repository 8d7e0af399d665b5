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
	stall        time.Duration // how long training stood still
	since        time.Time     // when this attempt began
	first, began time.Time     // the first save, and the newest
	reported     int           // saves that are in metrics
	warned       bool
	recent       []stall // of the newest saves, oldest first
}

// stall is how long training stood still for a save.
type stall struct {
	step           int64
	took           time.Duration
	waited, copied time.Duration // parts of took: waiting for the previous save, and copying the state
}

// add records a save of a step, with the Saver's statistics.
func (c *saveCost) add(step int64, start, end time.Time, s distributed.Stats) {
	if c.count == 0 {
		c.first = start
	}
	c.count++
	c.began = start
	c.stall += end.Sub(start)
	const most = 16 // two are in flight at most, and a few more with a node-local disk
	if len(c.recent) == most {
		c.recent = append(c.recent[:0], c.recent[1:]...)
	}
	c.recent = append(c.recent, stall{step, end.Sub(start), s.Wait, s.Copy})
}

// of returns the stall of the newest save of a step, or the zero stall if it is no longer known.
func (c *saveCost) of(step int64) stall {
	for _, s := range slices.Backward(c.recent) {
		if s.step == step {
			return s
		}
	}
	return stall{}
}

// warnOfStall warns, once and on rank 0, if training stands still for saves a tenth of its time or more.
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

// resumeCost is what it has cost this rank to resume from a checkpoint.
type resumeCost struct {
	find, load time.Duration
	bytes      int64 // of the checkpoint, on disk
	reported   bool
}

func (c *resumeCost) String() string {
	return fmt.Sprintf("found in %s, %s loaded in %s", timeText(c.find), text.Bytes(uint64(c.bytes)), timeText(c.load))
}

// failures is the assumed time between failures of a job, for the advice how often to save.
const failures = 24 * time.Hour

// reportSaves prints, on rank 0, what checkpoints have cost, and how often to save if the job fails once a day.
func (t *trainer) reportSaves() {
	if t.saver == nil || t.env.Comm.Rank() != 0 {
		return
	}
	if s := t.saver.Stats(); s.Saves > 0 {
		t.print("%s\n", t.cost.report(s, t.now().Sub(t.cost.since), t.saver.Space()))
	}
}

// report returns a line for people; all is how long the attempt has taken. It leaves out figures that are only noise: the compression ratio
// of a state that is hardly larger than its manifest, and advice from saves that take hardly any time.
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

// advisedInterval returns how often to save if a save stalls training for stall and takes total in all. In the background the first can be
// far shorter than the second, and a save that begins before the previous one has ended waits for it.
func advisedInterval(stall, total time.Duration) time.Duration {
	return max(distributed.Interval(stall, failures), total)
}

// timeText returns a time with a precision that suits a person.
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

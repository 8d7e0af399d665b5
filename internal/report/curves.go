package report

import (
	"math"
	"slices"
	"strings"
	"time"
)

const (
	maxCurves   = 60  // metrics that are drawn; a user's script may write any number
	maxPoints   = 512 // points of a curve: more than a screen can show
	maxSections = 200 // of a run, the newest
	maxSaves    = 5000
	maxName     = 100 // bytes
	maxLeft     = 10_000
)

// Point stands for the values that a metric had in consecutive steps.
type Point struct {
	Step      int64    `json:"step"` // the last of these steps
	Mean      *float64 `json:"mean"` // of the finite values; nil if there are none, as for Min and Max
	Min       *float64 `json:"min"`
	Max       *float64 `json:"max"`
	Values    int      `json:"values"`
	NonFinite int      `json:"non_finite"` // number of values that were NaN or infinite
}

// Curve is a metric's thinned values. It has a list of points for each of Metrics.Sections in which the metric has values.
type Curve struct {
	Name  string      `json:"name"`
	Parts []CurvePart `json:"parts"`
}

// CurvePart is the part of a curve in one section of a run.
type CurvePart struct {
	Section int     `json:"section"` // index into Metrics.Sections
	Points  []Point `json:"points"`
}

// Section is a series of lines of metrics.jsonl with rising steps: those of one attempt, or, if the lines name no attempt, those up to the
// next decrease of the step.
type Section struct {
	Attempt int       `json:"attempt"` // 0 if the lines name no attempt
	First   int64     `json:"first"`   // steps
	Last    int64     `json:"last"`
	Began   time.Time `json:"began"` // time of the first line, and Ended of the last; zero if lines have no time
	Ended   time.Time `json:"ended"`
	// Kept is the first step that does not count because a later section repeated it; Last+1 if all steps count.
	Kept int64 `json:"kept"`

	from int64 // the first step that this section executed, if known; its first line may be for a later one
}

// Metrics is the content of metrics.jsonl.
type Metrics struct {
	Bytes    int64     `json:"bytes"`
	Read     int64     `json:"bytes_read"` // less than Bytes if only evenly spaced blocks of the file were read
	Lines    int       `json:"lines"`      // lines that were read
	Rubbish  int       `json:"rubbish"`    // lines that are not an object, or are longer than 1 MiB
	Sections []Section `json:"sections"`
	Curves   []Curve   `json:"curves"`
	// Left counts the metrics that are left out, up to maxLeft. Names longer than maxName count once for each common beginning.
	Left int `json:"metrics_left_out"`
}

// save is the part of metrics.jsonl about one checkpoint.
type save struct{ seconds, stall float64 }

// bucket collects the values of a point.
type bucket struct {
	last          int64 // step
	sum, min, max float64
	finite, other int
}

func (b *bucket) add(step int64, value float64) {
	b.last = step
	if math.IsNaN(value) || math.IsInf(value, 0) {
		b.other++
		return
	}
	if b.finite == 0 {
		b.min, b.max = value, value
	}
	b.min, b.max = min(b.min, value), max(b.max, value)
	b.sum += value
	b.finite++
}

func (b *bucket) merge(next bucket) {
	b.last, b.other = next.last, b.other+next.other
	switch {
	case next.finite == 0:
	case b.finite == 0:
		b.sum, b.min, b.max, b.finite = next.sum, next.min, next.max, next.finite
	default:
		b.min, b.max = min(b.min, next.min), max(b.max, next.max)
		b.sum += next.sum
		b.finite += next.finite
	}
}

func (b *bucket) point() Point {
	p := Point{Step: b.last, Values: b.finite + b.other, NonFinite: b.other}
	if b.finite > 0 {
		mean := b.sum / float64(b.finite)
		if math.IsInf(b.sum, 0) { // the sum of finite values has overflowed
			mean = b.min/2 + b.max/2
		}
		lowest, highest := b.min, b.max
		p.Mean, p.Min, p.Max = &mean, &lowest, &highest
	}
	return p
}

// curve is a curve that is being read. The steps of a bucket are equal except for their last shift bits. When there are too many buckets,
// shift grows by one.
type curve struct {
	name  string
	shift uint
	parts []partBuckets
	total int // number of buckets in all parts
}

type partBuckets struct {
	section int // index, counted from the first section of the file
	buckets []bucket
}

func (c *curve) add(section int, step int64, value float64) {
	n := len(c.parts)
	if n == 0 || c.parts[n-1].section != section {
		c.parts = append(c.parts, partBuckets{section: section})
		n++
	}
	part := &c.parts[n-1]
	last := len(part.buckets) - 1
	if last < 0 || part.buckets[last].last>>c.shift != step>>c.shift {
		part.buckets = append(part.buckets, bucket{})
		last++
		c.total++
	}
	part.buckets[last].add(step, value)
	for c.total > maxPoints && c.shift < 62 {
		c.coarsen()
	}
}

// coarsen doubles the number of steps in a bucket.
func (c *curve) coarsen() {
	c.shift++
	c.total = 0
	for i := range c.parts {
		part := &c.parts[i]
		kept := part.buckets[:0]
		for _, b := range part.buckets {
			if n := len(kept); n > 0 && kept[n-1].last>>c.shift == b.last>>c.shift {
				kept[n-1].merge(b)
			} else {
				kept = append(kept, b)
			}
		}
		part.buckets = kept
		c.total += len(kept)
	}
}

// drop removes the parts of sections before the given one.
func (c *curve) drop(before int) {
	for len(c.parts) > 0 && c.parts[0].section < before {
		c.total -= len(c.parts[0].buckets)
		c.parts = slices.Delete(c.parts, 0, 1)
	}
}

// plain reports whether a member of a line is not a curve, because it only says where the line belongs or is shown elsewhere on the page.
func plain(name string) bool {
	switch name {
	case "step", "steps", "epoch", "attempt", "time", "left_s":
		return true
	}
	return strings.HasPrefix(name, "save_") || strings.HasPrefix(name, "resume_")
}

// usual reports whether a metric is drawn however many other metrics there are.
func usual(name string) bool {
	switch name {
	case "loss", "eval_loss", "epoch_loss", "accuracy", "lr", "samples_per_s", "comm_share", "overlap":
		return true
	}
	return false
}

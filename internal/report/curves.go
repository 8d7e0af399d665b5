package report

import (
	"math"
	"slices"
	"strings"
	"time"
)

const (
	maxCurves   = 60  // metrics that are drawn; those of a script of one's own may be any number
	maxPoints   = 512 // of a curve: more than a screen has room for
	maxSections = 200 // of a run, the newest
	maxSaves    = 5000
	maxName     = 100 // bytes
	maxLeft     = 10_000
)

// Point stands for the values that a metric had in a row of steps.
type Point struct {
	Step      int64    `json:"step"` // the last of them
	Mean      *float64 `json:"mean"` // of the finite values; nil: there was none, as with the next two
	Min       *float64 `json:"min"`
	Max       *float64 `json:"max"`
	Values    int      `json:"values"`
	NonFinite int      `json:"non_finite"` // how many of them were NaN or infinite
}

// Curve is how a metric went, thinned. It has a list of points for each of Metrics.Sections in which the metric has values.
type Curve struct {
	Name  string      `json:"name"`
	Parts []CurvePart `json:"parts"`
}

// CurvePart is what one section of a run has of a curve.
type CurvePart struct {
	Section int     `json:"section"` // an index
	Points  []Point `json:"points"`
}

// Section is a row of lines of metrics.jsonl whose steps rise: an attempt's, or, of lines that name no attempt, those up to where steps go
// back.
type Section struct {
	Attempt int       `json:"attempt"` // 0: the lines name none
	First   int64     `json:"first"`   // steps
	Last    int64     `json:"last"`
	Began   time.Time `json:"began"` // of the first line, and of the last; zero: they have no time
	Ended   time.Time `json:"ended"`
	// Kept is the first step that counts no more, as a later section did it again; Last+1: all count.
	Kept int64 `json:"kept"`

	from int64 // the first step that the section did itself, as far as it says: its first line may come later
}

// Metrics is what was read of metrics.jsonl.
type Metrics struct {
	Bytes    int64     `json:"bytes"`
	Read     int64     `json:"bytes_read"` // less than Bytes: blocks that lie evenly in the file
	Lines    int       `json:"lines"`      // that were read
	Rubbish  int       `json:"rubbish"`    // lines that are no object, or longer than 1 MiB
	Sections []Section `json:"sections"`
	Curves   []Curve   `json:"curves"`
	// Left counts further metrics, up to maxLeft. Names longer than maxName count as one if they begin alike.
	Left int `json:"metrics_left_out"`
}

// save is what metrics.jsonl has of a checkpoint.
type save struct{ seconds, stall float64 }

// bucket gathers the values of a point.
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
		if math.IsInf(b.sum, 0) { // of values that are finite, each
			mean = b.min/2 + b.max/2
		}
		lowest, highest := b.min, b.max
		p.Mean, p.Min, p.Max = &mean, &lowest, &highest
	}
	return p
}

// curve is one that is being read. A bucket has the steps that are the same without their last bits; when there are too many, one more bit
// is left out.
type curve struct {
	name  string
	shift uint
	parts []partBuckets
	total int // buckets of all parts
}

type partBuckets struct {
	section int // counted from the first of the file
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

// coarsen has each bucket stand for twice as many steps.
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

// drop forgets the sections before one.
func (c *curve) drop(before int) {
	for len(c.parts) > 0 && c.parts[0].section < before {
		c.total -= len(c.parts[0].buckets)
		c.parts = slices.Delete(c.parts, 0, 1)
	}
}

// plain are members of a line that say where it belongs, or that other parts of the page show; they are no curves.
func plain(name string) bool {
	switch name {
	case "step", "steps", "epoch", "attempt", "time", "left_s":
		return true
	}
	return strings.HasPrefix(name, "save_") || strings.HasPrefix(name, "resume_")
}

// usual are metrics that have a place in the page whatever else there is.
func usual(name string) bool {
	switch name {
	case "loss", "eval_loss", "epoch_loss", "accuracy", "lr", "samples_per_s", "comm_share", "overlap":
		return true
	}
	return false
}

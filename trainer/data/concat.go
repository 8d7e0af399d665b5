package data

import (
	"sort"
)

// concat is several data sets of one kind after each other.
type concat struct {
	parts []*table
	ends  []int // the row after the last of each part
}

func newConcat(parts []*table) *concat {
	c := &concat{parts: parts}
	rows := 0
	for _, p := range parts {
		rows += p.rows
		c.ends = append(c.ends, rows)
	}
	return c
}

func (c *concat) Len() int { return c.ends[len(c.ends)-1] }

func (c *concat) Spec() Spec { return c.parts[0].spec }

func (c *concat) Read(i int, x, y []float32, labels []int) {
	if i < 0 || i >= c.Len() {
		panic(badRow)
	}
	k := sort.SearchInts(c.ends, i+1)
	c.parts[k].Read(i-c.first(k), x, y, labels)
}

// first is the row that part k begins with.
func (c *concat) first(k int) int { return c.ends[k] - c.parts[k].rows }

func (c *concat) hash(h *stoppable, first, end int) {
	for k, p := range c.parts {
		from, to := max(first, c.first(k)), min(end, c.ends[k])
		if from < to {
			p.hash(h, from-c.first(k), to-c.first(k))
		}
	}
}

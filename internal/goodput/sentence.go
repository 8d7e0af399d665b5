package goodput

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/text"
)

// String says in one line where the time went. It is empty if no time has passed yet.
func (b Breakdown) String() string {
	if b.Total() == 0 {
		return ""
	}
	known := "goodput unknown, as " + b.Why
	if share, ok := b.Share(b.Running()); ok {
		known = "goodput " + Percent(share)
	} else if b.Running() == 0 {
		known = "goodput not known yet"
	}
	where := fmt.Sprintf("%s: queued for %s", known, text.Span(b.Queued))
	if b.Running() > 0 {
		where += fmt.Sprintf(", then %s with %s", text.Span(b.Running()), b.nodes())
	}
	var parts []string
	add := func(what string, d time.Duration) {
		if d >= time.Second {
			parts = append(parts, what+" "+text.Span(d))
		}
	}
	add("starting", b.Starting)
	add("productive", b.Productive)
	add("saving", b.Saving)
	for _, cause := range b.Causes() {
		add("lost to "+cause, b.Lost[cause])
	}
	add("unknown", b.Unknown)
	add("other", b.Other)
	if len(parts) == 0 {
		return where
	}
	return where + ": " + strings.Join(parts, ", ")
}

// nodes says how many nodes the attempts had: "2 nodes", "2 to 4 nodes".
func (b Breakdown) nodes() string {
	var counts []int
	for _, same := range b.split() {
		if same.Running() > 0 {
			counts = append(counts, same.Nodes)
		}
	}
	slices.Sort(counts)
	counts = slices.Compact(counts)
	switch len(counts) {
	case 0:
		return text.Plural(b.Nodes, "node")
	case 1:
		return text.Plural(counts[0], "node")
	}
	return fmt.Sprintf("%d to %d nodes", counts[0], counts[len(counts)-1])
}

// Causes returns the keys of Lost, the one with the longest time first.
func (b Breakdown) Causes() []string { return causes(b.Lost) }

// Percent formats a share. It rounds down, so that only a share of 1 is 100 %.
func Percent(share float64) string {
	return fmt.Sprintf("%.1f %%", math.Floor(share*1000)/10)
}

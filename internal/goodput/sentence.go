package goodput

import (
	"fmt"
	"math"
	"strings"
	"time"

	"ddpbatch/internal/text"
)

// String tells a person where the time went, in one line; empty where there is none yet.
func (b Breakdown) String() string {
	if b.Total() == 0 {
		return ""
	}
	known := "goodput not known, as " + b.Why
	if share, ok := b.Share(b.Running()); ok {
		known = "goodput " + Percent(share)
	} else if b.Running() == 0 {
		known = "goodput not known yet"
	}
	where := fmt.Sprintf("%s: queued for %s, then %s with %s", known, text.Span(b.Queued), text.Span(b.Running()),
		text.Plural(b.Nodes, "node"))
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

// Causes are the keys of Lost, that of the longest time first.
func (b Breakdown) Causes() []string { return causes(b.Lost) }

// Percent is a share for people. One that is not all is never 100 %.
func Percent(share float64) string {
	return fmt.Sprintf("%.1f %%", math.Floor(share*1000)/10)
}

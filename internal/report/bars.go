package report

import (
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"time"

	"ddpbatch/internal/goodput"
	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch/recovery"
)

const (
	barWidth, barHeight = 300, 16
	heatWidth           = 1040
	heatLeft            = 150
)

// span returns the time from the first event of the run's attempts, in the queue or running, to the last.
func (d *Data) span() (from, to time.Time) {
	for _, a := range d.Attempts {
		for _, at := range []*time.Time{a.Queued, a.Began, a.Ended} {
			if at == nil || at.IsZero() {
				continue
			}
			if from.IsZero() || at.Before(from) {
				from = *at
			}
			if at.After(to) {
				to = *at
			}
		}
		if a.Began != nil && d.until(&a).After(to) {
			to = d.until(&a)
		}
	}
	return from, to
}

// until returns when an attempt that has begun ended, or was last seen.
func (d *Data) until(a *Attempt) time.Time {
	switch {
	case a.Ended != nil:
		return *a.Ended
	case d.kind(a) == "live":
		return d.Made
	case a.seen.After(*a.Began):
		return a.seen
	}
	return *a.Began
}

// bar draws an attempt: a thin line while it was queued, and a bar while it ran.
func (d *Data) bar(a *Attempt, from, to time.Time) template.HTML {
	s := svg{width: barWidth, height: barHeight}
	at := func(t time.Time) float64 {
		if !to.After(from) {
			return 0
		}
		return max(0, min(1, t.Sub(from).Seconds()/to.Sub(from).Seconds())) * barWidth
	}
	s.line("grid", 0, barHeight/2, barWidth, barHeight/2)
	if a.Began != nil {
		end := d.until(a)
		if a.Queued != nil && a.Began.After(*a.Queued) {
			waited := "queued for " + text.Span(a.Began.Sub(*a.Queued))
			s.rect("queued", at(*a.Queued), 5, max(1, at(*a.Began)-at(*a.Queued)), 6, waited)
		}
		s.rect("run "+d.kind(a), at(*a.Began), 2, max(2, at(end)-at(*a.Began)), 12, "ran for "+text.Span(end.Sub(*a.Began)))
	}
	return s.html("bar", fmt.Sprintf("attempt %d", a.Attempt))
}

// kind returns the class of the style sheet for the way an attempt ended.
func (d *Data) kind(a *Attempt) string {
	switch recovery.Cause(a.Cause) {
	case recovery.Done:
		return "good"
	case recovery.Saved, recovery.Preempt, recovery.Timeout, recovery.Cancelled:
		return "calm"
	case "":
		newest := len(d.Attempts) > 0 && a.Attempt == d.Attempts[len(d.Attempts)-1].Attempt
		if newest && d.known && !d.Status.Ended {
			return "live"
		}
		return "unsaid"
	}
	return "wrong"
}

// share is one part of a run's time.
type share struct {
	Class, Name string
	Time        time.Duration
	Percent     string
}

// shares returns the parts of a run's time, and the bar that shows them.
func shares(b *goodput.Breakdown) (parts []share, picture template.HTML) {
	add := func(class, name string, d time.Duration) {
		if d > 0 {
			parts = append(parts, share{class, name, d, goodput.Percent(d.Seconds() / b.Total().Seconds())})
		}
	}
	add("good", "productive", b.Productive)
	add("saving", "saving", b.Saving)
	add("live", "starting", b.Starting)
	for _, cause := range b.Causes() {
		add("wrong", "lost to "+shown(cause), b.Lost[cause])
	}
	add("unsaid", "not known", b.Unknown)
	add("other", "other", b.Other)
	add("queue", "queued", b.Queued)
	s := svg{width: heatWidth, height: 22}
	at := 0.0
	for _, p := range parts {
		width := p.Time.Seconds() / b.Total().Seconds() * heatWidth
		s.rect("run "+p.Class, at, 0, width, 22, p.Name+" "+text.Span(p.Time))
		at += width
	}
	return parts, s.html("stack", "where the time went")
}

// heat holds the factors of the median from which a cell has the first, second, third and fourth color.
var heat = []float64{1.15, 1.4, 1.8, 2.5}

// heatMap draws a row for each rank and a column for each window. The slower the rank, the darker the cell.
func (s *StepTimes) heatMap() template.HTML {
	height := max(6, min(16, 600/float64(len(s.Rows))))
	out := svg{width: heatWidth, height: height*float64(len(s.Rows)) + 20}
	width := (heatWidth - heatLeft) / float64(len(s.Windows))
	free := -20.0
	for i, row := range s.Rows {
		y := float64(i) * height
		out.rect("cell", heatLeft, y, heatWidth-heatLeft, height-1, "")
		slow := slices.Max(row.Times) >= heat[1]
		class := "tick end"
		if slow {
			class += " hot"
		}
		if y-free >= 11 || slow && y-free >= 9 {
			out.text(class, heatLeft-6, y+height/2+3.5, row.label())
			free = y
		}
		for at := 0; at < len(row.Times); {
			level, end := levelOf(row.Times[at]), at+1
			for end < len(row.Times) && levelOf(row.Times[end]) == level {
				end++
			}
			if level > 0 {
				out.rect("h"+strconv.Itoa(level), heatLeft+float64(at)*width, y, float64(end-at)*width, height-1, "")
			}
			at = end
		}
	}
	y := height*float64(len(s.Rows)) + 14
	out.text("tick", heatLeft, y, "step "+commas(s.Windows[0].Step))
	out.text("tick end", heatWidth, y, "step "+commas(s.Windows[len(s.Windows)-1].Step))
	return out.html("heat", "how much slower than the median each rank was")
}

func levelOf(times float64) (level int) {
	for level < len(heat) && times >= heat[level] {
		level++
	}
	return level
}

// label names the ranks of a row.
func (r *RankRow) label() string {
	ranks := fmt.Sprintf("rank %d", r.First)
	if r.Last > r.First {
		ranks = fmt.Sprintf("ranks %d-%d", r.First, r.Last)
	}
	host := text.Shortened(r.Host, 14)
	if host == "" {
		return ranks
	}
	return ranks + " " + host
}

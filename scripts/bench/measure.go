package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/stats"
)

// measure launches all sides in turn, the given number of times. Each turn begins with another side.
func measure(ctx context.Context, o options, s setting, sides []side, progress io.Writer) (table, error) {
	sides = takingPart(sides, s)
	t := newTable(o, s, sides)
	err := paired.InTurn(ctx, s.String(), o.Launches, len(sides), progress, func(turn, side int) error {
		out, err := launch(ctx, o, s, sides[side])
		if err == nil {
			t.add(turn, sides[side].name, out)
		}
		return err
	})
	t.compare(sides)
	return t, err
}

// outcome is the result of one launch.
type outcome struct {
	samples []sample
	processes.Outcome
}

// launch runs one side once.
func launch(ctx context.Context, o options, s setting, side side) (outcome, error) {
	out := &rowReader{parse: side.parse, started: time.Now(), ended: make(chan struct{}, 1)}
	got, err := processes.Launch(ctx, o.launchLimit(), &processes.Lines{Receive: out.receive}, out.ended, side.commands(o, s)...)
	return outcome{out.rows(s), got}, err
}

// rowReader reads a launch's output, line by line as it comes.
type rowReader struct {
	parse   func(string) (sample, bool)
	started time.Time
	ended   chan struct{} // receives a value at the line "end"; has room for one
	samples []sample      // only read after the launch has ended
	first   time.Duration // when the first row came
}

func (r *rowReader) receive(line string) {
	if s, ok := r.parse(line); ok {
		if len(r.samples) == 0 {
			r.first = time.Since(r.started)
		}
		r.samples = append(r.samples, s)
	} else if line == "end" {
		select {
		case r.ended <- struct{}{}:
		default: // it has been sent already
		}
	}
}

// rows returns the rows that came. Start-up is timed here, in the same way for all sides: from the launch to the row that rank 0 prints
// when all ranks have met.
func (r *rowReader) rows(s setting) []sample {
	if s.Collective == "startup" && len(r.samples) > 0 {
		return []sample{{us: float64(r.first.Microseconds()), wrong: r.samples[0].wrong}}
	}
	return r.samples
}

// table holds the results for one setting.
type table struct {
	Setting setting            `json:"setting"`
	Rows    []*sizeRow         `json:"rows"`
	Faults  []string           `json:"faults"`
	Hung    map[string]int     `json:"hung"` // launches that did not end by themselves
	failed  map[string]bool    // sides with a launch that failed, or did not end by itself
	sides   []string           // columns
	turns   int                // launches of each side
	bySize  map[int64]*sizeRow // of Rows
}

// sizeRow holds the results for one size.
type sizeRow struct {
	Size        int64                    `json:"size"`
	Samples     map[string]stats.Samples `json:"samples_us"` // by side and turn
	Wrong       map[string]int64         `json:"wrong"`
	Comparisons []comparison             `json:"comparisons"`
}

func newTable(o options, s setting, sides []side) table {
	t := table{Setting: s, turns: o.Launches, Faults: []string{}, Hung: map[string]int{}, failed: map[string]bool{},
		bySize: map[int64]*sizeRow{}}
	for _, side := range sides {
		t.sides = append(t.sides, side.name)
	}
	for _, size := range o.rowSizes(s) {
		r := &sizeRow{Size: size, Samples: map[string]stats.Samples{}, Wrong: map[string]int64{}}
		for _, name := range t.sides {
			r.Samples[name] = paired.Missing(t.turns)
		}
		t.Rows, t.bySize[size] = append(t.Rows, r), r
	}
	return t
}

// add adds the outcome of a side's launch. A row that a launch did not produce is missing, and is shown so.
func (t *table) add(turn int, side string, out outcome) {
	if out.Fault != nil {
		t.Faults = append(t.Faults, fmt.Sprintf("%s, launch %d: %v", side, turn+1, out.Fault))
	}
	if out.Hung {
		t.Hung[side]++
	}
	if out.Fault != nil || out.Hung {
		t.failed[side] = true
	}
	for _, s := range out.samples {
		r := t.bySize[s.size]
		if r == nil {
			t.Faults = append(t.Faults, fmt.Sprintf("%s, launch %d: an unexpected row of %d bytes", side, turn+1, s.size))
			continue
		}
		r.Samples[side][turn] = s.us
		r.Wrong[side] += s.wrong
	}
}

// compare compares each of our columns with the best peer of the row.
func (t *table) compare(sides []side) {
	for _, r := range t.Rows {
		best := r.bestPeer(sides)
		for _, side := range sides {
			if side.ours {
				c := r.against(side.name, best)
				if t.failed[side.name] {
					c.Verdict = "lose"
				}
				r.Comparisons = append(r.Comparisons, c)
			}
		}
	}
}

// bestPeer returns the peer with the smallest median among those with a correct result in every launch, or "".
func (r *sizeRow) bestPeer(sides []side) string {
	best, least := "", math.Inf(1)
	for _, side := range sides {
		if m := r.Samples[side.name].Median(); !side.ours && r.sound(side.name) && m < least {
			best, least = side.name, m
		}
	}
	return best
}

// sound reports whether a side has a result in every launch, and no wrong one.
func (r *sizeRow) sound(side string) bool {
	return r.Wrong[side] == 0 && !slices.ContainsFunc(r.Samples[side], math.IsNaN)
}

// comparison compares our side with one peer, launch by launch.
type comparison struct {
	Side string `json:"side"`
	Peer string `json:"peer"` // "": there was none
	paired.Comparison
	Verdict string `json:"verdict"` // win, even, lose; "-": our results are correct, but there is no peer, or too few launches of it
}

func (r *sizeRow) against(side, peer string) comparison {
	c := comparison{Side: side, Peer: peer, Comparison: paired.Compare(r.Samples[side], r.Samples[peer])}
	c.Verdict = paired.Verdict(c.Interval)
	if !r.sound(side) { // the row is lost, whatever else it says
		c.Verdict = "lose"
	}
	return c
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/stats"
)

// comparison compares sides that do the same: the first one, ours, with each of the others.
type comparison struct {
	title string
	sides []side
}

// table holds the results of one comparison with one number of ranks.
type table struct {
	Title  string      `json:"title"`
	Ranks  int         `json:"ranks"`
	Rows   []sideTimes `json:"rows"`
	Faults []string    `json:"faults"`
}

// sideTimes holds the times of one side, in milliseconds since the command. Those of the row are until all ranks have met.
type sideTimes struct {
	paired.Row
	Ended stats.Samples `json:"ended"`
}

// measure launches all sides in turn, the given number of times, after a first launch that does not count: after that, files are in memory,
// and there is a key file. Each turn begins with another side.
func (c comparison) measure(ctx context.Context, launches, ranks int, progress io.Writer) (table, error) {
	t := table{Title: c.title, Ranks: ranks, Faults: []string{}}
	for _, s := range c.sides {
		t.Rows = append(t.Rows, sideTimes{paired.NewRow(s.name, launches), paired.Missing(launches)})
	}
	what := fmt.Sprintf("%s, %d ranks", c.title, ranks)
	err := paired.InTurn(ctx, what+", not counted", 1, len(c.sides), progress, func(_, side int) error {
		_, err := launch(ctx, launchLimit, c.sides[side], ranks)
		return err
	})
	if err != nil {
		return t, err
	}
	err = paired.InTurn(ctx, what, launches, len(c.sides), progress, func(turn, side int) error {
		got, err := launch(ctx, launchLimit, c.sides[side], ranks)
		if err == nil {
			t.add(turn, side, got)
		}
		return err
	})
	t.compare()
	return t, err
}

func (t *table) add(turn, side int, got launchTimes) {
	r := &t.Rows[side]
	r.Times[turn], r.Ended[turn] = got.met, got.ended
	if got.fault != nil {
		t.Faults = append(t.Faults, fmt.Sprintf("%s, launch %d: %v", r.Side, turn+1, got.fault))
	}
}

// compare compares the first row with each of the others.
func (t *table) compare() {
	for i := range t.Rows[1:] {
		t.Rows[1+i].Against(t.Rows[0].Row)
	}
}

// launchLimit is when a launch is abandoned: long after the longest launch on a busy machine.
const launchLimit = time.Minute

// launchTimes holds the results of one launch, in milliseconds since the command; NaN: it did not happen.
type launchTimes struct {
	met, ended float64
	fault      error // nil: none
}

// launch launches one side once, for at most limit.
func launch(ctx context.Context, limit time.Duration, s side, ranks int) (launchTimes, error) {
	got := launchTimes{met: math.NaN(), ended: math.NaN()}
	var met time.Time
	output := &processes.Lines{Receive: func(line string) {
		if s.met(unlabelled(line)) && met.IsZero() {
			met = time.Now()
		}
	}}
	out, err := processes.Launch(ctx, limit, output, nil, s.command(ranks))
	switch got.fault = out.Fault; {
	case err != nil, got.fault != nil:
	case met.IsZero():
		got.fault = errors.New("rank 0 did not say that all have met")
	default:
		got.met, got.ended = inMilliseconds(met.Sub(out.Began)), inMilliseconds(out.Took)
	}
	return got, err
}

// since returns the time since t, in milliseconds.
func since(t time.Time) float64 { return inMilliseconds(time.Since(t)) }

func inMilliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// unlabelled returns a line without the label that ddpbatch puts before a rank's lines: `[host rank] `.
func unlabelled(line string) string {
	label, rest, found := strings.Cut(line, "] ")
	if !found || !strings.HasPrefix(label, "[") {
		return line
	}
	return rest
}

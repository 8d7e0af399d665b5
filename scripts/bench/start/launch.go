package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"time"

	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/tools"
)

// launchLimit is when a launch is given up: far beyond what any takes on a busy machine.
const launchLimit = time.Minute

// launched is what came of one launch, in milliseconds since the command; NaN: it did not come to that.
type launched struct {
	met, ended float64
	fault      string // "": none
}

// launch launches one side once, for limit at most, and leaves nothing behind. Its error is that of outer: what goes wrong with the side is
// a part of the result.
func launch(outer context.Context, limit time.Duration, s side, ranks int) (launched, error) {
	ctx, cancel := context.WithTimeout(outer, limit)
	defer cancel()
	cmd := s.command(ranks)
	got := launched{met: math.NaN(), ended: math.NaN()}
	var started time.Time
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	cmd.Stdout = &processes.Lines{Hear: func(line string) {
		if s.met(unlabelled(line)) && math.IsNaN(got.met) {
			got.met = since(started)
		}
	}}
	started = time.Now()
	group, err := processes.Start(cmd)
	if err != nil {
		got.fault = fmt.Sprintf("start it: %v", err)
		return got, nil
	}
	group.Await(ctx, nil)
	ended, gaveUp := since(started), ctx.Err() != nil
	group.Kill() // all that it wrote has been read
	switch {
	case outer.Err() != nil:
		return got, outer.Err()
	case gaveUp:
		got.met, got.fault = math.NaN(), fmt.Sprintf("did not end in %v, and was killed", limit)
	case group.Code(0) != 0:
		got.met, got.fault = math.NaN(), fmt.Sprintf("exit code %d: %s", group.Code(0), tools.LastLine(complaint.String()))
	case math.IsNaN(got.met):
		got.fault = "rank 0 did not say that all have met"
	default:
		got.ended = ended
	}
	return got, nil
}

// since is the time since t, in milliseconds.
func since(t time.Time) float64 { return float64(time.Since(t).Nanoseconds()) / 1e6 }

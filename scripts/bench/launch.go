package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/tools"
)

// outcome is what came of one launch.
type outcome struct {
	samples []sample
	hung    bool   // after its last row
	fault   string // "": none
}

// launch runs one side once, and leaves none of its processes behind. Its error is that of outer: what goes wrong with the side is
// a part of the outcome.
func launch(outer context.Context, o options, s setting, side side) (outcome, error) {
	ctx, cancel := context.WithTimeout(outer, o.launchLimit())
	defer cancel()
	out := &rowReader{parse: side.parse, started: time.Now(), ended: make(chan struct{}, 1)}
	var complaint bytes.Buffer
	commands := side.commands(o, s)
	commands[0].Stdout, commands[0].Stderr = &processes.Lines{Hear: out.hear}, &complaint
	group, err := processes.Start(commands...)
	if err != nil {
		return outcome{fault: fmt.Sprintf("start it: %v", err)}, nil
	}
	hung := group.Await(ctx, out.ended)
	gaveUp := ctx.Err() != nil
	group.Kill()
	result := outcome{samples: out.rows(s), hung: hung}
	switch {
	case outer.Err() != nil:
		return outcome{}, outer.Err()
	case gaveUp:
		result.fault = fmt.Sprintf("gave up after %v", o.launchLimit().Round(time.Second))
	case !hung && group.Code(0) != 0:
		result.fault = fmt.Sprintf("exit code %d: %s", group.Code(0), tools.LastLine(complaint.String()))
	}
	return result, nil
}

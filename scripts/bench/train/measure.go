package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/tools"
)

// launchLimit is when a launch is given up: far beyond what any takes on a busy machine.
const launchLimit = 5 * time.Minute

// setting is what one row of a table is about.
type setting struct {
	model
	ranks int
}

func (s setting) String() string { return fmt.Sprintf("%s, %d x 1", s.name, s.ranks) }

// measure launches both sides in turn, as often as asked; every second turn begins with the other one.
func measure(ctx context.Context, o options, s setting, sides [2]side, dir string, progress io.Writer) (row, error) {
	r := newRow(s, o.launches)
	for turn := range o.launches {
		fmt.Fprintf(progress, "%v: launch %d of %d\n", s, turn+1, o.launches)
		for i := range sides {
			which := (turn + i) % 2
			got, err := launch(ctx, s, sides[which], dir)
			if ctx.Err() != nil {
				return r, ctx.Err()
			}
			r.add(turn, which, sides[which].name, got, err)
		}
	}
	r.compare()
	return r, nil
}

// launch runs one side once, in a folder of its own below the data, and leaves nothing behind.
func launch(ctx context.Context, s setting, side side, data string) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, launchLimit)
	defer cancel()
	dir, err := workFolder(s, data)
	if err != nil {
		return result{}, fmt.Errorf("make a working folder: %w", err)
	}
	defer os.RemoveAll(dir)

	if err := forgetPeak(); err != nil {
		return result{}, err
	}
	commands := side.commands(s.model, s.ranks, dir)
	var output, complaint bytes.Buffer
	commands[0].Stdout, commands[0].Stderr = &output, &complaint
	group, err := processes.Start(commands...)
	if err != nil {
		return result{}, fmt.Errorf("start it: %w", err)
	}
	group.Await(ctx, nil)
	late := ctx.Err() != nil
	group.Kill()
	if late {
		return result{}, fmt.Errorf("gave up after %v", launchLimit)
	}
	if code := group.Code(0); code != 0 {
		return result{}, fmt.Errorf("exit code %d: %s", code, tools.LastLine(complaint.String()))
	}
	got, err := side.read(s.model, dir, output.Bytes())
	got.PeakMiB = peak(commands)
	return got, err
}

// workFolder is one for a launch, below the data, with the job file in it.
func workFolder(s setting, data string) (string, error) {
	dir, err := os.MkdirTemp(data, "launch-")
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, s.name+".toml"), []byte(s.jobText(s.ranks)), 0o600)
}

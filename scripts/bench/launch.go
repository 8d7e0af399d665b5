package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"ddpbatch/internal/proc"
)

const (
	// endGrace is how long a launch may take to end after its last row.
	endGrace = 2 * time.Second

	// markVariable finds the processes of a launch that have left its process groups, as those of MPI launchers do.
	markVariable = "DDPBATCH_BENCH_LAUNCH"
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
	mark := markVariable + "=" + rand.Text()
	out := &rowWriter{parse: side.parse, started: time.Now(), ended: make(chan struct{}, 1)}
	var complaint bytes.Buffer
	var processes []*proc.Process
	for i, cmd := range side.commands(o, s) {
		cmd.Env = append(append(slices.DeleteFunc(os.Environ(), placing), cmd.Env...), mark)
		cmd.WaitDelay = time.Second // for what its orphans hold open
		if i == 0 {
			cmd.Stdout, cmd.Stderr = out, &complaint
		}
		p, err := proc.Start(cmd)
		if err != nil {
			killAll(processes, mark)
			return outcome{fault: fmt.Sprintf("start it: %v", err)}, nil
		}
		processes = append(processes, p)
	}
	hung := await(ctx, processes, out.ended)
	gaveUp := ctx.Err() != nil
	killAll(processes, mark)
	result := outcome{samples: out.rows(s), hung: hung}
	switch {
	case outer.Err() != nil:
		return outcome{}, outer.Err()
	case gaveUp:
		result.fault = fmt.Sprintf("gave up after %v", o.launchLimit().Round(time.Second))
	case !hung && processes[0].Code() != 0:
		result.fault = fmt.Sprintf("exit code %d: %s", processes[0].Code(), lastLine(complaint.String()))
	}
	return result, nil
}

// placed are the beginnings of variables' names that a job around this program sets, or that tune one of the sides: what a
// side has of these is what its header line shows.
var placed = []string{"SLURM_", "DDPBATCH_", "OMPI_", "UCX_", "MPIR_", "PMI_", "OMP_"}

// placing tells whether a variable would make a launch part of a job around this program, or change what it does.
func placing(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.ContainsFunc(placed, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) ||
		slices.Contains([]string{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}, name)
}

// await waits until all processes have ended, and tells whether they would not after the last row.
func await(ctx context.Context, processes []*proc.Process, ended <-chan struct{}) (hung bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, p := range processes {
			<-p.Done()
		}
	}()
	var grace <-chan time.Time
	for {
		select {
		case <-done:
			return false
		case <-ctx.Done():
			return false
		case <-ended:
			grace, ended = time.After(endGrace), nil
		case <-grace:
			return true
		}
	}
}

func killAll(processes []*proc.Process, mark string) {
	for _, p := range processes {
		_ = p.Signal(syscall.SIGKILL) // its group is ours, or gone
	}
	sweep(mark)
	for _, p := range processes {
		<-p.Done()
	}
}

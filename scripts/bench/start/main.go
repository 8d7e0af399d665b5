// Command start times how jobs begin and end: ddpbatch beside the launchers of MPI libraries and PyTorch, and by itself as the
// many agents of a pretend cluster. scripts/bench-start builds and starts it, in the root of the repository.
//
// The ranks of all sides are the smallest possible programs: they join, meet in a barrier, and rank 0 writes a line. The time to that line
// is measured from outside. Ours is rank/main.go, MPI libraries have peers/mpi.c, PyTorch peers/meet.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"ddpbatch/internal/usage"
	"ddpbatch/scripts/bench/internal/command"
	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/report"
)

var bench = command.Program[options]{Name: "bench-start", Parse: parseOptions, Do: run}

func main() { bench.Main() }

func run(ctx context.Context, o options, dir string, stdout, stderr io.Writer) error {
	p, err := prepare(ctx, dir, o)
	if err != nil {
		return err
	}
	r := results{Header: newHeader(o, p)}
	r.Header.Print(stdout)
	for _, ranks := range o.ranks {
		for _, c := range p.comparisons {
			t, err := c.measure(ctx, o.Launches, ranks, stderr)
			if err != nil {
				return err
			}
			t.print(stdout)
			r.Tables = append(r.Tables, t)
			if err := o.WriteJSON(r); err != nil { // everything so far
				return err
			}
		}
	}
	r.Figures, err = paired.MeasureFigures(ctx, cluster{p.ddpbatch, dir}.experiments(o), stderr)
	report.Figures(stdout, "agents", r.Figures)
	return errors.Join(err, o.WriteJSON(r))
}

// options are the options of the command line.
type options struct {
	command.Common
	parts      []string
	peers      []string
	ranks      []int
	rendezvous shape
	idle       time.Duration
}

// shape is a number of nodes with a number of workers each.
type shape struct{ nodes, workers int }

func (s shape) String() string { return fmt.Sprintf("%dx%d", s.nodes, s.workers) }

var (
	knownParts = []string{"launch", "rendezvous", "idle", "crash"}
	knownPeers = []string{"mpich", "openmpi", "torch"}
)

const usageText = `How jobs begin and end: ddpbatch beside mpirun and torchrun, launched in turn; and many agents of it on this machine.

  ./scripts/bench-start --quick
  ./scripts/bench-start --json start.json >start.md
  ./scripts/bench-start --part launch --ranks 2,8 --peers mpich

launch: from the command to all ranks past a barrier. rendezvous: agents of a pretend cluster find each other. idle: what an agent uses
whose workers sleep. crash: from a worker's death to the end of all.

Tables are Markdown, on standard output; progress goes to standard error.
needs: Go and, on Debian, apt-get install mpich libmpich-dev openmpi-bin libopenmpi-dev python3-torch

`

func parseOptions(args []string, stderr io.Writer) (o options, err error) {
	quick := map[string]string{"ranks": "4", "rendezvous": "16x8", "idle": "5s"}
	f := command.NewFlags(&o.Common, usageText, " of 4 ranks, 16x8 agents, 5 s", quick)
	f.TakeProgram()
	f.Words(&o.parts, "part", "all", knownParts, ", or all")
	f.Peers(&o.peers, knownPeers)
	f.Numbers(&o.ranks, "ranks", "1,2,4", 1, mostProcesses, "numbers of ranks")
	command.Text(f, &o.rendezvous, "rendezvous", "64x8", "agents that find each other, and workers of each: `AxW`", parseShape)
	f.DurationVar(&o.idle, "idle", 3*time.Minute,
		"`TIME` for which an agent is watched, whose memory grows until it first collects garbage")
	err = f.Parse(args, stderr)
	if err == nil && (o.idle < time.Second || o.idle > time.Hour) {
		err = usage.Errorf("-idle is %v; it must be 1s to 1h", o.idle)
	}
	return o, err
}

// mostProcesses keeps a typing error from filling the machine.
const mostProcesses = 4096

func parseShape(flag, text string) (s shape, err error) {
	_, err = fmt.Sscanf(text, "%dx%d", &s.nodes, &s.workers)
	if err != nil || s.String() != text || min(s.nodes, s.workers) < 1 || s.nodes > mostProcesses/s.workers {
		return s, usage.Errorf("-%s: %q is not written like 64x8, or is more than %d workers", flag, text, mostProcesses)
	}
	return s, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi"
	"ddpbatch/mpi/launch"
)

// benchWorld starts o.ranks ranks of this program on this machine, as `ddpbatch run --standalone` would, and waits
// for their end. What they print goes to out.
func benchWorld(ctx context.Context, e *env, o benchOptions, out io.Writer) error {
	program, err := e.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start it as %d ranks: %w", o.ranks, err)
	}
	secret, err := auth.NewSecret()
	if err != nil {
		return err
	}
	defer bearClosedPipes()()
	verdict, err := launch.Run(ctx, launch.AgentConfig{
		Count: 1, Host: e.Hostname, Nproc: o.ranks, RunID: "bench", Attempt: 1, Secret: secret, Version: version,
		Command: append([]string{program}, o.args()...), Env: e.Environ, Dir: e.Dir, Builtin: true,
		Stdout: out, Stderr: e.Err, Log: e.log(),
	})
	switch {
	case err != nil:
		return err
	case verdict.Exit == 0:
		return nil
	case verdict.Cause == "crash" && verdict.Signal == 0:
		return &codeError{code: verdict.Exit} // the rank has said why
	}
	return &codeError{code: verdict.Exit, err: errors.New(verdict.Message)}
}

// startupLaunches is how often a world is started where --iters does not say.
const startupLaunches = 5

// benchStartup times worlds from their start to the moment when rank 0 says that all have met, and prints their
// row as soon as the last one has.
func benchStartup(ctx context.Context, e *env, o benchOptions) error {
	launches := o.iters
	if launches == 0 {
		launches = startupLaunches
	}
	print := benchPrinter{w: e.Out, json: o.json}
	print.heading(o, o.ranks)
	rank := o
	rank.json = true // no heading: the first that rank 0 prints is its row
	took := make([]float64, 0, launches)
	for range launches {
		start := now()
		met := onFirstWrite(func() {
			took = append(took, microsecondsOf(now()-start))
			if len(took) == launches {
				print.row(startupRow(took))
			}
		})
		if err := benchWorld(ctx, e, rank, met); err != nil {
			return err
		}
	}
	return print.err
}

// startupRow sorts us, which are of launches.
func startupRow(us []float64) benchRow {
	row := benchRow{Type: "none", Redop: "none", Algorithm: "none", Transport: "none"}
	return row.withTimes(timesOf(us), collectiveNamed("startup"), 1)
}

// startup is the part of a rank that is there already: how long its joining took, since joining, on the mean over
// ranks.
func (b *benchRank) startup(ctx context.Context, joining time.Duration) error {
	if err := b.comm.Barrier(ctx); err != nil {
		return err
	}
	took := []float64{microsecondsOf(now() - joining)}
	if err := mpi.AllReduce(ctx, b.comm, took, mpi.Sum); err != nil {
		return err
	}
	if b.rank == 0 {
		took[0] /= float64(b.ranks)
		b.print.row(startupRow(took))
	}
	return nil
}

// firstWrite calls f at the first write, and throws all of them away.
type firstWrite struct{ f func() }

func onFirstWrite(f func()) io.Writer { return firstWrite{sync.OnceFunc(f)} }

func (w firstWrite) Write(p []byte) (int, error) {
	w.f()
	return len(p), nil
}

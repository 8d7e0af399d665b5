package collbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/exit"
	"ddpbatch/mpi"
	"ddpbatch/mpi/launch"
)

// Process is what a bench needs from the process that it runs in.
type Process struct {
	Version, Hostname, Dir string
	Environ                []string
	MasterAddr             string // of the world to which this process belongs as a rank; "": it does not belong to one
	Executable             func() (string, error)
	Out, Err               io.Writer
	Log                    *slog.Logger
	Join                   func(context.Context, mpi.Config) (*mpi.Comm, error) // joins the world that the environment names
	Secret                 func() (auth.Secret, error)                          // returns the secret of this process's run
}

// RunWorld starts o.Ranks ranks on this machine, which make all rows.
func RunWorld(ctx context.Context, p Process, o Options) error {
	if err := o.checkWorld(o.Ranks); err != nil {
		return err
	}
	if o.collective.name == "startup" {
		return timeStartup(ctx, p, o)
	}
	return startWorld(ctx, p, o, p.Out)
}

// startWorld starts o.Ranks ranks of this program on this machine, as `ddpbatch run --standalone` would, and waits
// for their end. Their standard output goes to out.
func startWorld(ctx context.Context, p Process, o Options, out io.Writer) error {
	program, err := p.Executable()
	if err != nil {
		return fmt.Errorf("find this program to start it as %d ranks: %w", o.Ranks, err)
	}
	secret := auth.NewSecret()
	verdict, err := launch.Run(ctx, launch.AgentConfig{
		World:    launch.World{Count: 1, Host: p.Hostname, Nproc: o.Ranks},
		Identity: launch.Identity{RunID: "bench", Attempt: 1, Secret: secret, Version: p.Version},
		Workers:  launch.Workers{Command: append([]string{program}, o.Words...), Env: p.Environ, Dir: p.Dir, Builtin: true},
		Streams:  launch.Streams{Stdout: out, Stderr: p.Err},
		Log:      p.Log,
	})
	switch {
	case err != nil:
		return err
	case verdict.Exit == 0:
		return nil
	case verdict.Cause == "crash" && verdict.Signal == 0:
		return &exit.Error{Code: verdict.Exit} // the rank has said why
	}
	return &exit.Error{Code: verdict.Exit, Err: errors.New(verdict.Message)}
}

// startupLaunches is how often a world is started if --iters is not given.
const startupLaunches = 5

// timeStartup times worlds from their start to the moment when rank 0 reports that all ranks have joined, and prints their
// row as soon as the last world has.
func timeStartup(ctx context.Context, p Process, o Options) error {
	launches := o.Iters
	if launches == 0 {
		launches = startupLaunches
	}
	print := printer{w: p.Out, json: o.JSON}
	print.heading(p.Version, o, o.Ranks, "")
	rank := o
	at := slices.Index(o.Words, "--")
	if at < 0 {
		at = len(o.Words)
	}
	rank.Words = slices.Insert(slices.Clone(o.Words), at, "--json") // without a heading, rank 0's first output is its row
	took := make([]float64, 0, launches)
	for range launches {
		start := now()
		met := onFirstWrite(func() {
			took = append(took, microsecondsOf(now()-start))
			if len(took) == launches {
				print.row(startupRow(took))
			}
		})
		if err := startWorld(ctx, p, rank, met); err != nil {
			return err
		}
	}
	return print.err
}

// startupRow makes the row of launches that took the given microseconds. It sorts them.
func startupRow(us []float64) result {
	row := result{Type: "none", Redop: "none", Algorithm: "none", Transport: "none"}
	return row.withTimes(timesOf(us), &collective{}, 1)
}

// startup is the part of a rank that has joined: it prints how long joining took, since the time joining, as the mean over
// ranks.
func (b *bench) startup(ctx context.Context, joining time.Duration) error {
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

// firstWrite calls f at the first write, and discards what is written.
type firstWrite struct{ f func() }

func onFirstWrite(f func()) io.Writer { return firstWrite{sync.OnceFunc(f)} }

func (w firstWrite) Write(p []byte) (int, error) {
	w.f()
	return len(p), nil
}

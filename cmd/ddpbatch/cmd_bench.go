package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/builtin"
	"ddpbatch/internal/collbench"
	"ddpbatch/internal/placement"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi"
)

func newBenchCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:      "bench",
		Usage:     "time a collective over sizes and check its results: nccl-tests' columns",
		ArgsUsage: "COLLECTIVE",
		Description: example("ddpbatch bench allreduce -b 4 -e 64M -f 4 -n 2 --transport shm",
			"ddpbatch bench pingpong --json", "srun ddpbatch run -- ddpbatch bench allreduce"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "b", Usage: "smallest `SIZE` in bytes; K, M and G are powers of 1024", Value: "4"},
			&cli.StringFlag{Name: "e", Usage: "largest `SIZE`", Value: "64M"},
			&cli.Int64Flag{Name: "f", Usage: "multiply each size by `TIMES` to get the next", Value: 4},
			&cli.IntFlag{Name: "n", Usage: "start `N` ranks on this machine; not if this process is already a rank", DefaultText: "2"},
			&cli.StringFlag{Name: "transport", Usage: "transport `T`: auto, shm, tcp or ucx", Value: "auto"},
			&cli.StringFlag{Name: "algorithm", Usage: "algorithm `NAME`; auto: the one that is chosen for each size", Value: "auto"},
			&cli.BoolFlag{Name: "explain", Usage: "time every algorithm, and show what the model predicts for it and which one it chooses"},
			&cli.BoolFlag{Name: "deterministic", Usage: "reductions in the canonical order; --deterministic=false permits other algorithms",
				Value: true},
			&cli.BoolFlag{Name: "encrypt", Usage: "encrypt data between ranks that do not share memory, as mpi.encrypt does"},
			&cli.BoolFlag{Name: "alloc", Usage: "buffers from comm.Alloc: ranks of one machine then access each other's memory"},
			&cli.StringFlag{Name: "type", Usage: "element type `T`, such as float64, bfloat16 or int32", Value: "float32"},
			&cli.StringFlag{Name: "op", Usage: "reduce operation `OP`: sum, prod, min or max", Value: "sum"},
			&cli.IntFlag{Name: "iters", Usage: "`N` timed calls of each size; 0: as many as fit into the budget, 7 to 10,000"},
			&cli.IntFlag{Name: "warmup", Usage: "`N` untimed calls before them; 0: a tenth of the budget"},
			&cli.DurationFlag{Name: "budget", Usage: "`TIME` for the calls of one size", Value: 200 * time.Millisecond},
			jsonFlag(),
		},
		Action: withArg("collective", func(c *cli.Context, name string) (err error) {
			o := collbench.Options{
				Ranks: c.Int("n"), Factor: c.Int64("f"), Transport: c.String("transport"), Algorithm: c.String("algorithm"),
				Encrypt: c.Bool("encrypt"), Alloc: c.Bool("alloc"), Explain: c.Bool("explain"), Deterministic: c.Bool("deterministic"),
				Iters: c.Int("iters"), Warmup: c.Int("warmup"), Budget: c.Duration("budget"), JSON: c.Bool("json"),
				Words: c.Lineage()[1].Args().Slice(),
			}
			if err := o.SetNames(name, c.String("type"), c.String("op")); err != nil {
				return err
			}
			if o.Begin, err = collbench.ParseBytes("-b", c.String("b")); err != nil {
				return err
			}
			if o.End, err = collbench.ParseBytes("-e", c.String("e")); err != nil {
				return err
			}
			if err := o.SetTransport(e.get("DDPBATCH_TRANSPORT")); err != nil {
				return err
			}
			if err := o.Check(c.IsSet); err != nil {
				return err
			}
			return runBench(c.Context, e, o)
		}),
	}
}

// runBench runs one rank of the world that the environment describes, or starts a world on this machine.
func runBench(ctx context.Context, e *env, o collbench.Options) error {
	process := collbench.Process{
		Version: version, Hostname: e.Hostname, Dir: e.Dir, Environ: e.Environ, MasterAddr: e.get("MASTER_ADDR"), Executable: e.Executable,
		Out: e.Out, Err: e.Err, Log: e.log(),
		Join: func(ctx context.Context, cfg mpi.Config) (*mpi.Comm, error) {
			return builtin.JoinWorld(ctx, e.lookup, cfg, e.log())
		},
		Secret: func() (auth.Secret, error) { return runSecret(e, runIDOf(e)) },
	}
	size := e.get("WORLD_SIZE")
	if size != "" || e.get("RANK") != "" {
		if o.Ranks != 0 && size != fmt.Sprint(o.Ranks) {
			return usage.Errorf("-n is %d, but WORLD_SIZE %q shows that this process is already a rank; leave -n out",
				o.Ranks, size)
		}
		return collbench.RunRank(ctx, process, o)
	}
	if tasks := placement.Tasks(e.lookup); tasks > 1 {
		return &usage.Error{
			Message: fmt.Sprintf("SLURM_NTASKS is %d: each task would start a world of its own", tasks),
			Hint:    fmt.Sprintf("make them ranks of one world: srun ddpbatch run -- ddpbatch bench %s", o.Collective()),
		}
	}
	if o.Ranks == 0 {
		o.Ranks = 2
	}
	defer tolerateClosedPipes()()
	return collbench.RunWorld(ctx, process, o)
}

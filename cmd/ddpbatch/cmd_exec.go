package main

import (
	"context"
	"os"
	"slices"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/live"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/usage"
	streams "ddpbatch/mpi/launch/output"
	"ddpbatch/slurm"
)

func newExecCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:      "exec",
		Usage:     "run a command on the nodes of a running job",
		ArgsUsage: "JOB -- CMD...",
		Description: example("ddpbatch exec 123 -- nvidia-smi",
			"ddpbatch exec 123 --rank all -- sh -c 'py-spy dump --pid $DDPBATCH_RANK_PID'"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "rank",
				Usage: "once for each of these `RANKS`, in its environment: 3, 0,3-5, or all (default: once on each node)"},
			&cli.StringFlag{Name: "node", Usage: "only on this `NODE`"},
			runDirFlag(),
		},
		Action: func(c *cli.Context) error {
			words, command, _ := splitDash(c.Args().Slice())
			if len(words) != 1 || len(command) == 0 {
				return &usage.Error{Message: "exec needs JOB -- CMD...", Hint: tryHelp(c)}
			}
			where, err := whereFlags(c)
			if err != nil {
				return err
			}
			job, err := openLive(c, e, words[0])
			if err != nil {
				return err
			}
			return codeError(job.Exec(c.Context, where, command, live.Streams{Out: unchecked(e.Out), Err: e.Err}))
		},
	}
}

func newShellCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "shell",
		Usage:       "open a shell beside a rank of a running job",
		ArgsUsage:   "JOB",
		Description: example("ddpbatch shell 123", "ddpbatch shell 123 --rank 5"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "rank", Usage: "on the node of this `RANK`, in its environment (default: the lowest)"},
			&cli.StringFlag{Name: "node", Usage: "on this `NODE`"},
			runDirFlag(),
		},
		Action: withArg("job id or run directory", func(c *cli.Context, name string) error {
			where, err := whereFlags(c)
			if err != nil {
				return err
			}
			if len(where.Ranks) > 1 || where.All {
				return usage.Errorf("--rank is %q: a shell runs beside one rank", c.String("rank"))
			}
			job, err := openLive(c, e, name)
			if err != nil {
				return err
			}
			s := live.Streams{Out: unchecked(e.Out), Err: e.Err}
			s.In, _ = e.In.(*os.File)
			ctx := c.Context
			if s.In != nil && term.IsTerminal(int(s.In.Fd())) {
				s.Terminal, ctx = true, context.WithoutCancel(ctx) // the shell has the terminal, and Ctrl-C is for what runs in it
			}
			return codeError(job.Shell(ctx, where, s))
		}),
	}
}

// whereFlags parses --rank and --node.
func whereFlags(c *cli.Context) (w live.Where, err error) {
	w.Node = c.String("node")
	switch text := c.String("rank"); {
	case !c.IsSet("rank"):
	case w.Node != "":
		return w, usage.Errorf("--rank and --node exclude each other")
	case text == "all":
		w.All = true
	default:
		if w.Ranks, err = streams.ParseRanks(text); err != nil {
			return w, usage.Errorf("--rank %v", err)
		}
		if len(w.Ranks) == 0 {
			return w, usage.Errorf("--rank is empty")
		}
	}
	return w, nil
}

// openLive opens a running job.
func openLive(c *cli.Context, e *env, name string) (*live.Job, error) {
	run, id, err := e.viewer().Find(runsFolder(e, c), name)
	if err != nil {
		return nil, err
	}
	kept, _ := slurm.Scrub(e.Environ)
	return live.Open(c.Context, e.viewer(), kept, run, id)
}

// codeError returns an error without further message for a command's own exit code.
func codeError(code int, err error) error {
	switch {
	case err != nil && exitCode(err) == exit.Failed:
		return &exit.Error{Code: max(code, exit.Failed), Err: err}
	case err != nil || code == 0:
		return err
	}
	return &exit.Error{Code: code}
}

// newBesideCommand returns the command that shell, exec and stacks start on the nodes of a job. It is hidden because users do not type it.
func newBesideCommand(e *env) *cli.Command {
	flags := func(more ...cli.Flag) []cli.Flag {
		return slices.Concat(more, []cli.Flag{
			&cli.StringFlag{Name: "node", Usage: "the `NAME` of this node, if it is a pretend one"},
			&cli.StringFlag{Name: "rank", Usage: "`RANKS` of any nodes"},
		})
	}
	return &cli.Command{
		Name: "beside", Usage: "run beside the ranks of a node (started by shell, exec and stacks)", Hidden: true,
		Subcommands: []*cli.Command{
			{
				Name: "command", Usage: "run a command", ArgsUsage: "RUN CMD...",
				Flags: flags(&cli.StringFlag{Name: "label", Usage: "prefix of each line"}),
				Action: func(c *cli.Context) error {
					if err := checkWords(c, 2, -1); err != nil {
						return err
					}
					n, ranks, err := liveNode(c, e)
					if err != nil {
						return err
					}
					return codeError(n.Exec(c.Context, ranks, c.String("label"), c.Args().Tail(), unchecked(e.Out), e.Err))
				},
			},
			{
				Name: "stacks", Usage: "print the stacks of the ranks' threads", ArgsUsage: "RUN", Flags: flags(),
				Action: func(c *cli.Context) error {
					if err := checkWords(c, 1, 1); err != nil {
						return err
					}
					n, _, err := liveNode(c, e)
					if err != nil {
						return err
					}
					return n.Stacks(c.Context, e.Out)
				},
			},
			{
				Name: "shell", Usage: "become a shell", ArgsUsage: "RUN", Flags: flags(),
				Action: func(c *cli.Context) error {
					if err := checkWords(c, 1, 1); err != nil {
						return err
					}
					n, ranks, err := liveNode(c, e)
					if err != nil {
						return err
					}
					return n.Shell(append(ranks, -1)[0], e.Err)
				},
			},
		},
	}
}

// liveNode returns the node that this process is on, of the run that its first argument names.
func liveNode(c *cli.Context, e *env) (n live.Node, ranks []int, err error) {
	run, err := rundir.OpenOwn(e.abs(c.Args().First()))
	if err != nil {
		return n, nil, err
	}
	if ranks, err = streams.ParseRanks(c.String("rank")); err != nil {
		return n, nil, usage.Errorf("--rank %v", err)
	}
	n = live.Node{Run: run, Name: c.String("node"), Environ: e.Environ}
	if n.Name == "" {
		n.Name = e.get("SLURMD_NODENAME")
	}
	if n.Name == "" {
		return n, nil, usage.Errorf("SLURMD_NODENAME is not set: this command must be started by srun")
	}
	return n, ranks, nil
}

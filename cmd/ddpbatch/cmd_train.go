package main

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/internal/builtin"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/usage"
)

func newTrainCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "train",
		Usage:       "run one rank of the built-in trainer; without an agent: a world of one",
		ArgsUsage:   "JOB",
		Description: example("ddpbatch train job.toml", `srun -n8 bash -c 'eval "$(ddpbatch env)"; exec ddpbatch train job.toml'`),
		Flags:       []cli.Flag{exportFlag(), setFlag()},
		Action: func(c *cli.Context) error {
			if !c.Args().Present() && e.get("DDPBATCH_RUN_DIR") != "" {
				return runTrain(c.Context, e, "", nil) // a rank that an agent started
			}
			path, err := oneArg(c, "job file")
			if err != nil {
				return err
			}
			sets, err := withExport(e, c, c.StringSlice("set"))
			if err != nil {
				return err
			}
			return runTrain(c.Context, e, e.abs(path), sets)
		},
	}
}

func runTrain(ctx context.Context, e *env, path string, sets []string) error {
	if err := builtin.RefuseSingleton(e.lookup); err != nil {
		return err
	}
	if path == "" {
		return runLaunched(ctx, e)
	}
	job, text, err := loadJob(ctx, e, path, sets)
	if err != nil {
		return err
	}
	if !job.Builtin() {
		return usage.Errorf("%s runs a command, not the built-in trainer; leave launch.command out", path)
	}
	if err := refuseSweep(job, "train"); err != nil {
		return err
	}
	if err := job.CheckFiles(); err != nil {
		return err
	}
	r := e.rank(job, nil)
	r.NewRun = func() (*rundir.Dir, error) { return newRun(ctx, e, "train", job, path, text, sets, nil) }
	return r.Work(ctx)
}

// runLaunched runs a rank that an agent started: the run directory has its job.
func runLaunched(ctx context.Context, e *env) error {
	run, err := rundir.OpenOwn(e.get("DDPBATCH_RUN_DIR"))
	if err != nil {
		return err
	}
	attempt, err := strconv.Atoi(e.get("DDPBATCH_ATTEMPT"))
	if err != nil || attempt < 1 {
		return usage.Errorf("DDPBATCH_RUN_DIR is set, but DDPBATCH_ATTEMPT is %q: the agent sets both", e.get("DDPBATCH_ATTEMPT"))
	}
	job, err := jobfile.OfRun(run)
	if err != nil {
		return err
	}
	r := e.rank(job, run)
	r.Attempt = attempt
	return r.Work(ctx)
}

// rank returns this process as a rank of the built-in trainer.
func (e *env) rank(job *jobfile.Job, run *rundir.Dir) *builtin.Rank {
	return &builtin.Rank{
		Job: job, Run: run, Lookup: e.lookup, Hostname: e.Hostname, Now: e.Now, Out: unchecked(e.Out), Log: e.log(), ExitCode: exitCode,
	}
}

func exportFlag() cli.Flag {
	return &cli.StringFlag{Name: "export", Usage: "write the final model to `FILE`, in the format safetensors"}
}

// withExport turns --export into the job's key. It refuses a name that the key would not accept, in the words of the flag.
func withExport(e *env, c *cli.Context, sets []string) ([]string, error) {
	if !c.IsSet("export") {
		return sets, nil
	}
	file := c.String("export")
	if err := safetensors.CheckName(file, e.dir().Named); err != nil {
		return nil, usage.Errorf("--export: %v", err)
	}
	quoted, _ := json.Marshal(e.abs(file)) // JSON's text is also TOML's
	return append(sets, "train.export="+string(quoted)), nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/inspect"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/internal/vfs"
)

func newCkptPruneCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "prune", Usage: "remove the checkpoints of a run that no rule keeps; the default rules are those of its job file",
		ArgsUsage: "RUN",
		Description: example("ddpbatch ckpt prune --dry-run 123", "ddpbatch ckpt prune 123 --keep-last 2 --keep-every 1000",
			"ddpbatch ckpt prune 123 --keep-last 2 --keep-best 3 --metric eval_loss"),
	}, 1, 1, []cli.Flag{
		&cli.BoolFlag{Name: "dry-run", Usage: "only show what would be kept and removed, and why"},
		&cli.IntFlag{Name: "keep-last", Usage: "keep the newest `N`, at least 2", DefaultText: "2 if only other rules are given"},
		&cli.Int64Flag{Name: "keep-every", Usage: "keep each step that is a multiple of `N`", DefaultText: "none"},
		&cli.DurationFlag{Name: "keep-within", Usage: "keep those made within the last `D`, such as 24h", DefaultText: "none"},
		&cli.IntFlag{Name: "keep-best", Usage: "keep the best `N` by --metric", DefaultText: "none"},
		&cli.StringFlag{Name: "metric", Usage: "`NAME` of the metric of --keep-best, such as eval_loss; smaller is better"},
		&cli.BoolFlag{Name: "max", Usage: "larger values of the metric are better"},
		&cli.BoolFlag{Name: "force", Usage: "also if the run is, or may be, alive"},
	}, func(c *cli.Context, words []string) error {
		folder, err := finderOf(e, c).Find(c.Context, words[0])
		if err != nil {
			return err
		}
		if folder.Only != "" {
			return usage.Errorf("ckpt prune takes a run or a folder of checkpoints, not one checkpoint")
		}
		policy, err := policyOf(c, folder)
		if err != nil {
			return err
		}
		if !c.Bool("dry-run") {
			if err := checkOwnFolder(e, folder, words[0]); err != nil {
				return err
			}
		}
		if !c.Bool("dry-run") && !c.Bool("force") {
			if err := refuseAlive(c.Context, e, folder.Run); err != nil {
				return err
			}
		}
		return runCkptPrune(c.Context, e, folder, policy, c.IsSet("metric"), c.Bool("dry-run"), c.Bool("json"))
	})
}

func runCkptPrune(ctx context.Context, e *env, folder inspect.Folder, policy checkpoint.Policy, ofMetric, dryRun, asJSON bool) error {
	rows, failed, err := folder.Prune(ctx, policy, ofMetric, dryRun)
	if unknown, ok := errors.AsType[*inspect.NoMetricError](err); ok {
		hint := ""
		if near := text.Nearest(policy.Metric, unknown.Known); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		return &usage.Error{Message: unknown.Error(), Hint: hint}
	}
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(e, rows)
	} else {
		var sum string
		if sum, err = ckptPrinter(e).Pruned(rows, dryRun); err == nil {
			_, err = fmt.Fprintln(e.Err, sum)
		}
	}
	if failed == nil {
		return err
	}
	code := exitCode(failed)
	if code == exit.Failed { // the removal stopped half way; it has no code of its own
		code = exitPartly
	}
	return &exit.Error{Code: code, Err: failed}
}

// policyOf returns the policy of the flags, or of the run's job if there are none.
func policyOf(c *cli.Context, folder inspect.Folder) (checkpoint.Policy, error) {
	policy := checkpoint.Policy{
		Last: c.Int("keep-last"), Every: c.Int64("keep-every"), Within: c.Duration("keep-within"),
		Best: c.Int("keep-best"), Metric: c.String("metric"), Max: c.Bool("max"),
	}
	given := c.IsSet("keep-last") || c.IsSet("keep-every") || c.IsSet("keep-within") || c.IsSet("keep-best")
	switch {
	case (policy.Best > 0) != (policy.Metric != ""):
		return policy, usage.Errorf("--keep-best N and --metric NAME must be given together")
	case policy.Max && policy.Metric == "":
		return policy, usage.Errorf("--max needs --metric")
	case policy.Last < 0 || policy.Every < 0 || policy.Within < 0 || policy.Best < 0:
		return policy, usage.Errorf("the --keep flags must be at least 0")
	case !given && folder.Run != nil:
		job, err := jobfile.OfRun(folder.Run)
		if err != nil {
			return policy, err
		}
		policy = job.Checkpoint.Policy(job.Train.Evaluate.Best)
	}
	if policy == (checkpoint.Policy{}) {
		return policy, usage.Errorf("no rule says what to keep, so all checkpoints would be removed; " +
			"give one: --keep-last N, --keep-every N, --keep-within D or --keep-best N --metric NAME")
	}
	if policy.Last == 0 && given {
		policy.Last = 2 // the given rules keep more than the fallback that every run needs
	}
	if err := policy.Validate(); err != nil {
		return policy, usage.Errorf("%v", err)
	}
	return policy, nil
}

// checkOwnFolder returns vfs.ErrExposed if the checkpoints belong to another user, or if another user could exchange them while they are
// being removed. name is what the user typed. It may be a link of another user that leads to a run of the caller.
func checkOwnFolder(e *env, folder inspect.Folder, name string) error {
	if err := vfs.CheckLinks(e.abs(name)); errors.Is(err, vfs.ErrExposed) {
		return fmt.Errorf("%w; name the folder itself", err)
	}
	if folder.Run != nil {
		return checkOwn(e, folder.Run)
	}
	info, err := os.Stat(folder.Path)
	if err != nil {
		return err
	}
	return vfs.CheckOwner(folder.Path, info)
}

// refuseAlive returns an error if the run may be writing checkpoints.
func refuseAlive(ctx context.Context, e *env, run *rundir.Dir) error {
	if run == nil {
		return nil
	}
	row, err := e.viewer().Status(ctx, run)
	if err != nil {
		return err
	}
	name := row.Job
	if name == "" {
		name = e.short(run.Path())
	}
	switch {
	case !row.Ended:
		return usage.Errorf("job %s is still %s; wait for its end, or cancel it: ddpbatch cancel %s", name, row.State, name)
	case row.Attempt > 0 && row.Exit == nil && row.VerdictJob == "":
		return usage.Errorf("attempt %d of %s has left no verdict, so it may still run; if you know that it does not, use --force",
			row.Attempt, name)
	}
	return nil
}

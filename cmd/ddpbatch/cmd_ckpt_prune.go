package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint"
)

func newCkptPruneCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "prune", Usage: "remove the checkpoints of a run that no rule keeps; the rules are those of its job file where none is given", ArgsUsage: "RUN",
		Description: example("ddpbatch ckpt prune --dry-run 123", "ddpbatch ckpt prune 123 --keep-last 2 --keep-every 1000", "ddpbatch ckpt prune 123 --keep-last 2 --keep-best 3 --metric eval_loss"),
	}, 1, 1, []cli.Flag{
		&cli.BoolFlag{Name: "dry-run", Usage: "only show what would be kept and removed, and why"},
		&cli.IntFlag{Name: "keep-last", Usage: "keep the newest `N`, at least 2", DefaultText: "2 where only other rules are given"},
		&cli.Int64Flag{Name: "keep-every", Usage: "keep each step that is a multiple of `N`", DefaultText: "none"},
		&cli.DurationFlag{Name: "keep-within", Usage: "keep those made no longer ago than `D`, such as 24h", DefaultText: "none"},
		&cli.IntFlag{Name: "keep-best", Usage: "keep the best `N` by --metric", DefaultText: "none"},
		&cli.StringFlag{Name: "metric", Usage: "`NAME` of the metric of --keep-best, as eval_loss; the smaller the better"},
		&cli.BoolFlag{Name: "max", Usage: "a larger metric is the better one"},
		&cli.BoolFlag{Name: "force", Usage: "also while the run is, or may be, alive"},
	}, func(c *cli.Context, words []string) error {
		place, err := findCheckpoints(e, c, words[0])
		if err != nil {
			return err
		}
		if place.folder != "" {
			return usagef("ckpt prune takes a run or a folder of checkpoints, and not one checkpoint")
		}
		policy, err := place.policy(c)
		if err != nil {
			return err
		}
		if !c.Bool("dry-run") {
			if err := place.checkOwn(e, words[0]); err != nil {
				return err
			}
		}
		if !c.Bool("dry-run") && !c.Bool("force") {
			if err := refuseAlive(c.Context, e, place.run, "once you know that it does not: --force"); err != nil {
				return err
			}
		}
		return runCkptPrune(c.Context, e, place, policy, c.IsSet("metric"), c.Bool("dry-run"), c.Bool("json"))
	})
}

// pruned is a row of prune; its JSON names are a contract.
type pruned struct {
	checkpoint.Decision
	Removed bool `json:"removed"`
}

func runCkptPrune(ctx context.Context, e *env, place ckptPlace, policy checkpoint.Policy, metricGiven, dryRun, asJSON bool) error {
	dir, err := place.openToWrite(ctx, e)
	if err != nil {
		return err
	}
	plan, err := dir.Plan(ctx, policy)
	if err != nil {
		return err
	}
	if len(plan) > 0 && metricGiven {
		if err := place.hasMetric(e, plan, policy.Metric); err != nil {
			return err
		}
	}
	var failed error
	if !dryRun {
		_, failed = dir.Prune(ctx, policy)
	}
	if len(plan) == 0 && failed == nil {
		return place.none(e)
	}
	rows := []pruned{}
	for _, d := range plan {
		rows = append(rows, pruned{d, !d.Keep && isRemoved(d.Path)})
	}
	if asJSON {
		err = printJSON(e, rows)
	} else {
		err = printPruned(e, rows, dryRun)
	}
	if failed != nil {
		return &codeError{code: pruneCode(failed), err: failed}
	}
	return err
}

// isRemoved says whether a folder holds no checkpoint any more, not even one whose removal has begun. What a user has put there may still be.
func isRemoved(folder string) bool {
	for _, name := range []string{"MANIFEST.json", "MANIFEST.deleting"} {
		if _, err := os.Lstat(filepath.Join(folder, name)); !errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	return true
}

// pruneCode is that of a removal that stopped half way, unless its error has one of its own.
func pruneCode(err error) int {
	if code := exitCode(err); code != exitFailed {
		return code
	}
	return exitPartly
}

func printPruned(e *env, rows []pruned, dryRun bool) error {
	t := newTable(e, "STEP", "DO", "SIZE", "CREATED", "REASONS", "PATH")
	freed, gone := int64(0), 0
	for _, r := range rows {
		what := "KEEP"
		switch {
		case r.Keep:
		case dryRun || r.Removed:
			what = "REMOVE"
			freed, gone = freed+r.Bytes, gone+1
		default:
			what = "FAILED"
		}
		t.row(strconv.FormatInt(r.Step, 10), what, t.size(r.Bytes), timeText(r.Created), orDash(strings.Join(r.Reasons, ", ")), e.short(r.Path))
	}
	if err := t.flush(); err != nil {
		return err
	}
	done := "removed"
	if dryRun {
		done = "would remove"
	}
	_, err := fmt.Fprintf(e.Err, "%s %s, %s\n", done, plural(gone, "checkpoint"), t.bytes(freed))
	return err
}

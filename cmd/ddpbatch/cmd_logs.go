package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
)

// How often a followed log and its job are looked at. Logs lie on shared file systems, where
// nothing can wait for a change.
const (
	logPoll   = 200 * time.Millisecond
	statePoll = time.Second
)

func newLogsCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "logs",
		Usage:       "print a job's output; -f goes on until its end",
		ArgsUsage:   "JOB",
		Description: example("ddpbatch logs -f 123", "ddpbatch logs 123 --rank 3"),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until the job ends"},
			&cli.IntFlag{Name: "rank", Usage: "only what rank `R` wrote, standard output and then error, in the newest attempt"},
			&cli.IntFlag{Name: "attempt", Usage: "with --rank: in attempt `N`"},
			runDirFlag(),
		},
		Action: func(c *cli.Context) error {
			name, err := oneArg(c, "job id or run directory")
			if err != nil {
				return err
			}
			rank, attempt := c.Int("rank"), c.Int("attempt")
			switch {
			case c.IsSet("rank") && rank < 0:
				return usagef("--rank is %d; ranks count from 0", rank)
			case c.IsSet("attempt") && attempt < 1:
				return usagef("--attempt is %d; attempts count from 1", attempt)
			case c.IsSet("attempt") && !c.IsSet("rank"):
				return usagef("--attempt goes with --rank: the job's log holds all attempts of that job")
			case c.IsSet("rank") && c.Bool("follow"):
				return usagef("--follow shows the whole job; leave --rank out")
			}
			run, id, err := findJob(e, e.abs(c.String("runs")), name)
			if err != nil {
				return err
			}
			switch {
			case c.IsSet("rank"):
				return runRankLogs(e, run, attempt, rank)
			case c.Bool("follow"):
				return follow(c.Context, e, run, id)
			}
			return printLog(e, run, id)
		},
	}
}

func printLog(e *env, run *rundir.Dir, id string) error {
	tail := &tailer{path: run.SlurmLogPath(id), to: e.Out}
	defer tail.close()
	if err := tail.copy(); err != nil {
		return err
	}
	if tail.file == nil {
		fmt.Fprintln(e.Err, "no output yet")
	}
	return nil
}

func runRankLogs(e *env, run *rundir.Dir, attempt, rank int) error {
	if attempt == 0 {
		newest, err := run.NewestAttempt()
		if err != nil {
			return err
		}
		if attempt = newest; attempt == 0 {
			fmt.Fprintln(e.Err, "no output yet")
			return nil
		}
	}
	paths, err := run.RankLogs(attempt, rank)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("attempt %d has no log of rank %d in %s", attempt, rank, run.LogsPath(attempt))
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Size() == 0 {
			continue
		}
		fmt.Fprintf(e.Err, "==> %s <==\n", e.short(path))
		tail := &tailer{path: path, to: e.Out}
		err := tail.copy()
		tail.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// follow copies the job's log as it grows, until the job has ended, and returns how it
// ended.
func follow(ctx context.Context, e *env, run *rundir.Dir, id string) error {
	tail := &tailer{path: run.SlurmLogPath(id), to: e.Out}
	defer tail.close()
	return untilEnd(ctx, e, run, id, tail.copy)
}

// afterSubmit does what --wait and --follow ask for.
func afterSubmit(ctx context.Context, e *env, run *rundir.Dir, id string, wait, followIt bool) error {
	switch {
	case followIt:
		return follow(ctx, e, run, id)
	case wait:
		return untilEnd(ctx, e, run, id, func() error { return nil })
	}
	return nil
}

// untilEnd calls each again and again until the job has ended; its error carries the
// job's exit code.
func untilEnd(ctx context.Context, e *env, run *rundir.Dir, id string, each func() error) error {
	ticker := time.NewTicker(logPoll)
	defer ticker.Stop()
	var asked time.Time
	var warned bool
	for {
		if err := each(); err != nil {
			return err
		}
		if e.Now().Sub(asked) >= statePoll {
			row, err := statusOf(ctx, e, run)
			switch {
			case errors.Is(err, slurm.ErrUnreachable) && ctx.Err() == nil:
				// a controller is restarted now and then, and the job runs on
				if !warned {
					e.log().Warn("the job's state is not known for now", "error", err)
				}
				warned = true
			case err != nil:
				return err
			case row.ended:
				return errors.Join(each(), endOf(run, id, row))
			}
			asked = e.Now()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// endOf makes a job's end into an error: nil where it is done.
func endOf(run *rundir.Dir, id string, row jobStatus) error {
	if v, err := run.Verdict(row.Attempt); err == nil && v.JobID == id {
		if v.Exit == 0 {
			return nil
		}
		return &codeError{code: v.Exit, err: fmt.Errorf("job %s: %s", id, v.Message)}
	}
	if row.State == "COMPLETED" {
		return nil
	}
	reason := row.Reason
	if reason == "" {
		reason = "no agent left a verdict; see ddpbatch logs " + id
	}
	return &codeError{code: exitFailed, err: fmt.Errorf("job %s ended as %s: %s", id, row.State, reason)}
}

// tailer copies what has been added to a file since the last time. The file may come
// into being later.
type tailer struct {
	path string
	to   io.Writer
	file *os.File
}

func (t *tailer) copy() error {
	if t.file == nil {
		f, err := os.Open(t.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("open the log: %w", err)
		}
		t.file = f
	}
	if _, err := io.Copy(t.to, t.file); err != nil {
		return fmt.Errorf("copy the log %s: %w", strconv.Quote(t.path), err)
	}
	return nil
}

func (t *tailer) close() {
	if t.file != nil {
		t.file.Close()
	}
}

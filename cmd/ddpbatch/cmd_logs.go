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
			&cli.IntFlag{Name: "rank", Usage: "one rank's own files, standard output and error, of the newest attempt", Value: -1},
			&cli.IntFlag{Name: "attempt", Usage: "with --rank: of attempt `N`"},
			runDirFlag(),
		},
		Action: func(c *cli.Context) error {
			name, err := oneArg(c, "job id or run directory")
			if err != nil {
				return err
			}
			run, id, err := findJob(e, e.abs(c.String("runs")), name)
			if err != nil {
				return err
			}
			if rank := c.Int("rank"); rank >= 0 {
				if c.Bool("follow") {
					return usagef("--follow shows the whole job; leave --rank out")
				}
				return runRankLogs(e, run, c.Int("attempt"), rank)
			}
			if c.Bool("follow") {
				return follow(c.Context, e, run, id)
			}
			return printLog(e, run, id)
		},
	}
}

func printLog(e *env, run *rundir.Dir, id string) error {
	f, err := os.Open(run.SlurmLogPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(e.Err, "no output yet")
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the job's log: %w", err)
	}
	defer f.Close()
	if _, err = io.Copy(e.Out, f); err != nil {
		return fmt.Errorf("copy the job's log: %w", err)
	}
	return nil
}

func runRankLogs(e *env, run *rundir.Dir, attempt, rank int) error {
	if attempt == 0 {
		newest, err := run.NewestAttempt()
		if err != nil {
			return err
		}
		attempt = newest
	}
	paths, err := run.RankLogs(attempt, rank)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("attempt %d has no log of rank %d in %s", attempt, rank, run.LogsPath(attempt))
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read the log of rank %d: %w", rank, err)
		}
		if len(text) > 0 {
			fmt.Fprintf(e.Err, "==> %s <==\n", e.short(path))
			if _, err := e.Out.Write(text); err != nil {
				return err
			}
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
	for {
		if err := each(); err != nil {
			return err
		}
		if e.Now().Sub(asked) >= statePoll {
			row, err := statusOf(ctx, e, run)
			if err != nil {
				return err
			}
			if row.ended {
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
			return fmt.Errorf("open the job's log: %w", err)
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

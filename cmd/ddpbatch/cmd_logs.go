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
	"ddpbatch/internal/vfs"
	streams "ddpbatch/mpi/launch/output"
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
		Description: example("ddpbatch logs -f 123", "ddpbatch logs 123 --rank 0,3-5", "ddpbatch logs 123 --rank 3 --attempt all"),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until the job ends, over restarts and requeues"},
			&cli.StringFlag{Name: "rank", Usage: "only what these `RANKS` wrote themselves, standard output and error: 3, or 0,3-5"},
			&cli.StringFlag{Name: "attempt", Usage: "what ranks wrote in attempt `N`, or in all (default with --rank: the newest, and with -f also those that come)"},
			runDirFlag(),
		},
		Action: func(c *cli.Context) error {
			name, err := oneArg(c, "job id or run directory")
			if err != nil {
				return err
			}
			l := rankLogs{e: e}
			if l.ranks, err = parseLogRanks(c); err != nil {
				return err
			}
			if l.first, l.last, err = parseLogAttempts(c.String("attempt"), c.IsSet("attempt")); err != nil {
				return err
			}
			run, id, err := findJob(e, e.abs(c.String("runs")), name)
			if err != nil {
				return err
			}
			l.run = run
			ofRanks, isArray := c.IsSet("rank") || c.IsSet("attempt"), isArray(run)
			if isArray {
				if id, err = wholeJob(run); err != nil {
					return err
				}
			}
			switch {
			case ofRanks && isArray && c.Bool("follow"):
				return l.followArray(c.Context, id)
			case ofRanks && isArray:
				return l.printArray()
			case ofRanks && c.Bool("follow"):
				return l.follow(c.Context, id)
			case ofRanks:
				return l.print()
			case isArray && c.Bool("follow"):
				return newArrayLog(e, run).follow(c.Context, id)
			case isArray:
				return newArrayLog(e, run).print()
			case c.Bool("follow"):
				return follow(c.Context, e, run, id)
			}
			return printLog(e, run, id)
		},
	}
}

func parseLogRanks(c *cli.Context) ([]int, error) {
	if !c.IsSet("rank") {
		return nil, nil
	}
	ranks, err := streams.ParseRanks(c.String("rank"))
	switch {
	case err != nil:
		return nil, usagef("--rank %v", err)
	case len(ranks) == 0:
		return nil, usagef("--rank names no rank")
	}
	return ranks, nil
}

// parseLogAttempts reads --attempt: the first attempt and the last; 0 is the newest as the first, and all that come as the last.
func parseLogAttempts(text string, given bool) (first, last int, err error) {
	switch {
	case !given:
		return 0, 0, nil
	case text == "all":
		return 1, 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, 0, usagef("--attempt is %q: give a number, attempts count from 1, or all", text)
	}
	return n, n, nil
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

// follow copies the job's log as it grows, until the job has ended, and returns how it
// ended.
func follow(ctx context.Context, e *env, run *rundir.Dir, id string) error {
	if isArray(run) {
		a := newArrayLog(e, run)
		a.only = id
		return a.follow(ctx, id)
	}
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
			row, err := howFar(ctx, e, run, id)
			switch {
			case err != nil && ctx.Err() != nil:
				return goesOn(ctx, e, run, id)
			case errors.Is(err, slurm.ErrUnreachable):
				// a controller is restarted now and then, and the job runs on
				if !warned {
					e.log().Warn("the job's state is not known for now", "error", err)
				}
				warned = true
			case err != nil:
				return err
			case row.ended:
				return errors.Join(each(), endOf(id, row))
			}
			asked = e.Now()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return goesOn(ctx, e, run, id)
		}
	}
}

// howFar is a job's status. While an array goes on its elements, which may be a thousand, are not looked at.
func howFar(ctx context.Context, e *env, run *rundir.Dir, id string) (jobStatus, error) {
	if isArray(run) {
		if goesOn, err := arrayGoesOn(ctx, e, run, id); err != nil || goesOn {
			return jobStatus{}, err
		}
	}
	row, err := statusOf(ctx, e, run)
	return row.ofJob(id), err
}

// endOf makes a job's end into an error: nil where it is done.
func endOf(id string, row jobStatus) error {
	switch {
	case len(row.elements) == 1:
		return row.elements[0].end()
	case len(row.elements) > 1:
		return endOfArray(id, row.elements)
	case row.verdictJob == id && row.Exit != nil && *row.Exit != 0:
		code := *row.Exit
		if row.givenUp {
			code = givenUpCode(code)
		}
		return &codeError{code: code, err: fmt.Errorf("job %s: %s", id, row.Message)}
	case row.verdictJob == id && row.Exit != nil, row.State == "COMPLETED":
		return nil
	}
	return &codeError{code: exitFailed, err: fmt.Errorf("job %s ended as %s: %s", id, row.State, row.why())}
}

// end is endOf for a row by itself.
func (row *jobStatus) end() error { return endOf(row.Job, *row) }

// tailer copies what has been added to a file since the last time. The file may come
// into being later.
type tailer struct {
	path string
	to   io.Writer
	head func() // nil, or called before the first byte
	file *os.File
}

func (t *tailer) copy() error {
	if t.file == nil {
		f, _, err := vfs.OpenRegular(t.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("open the log: %w", err)
		}
		t.file = f
	}
	if t.head != nil {
		if info, err := t.file.Stat(); err == nil && info.Size() == 0 {
			return nil
		}
		t.head()
		t.head = nil
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

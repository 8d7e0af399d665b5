package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/clean"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
)

func newCleanCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:  "clean",
		Usage: "remove the run directories of ended runs, including checkpoints, after asking",
		Description: example("ddpbatch clean --dry-run", "ddpbatch clean --older-than 90d --state completed",
			"ddpbatch clean --older-than 0 --state failed,cancelled --yes"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "older-than", Usage: "only runs without changes for `D`, such as 30d or 12h", Value: "30d"},
			&cli.StringFlag{Name: "state", Usage: "only runs in these `STATES`, as status shows them: completed,failed,...",
				DefaultText: "all states of ended runs"},
			&cli.BoolFlag{Name: "dry-run", Usage: "only show what would be removed"},
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask"},
			runDirFlag(), jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			if err := checkWords(c, 0, 0); err != nil {
				return err
			}
			older, err := text.ParseAge(c.String("older-than"))
			if err != nil {
				return usage.Errorf("--older-than is %s: give a time such as 30d, 12h or 90m", text.Quoted(c.String("older-than"), 40))
			}
			cleaner := &clean.Cleaner{Env: e.submitEnv(), View: e.viewer(), Runs: runsFolder(e, c), Older: older}
			for state := range strings.SplitSeq(strings.ToLower(c.String("state")), ",") {
				if state = strings.TrimSpace(state); state != "" {
					if !slices.Contains(endStates, state) {
						return usage.Errorf("--state has %s; write %s", text.Quoted(state, 40), text.Choice(endStates))
					}
					cleaner.States = append(cleaner.States, state)
				}
			}
			if c.Bool("json") && !c.Bool("yes") && !c.Bool("dry-run") {
				return usage.Errorf("--json does not ask: add --yes to remove the runs, or --dry-run to list them")
			}
			return runClean(c.Context, e, cleaner, c.Bool("dry-run"), c.Bool("yes"), c.Bool("json"))
		},
	}
}

// endStates are the states of runs that clean may remove, as in status.
var endStates = []string{
	"completed", "failed", "cancelled", "timeout", "preempted", "node_fail", "out_of_memory", "saved", "unsubmitted",
	"boot_fail", "deadline",
}

// removableRun is a run in the JSON of clean (docs/cli/clean.md).
type removableRun struct {
	RunDir  string    `json:"run_dir"`
	Job     string    `json:"job"`
	State   string    `json:"state"`
	Bytes   int64     `json:"bytes"`
	Last    time.Time `json:"last"`
	Removed bool      `json:"removed"`
}

func runClean(ctx context.Context, e *env, cleaner *clean.Cleaner, dryRun, yes, asJSON bool) error {
	chosen, err := cleaner.Choose(ctx)
	if err != nil {
		return err
	}
	if !asJSON {
		if err := printRemovable(e, chosen); err != nil {
			return err
		}
	}
	var gone []clean.Run
	if !dryRun {
		if len(chosen) > 0 && !yes {
			if sure, err := askRemove(e, len(chosen)); err != nil || !sure {
				return err
			}
		}
		gone, err = cleaner.Remove(ctx, chosen)
		err = errors.Join(err, cleaner.RemoveLeft())
	}
	if asJSON {
		return errors.Join(printJSON(e, removable(chosen, gone)), err)
	}
	if !dryRun && len(chosen) > 0 {
		fmt.Fprintf(e.Err, "removed %s\n", text.Plural(len(gone), "run"))
	}
	return err
}

// removable returns the chosen runs in the form of the reply. gone are those that were removed.
func removable(chosen, gone []clean.Run) []removableRun {
	list, removed := []removableRun{}, map[string]bool{}
	for _, run := range gone {
		removed[run.Dir.Path()] = true
	}
	for _, run := range chosen {
		path := run.Dir.Path()
		list = append(list, removableRun{path, run.Job, run.State, run.Bytes, run.Last, removed[path]})
	}
	return list
}

func printRemovable(e *env, chosen []clean.Run) error {
	if len(chosen) == 0 {
		fmt.Fprintln(e.Err, "nothing to remove")
		return nil
	}
	t := newTable(e, "RUN", "JOB", "STATE", "SIZE", "AGE")
	var all int64
	for _, run := range chosen {
		all += run.Bytes
		t.Row(e.short(run.Dir.Path()), shownJob(run.Dir, run.Job, ""), run.State, t.Size(run.Bytes), ageText(e.Now().Sub(run.Last)))
	}
	err := t.Flush()
	fmt.Fprintf(e.Err, "%s, %s\n", text.Plural(len(chosen), "run"), t.Bytes(all))
	return err
}

func ageText(d time.Duration) string {
	if days := int(d.Hours() / 24); days > 0 {
		return text.Plural(days, "day")
	}
	return d.Truncate(time.Minute).String()
}

// askRemove asks the user, on a terminal.
func askRemove(e *env, runs int) (sure bool, err error) {
	in, isFile := e.In.(*os.File)
	if isFile {
		_, isFile = e.Terminal(in)
	}
	if !isFile {
		return false, &usage.Error{
			Message: "clean asks before it removes runs, but standard input is not a terminal",
			Hint:    "use --yes to remove them, or --dry-run to list them",
		}
	}
	fmt.Fprintf(e.Err, "remove %s for good? [y/N] ", text.Plural(runs, "run"))
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && answer == "" {
		return false, nil
	}
	return strings.EqualFold(strings.TrimSpace(answer), "y") || strings.EqualFold(strings.TrimSpace(answer), "yes"), nil
}

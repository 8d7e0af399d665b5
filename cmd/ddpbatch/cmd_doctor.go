package main

import (
	"cmp"
	"context"
	"os"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/doctor"
	"ddpbatch/internal/exit"
)

func newDoctorCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "doctor",
		Usage:       "look at Slurm and the folder of runs: what is wrong, why it matters, and what to do",
		Description: example("ddpbatch doctor", "ddpbatch doctor --json"),
		Flags:       []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := checkWords(c, 0, 0); err != nil {
				return err
			}
			return runDoctor(c.Context, e, c.Bool("json"))
		},
	}
}

func runDoctor(ctx context.Context, e *env, asJSON bool) error {
	d, err := readDefaults(e)
	login := doctor.Login{
		Slurm: e.submitEnv().Slurm, Folder: doctor.Nearest(cmp.Or(d.RunDir(), e.abs("runs"))), Temp: os.TempDir(), Defaults: err,
		Now: e.Now,
	}
	found := login.Check(ctx)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return showFindings(e, found, asJSON)
}

// showFindings prints findings; its error is the exit code where one of them is a failure.
func showFindings(e *env, found []doctor.Finding, asJSON bool) (err error) {
	if asJSON {
		err = printJSON(e, map[string]any{"ok": doctor.Worst(found) != doctor.Fail, "findings": found})
	} else {
		table := newTable(e, "LEVEL", "CHECK", "FOUND")
		for _, f := range found {
			table.Row(string(f.Level), f.Check, f.Text())
		}
		err = table.Flush()
	}
	if err == nil && doctor.Worst(found) == doctor.Fail {
		return &exit.Error{Code: exit.Failed} // the findings say why
	}
	return err
}

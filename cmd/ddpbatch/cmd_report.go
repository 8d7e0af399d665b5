package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	runreport "ddpbatch/internal/report"
	"ddpbatch/internal/usage"
	"ddpbatch/internal/vfs"
)

func newReportCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "report",
		Usage:       "write an HTML page about a run: curves, attempts, step times by rank, checkpoints, settings",
		ArgsUsage:   "RUN",
		Description: example("ddpbatch report 123", "ddpbatch report 123_4 -o element.html", "ddpbatch report 123 --json"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"},
				Usage: "write to `FILE`, or into it if it is a folder; -: to standard output (default: RUN's name and .html, " +
					"in the working directory)"},
			runDirFlag(), jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			if err := checkWords(c, 1, 1); err != nil {
				return err
			}
			if c.Bool("json") && c.IsSet("output") {
				return usage.Errorf("--json prints to standard output and cannot be used with --output")
			}
			return runReport(c, e, c.Args().First(), c.String("output"))
		},
	}
}

func runReport(c *cli.Context, e *env, name, output string) error {
	run, _, err := e.viewer().Find(runsFolder(e, c), name)
	if err != nil {
		return err
	}
	data, err := runreport.Request{Viewer: e.viewer(), Version: version, Log: e.log()}.Of(c.Context, run)
	switch {
	case err != nil:
		return err
	case c.Bool("json"):
		return printJSON(e, data)
	case output == "-":
		return data.Write(e.Out)
	}
	path := runreport.FileName(run)
	if output != "" {
		path = output
	}
	if path = e.abs(path); vfs.IsDir(path) {
		path = filepath.Join(path, runreport.FileName(run))
	}
	err = data.Save(c.Context, path)
	if errors.Is(err, runreport.ErrNotOurs) {
		return &usage.Error{Message: err.Error(), Hint: "name another file with --output"}
	}
	if err == nil {
		_, err = fmt.Fprintln(e.Out, e.short(path))
	}
	return err
}

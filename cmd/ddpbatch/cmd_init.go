package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
	"ddpbatch/templates"
)

func newInitCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "init",
		Usage:       "write a commented job.toml to start from",
		ArgsUsage:   "[DIR]",
		Description: example("ddpbatch init --list", "ddpbatch init --template mnist digits/"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "template", Usage: "which starter job `NAME`", Value: "mnist"},
			&cli.BoolFlag{Name: "list", Usage: "list the starter jobs"},
			jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			most := 1
			if c.Bool("list") {
				most = 0
			}
			if err := checkWords(c, 0, most); err != nil {
				return err
			}
			switch {
			case c.Bool("list"):
				return listStarters(e, c.Bool("json"))
			case c.Bool("json"):
				return usage.Errorf("--json goes with --list")
			}
			return writeStarter(e, cmp.Or(c.Args().First(), "."), c.String("template"))
		},
	}
}

func listStarters(e *env, asJSON bool) error {
	starters := templates.Starters()
	if asJSON {
		return printJSON(e, starters)
	}
	t := newTable(e, "NAME", "WHAT IT IS")
	for _, s := range starters {
		t.Row(s.Name, s.Summary)
	}
	return t.Flush()
}

func writeStarter(e *env, dir, name string) error {
	starter, ok := templates.Find(name)
	if !ok {
		return &usage.Error{Message: fmt.Sprintf("there is no starter job %q", name), Hint: `"ddpbatch init --list" shows them`}
	}
	dir = e.abs(dir)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	path := filepath.Join(dir, "job.toml")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return &usage.Error{Message: path + " is there already", Hint: "name another folder, or move it away"}
	}
	if err != nil {
		return fmt.Errorf("write the job file: %w", err)
	}
	_, err = f.WriteString(starter.Text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	word := slurm.ShellQuote(e.short(path))
	fmt.Fprintf(e.Out, "wrote %s\ncheck it:  ddpbatch check %s\ntry it:    ddpbatch simulate %s\nsubmit it: ddpbatch submit %s\n", path, word, word, word)
	return nil
}

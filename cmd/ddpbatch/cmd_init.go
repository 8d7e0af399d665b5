package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/defaults"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
	"ddpbatch/templates"
)

func newInitCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:      "init",
		Usage:     "write a commented job.toml to start from, and the script that it runs",
		ArgsUsage: "[DIR]",
		Description: example("ddpbatch init --list", "ddpbatch init --template pytorch mine/", "ddpbatch init --from run.sbatch",
			`ddpbatch init --from "torchrun --nproc-per-node 8 train.py --lr 0.1"`),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "template", Usage: "which starter job `NAME`", Value: "simulate"},
			&cli.StringFlag{Name: "from",
				Usage: "make it of `WHAT` you have: a batch script, or the command line of torchrun, srun, mpirun or the like"},
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
			case c.IsSet("from") && (c.IsSet("template") || c.Bool("list")):
				return usage.Errorf("--from takes neither --template nor --list")
			case c.Bool("list"):
				return listStarters(e, c.Bool("json"))
			case c.Bool("json"):
				return usage.Errorf("--json goes with --list")
			case c.IsSet("from"):
				return writeTranslated(c.Context, e, cmp.Or(c.Args().First(), "."), c.String("from"))
			}
			return writeStarter(e, cmp.Or(c.Args().First(), "."), c.String("template"))
		},
	}
}

func listStarters(e *env, asJSON bool) error {
	own, err := ownStarters(e)
	if err != nil {
		return err
	}
	type listed struct {
		Name    string `json:"name"`
		Summary string `json:"summary"`
		File    string `json:"file"`  // the user's own; empty: it is ddpbatch's
		Bring   string `json:"bring"` // what it needs that init does not write; empty: nothing
	}
	list := []listed{}
	for _, s := range templates.Starters() {
		if !slices.ContainsFunc(own, func(o defaults.Starter) bool { return o.Name == s.Name }) { // the user's own counts
			list = append(list, listed{Name: s.Name, Summary: s.Summary, Bring: s.Bring})
		}
	}
	for _, s := range own {
		list = append(list, listed{Name: s.Name, Summary: s.Summary, File: s.Path})
	}
	if asJSON {
		return printJSON(e, list)
	}
	t := newTable(e, "NAME", "WHOSE", "WHAT IT IS")
	for _, s := range list {
		whose := "ddpbatch"
		if s.File != "" {
			whose = "yours"
		}
		t.Row(s.Name, whose, s.Summary)
	}
	return t.Flush()
}

// ownStarters are the starter jobs of the user's own.
func ownStarters(e *env) ([]defaults.Starter, error) {
	own, err := e.defaultsPlaces().Starters()
	if err != nil {
		return nil, fmt.Errorf("list your starter jobs: %w", err)
	}
	return own, nil
}

// starterNamed is a starter job: the user's own of that name, else ddpbatch's. The user's must be a job.
func starterNamed(e *env, name string) (templates.Starter, error) {
	own, err := ownStarters(e)
	if err != nil {
		return templates.Starter{}, err
	}
	if at := slices.IndexFunc(own, func(s defaults.Starter) bool { return s.Name == name }); at >= 0 {
		text, err := own[at].Read()
		if err != nil {
			return templates.Starter{}, fmt.Errorf("read your starter job: %w", err)
		}
		d, err := readDefaults(e)
		if err == nil {
			_, _, err = d.Parse(own[at].Path, e.Dir, []byte(text), nil)
		}
		return templates.Starter{Name: name, Text: text}, err
	}
	if starter, ok := templates.Find(name); ok {
		starter.Text = withoutRunDir(e, starter.Text)
		return starter, nil
	}
	return templates.Starter{}, &usage.Error{
		Message: fmt.Sprintf("there is no starter job %q", name), Hint: `"ddpbatch init --list" shows them`,
	}
}

func writeStarter(e *env, dir, name string) error {
	starter, err := starterNamed(e, name)
	if err != nil {
		return err
	}
	path, err := writeJobFile(e, dir, starter.Text, starter.Files...)
	if err != nil {
		return err
	}
	sayNext(e, path, starter)
	return nil
}

// withoutRunDir makes a comment of run_dir in a job file that ddpbatch has made, where the site's file or the user's own says where runs
// are made: the job's would count over that. Defaults that cannot be read are told of by whatever reads the job.
func withoutRunDir(e *env, text string) string {
	if d, err := readDefaults(e); err == nil && d.RunDir() != "" {
		return strings.Replace(text, "\nrun_dir = ", "\n#run_dir = ", 1)
	}
	return text
}

// writeJobFile writes job.toml into a folder, which is made if it is not there, and other files beside it. It never overwrites one; where
// it cannot write all of them, it leaves none.
func writeJobFile(e *env, dir, text string, others ...templates.File) (job string, err error) {
	dir = e.abs(dir)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", fmt.Errorf("make the folder: %w", err)
	}
	var written []string
	defer func() {
		if err != nil {
			for _, path := range written {
				err = errors.Join(err, os.Remove(path))
			}
		}
	}()
	for _, file := range slices.Concat([]templates.File{{Name: "job.toml", Text: text}}, others) {
		path := filepath.Join(dir, file.Name)
		made, err := writeNew(path, file.Text)
		if made {
			written = append(written, path)
		}
		if err != nil {
			return "", err
		}
	}
	return written[0], nil
}

// writeNew writes a file that is not there yet. It reports whether there is a file now, whole or not.
func writeNew(path, text string) (made bool, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return false, &usage.Error{Message: path + " is there already", Hint: "name another folder, or move it away"}
	}
	if err != nil {
		return false, fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return true, fmt.Errorf("write %s: %w", path, err)
	}
	return true, nil
}

// sayNext says which files were written, what a starter needs besides, and what may be done with the job.
func sayNext(e *env, path string, starter templates.Starter) {
	fmt.Fprintf(e.Out, "wrote %s\n", path)
	for _, file := range starter.Files {
		fmt.Fprintf(e.Out, "wrote %s\n", filepath.Join(filepath.Dir(path), file.Name))
	}
	if starter.Bring != "" {
		fmt.Fprintf(e.Out, "bring:     %s\n", starter.Bring)
	}
	word := slurm.ShellQuote(e.short(path))
	fmt.Fprintf(e.Out, "check it:  ddpbatch check %s\ntry it:    ddpbatch simulate %s\nsubmit it: ddpbatch submit %s\n", word, word, word)
}

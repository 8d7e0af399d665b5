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
	"syscall"

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
			&cli.StringFlag{Name: "template", Usage: "use the starter job `NAME`", Value: "simulate"},
			&cli.StringFlag{Name: "from",
				Usage: "make the job file from `WHAT` you have: a batch script, or a command line of torchrun, srun, mpirun or similar"},
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
				return usage.Errorf("--from cannot be used with --template or --list")
			case c.Bool("list"):
				return listStarters(e, c.Bool("json"))
			case c.Bool("json"):
				return usage.Errorf("--json needs --list")
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
		File    string `json:"file"`  // of the user's own starter job; empty for ddpbatch's
		Bring   string `json:"bring"` // what it needs that init does not write; may be empty
	}
	list := []listed{}
	for _, s := range templates.Starters() {
		if !slices.ContainsFunc(own, func(o defaults.Starter) bool { return o.Name == s.Name }) { // the user's own takes precedence
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

// ownStarters returns the user's own starter jobs.
func ownStarters(e *env) ([]defaults.Starter, error) {
	own, err := e.defaultsPlaces().Starters()
	if err != nil {
		return nil, fmt.Errorf("list your starter jobs: %w", err)
	}
	return own, nil
}

// starterNamed returns a starter job: the user's own of that name, or else ddpbatch's. The user's must be a valid job.
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
		Message: fmt.Sprintf("starter job %q does not exist", name), Hint: `"ddpbatch init --list" shows them`,
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

// withoutRunDir comments out run_dir in a job file that ddpbatch has made if the site's or the user's file sets it, because the job's key
// would take precedence. Defaults that cannot be read are reported by the commands that read the job.
func withoutRunDir(e *env, text string) string {
	if d, err := readDefaults(e); err == nil && d.RunDir() != "" {
		return strings.Replace(text, "\nrun_dir = ", "\n#run_dir = ", 1)
	}
	return text
}

// writeJobFile writes job.toml and other files into a directory, which it creates if needed. It never overwrites a file. If it cannot write
// all of them, it leaves none.
func writeJobFile(e *env, dir, text string, others ...templates.File) (job string, err error) {
	dir = e.abs(dir)
	switch err := os.MkdirAll(dir, 0o777); {
	case errors.Is(err, syscall.ENOTDIR):
		return "", &usage.Error{
			Message: fmt.Sprintf("init writes into a folder, but %s is a file, or below one", e.dir().Named(dir)),
			Hint:    "for a batch script: ddpbatch init --from SCRIPT",
		}
	case err != nil:
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

// writeNew writes a new file. It reports whether the file was created, completely or not.
func writeNew(path, text string) (made bool, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return false, &usage.Error{Message: path + " already exists", Hint: "name another folder, or move it away"}
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

// sayNext prints which files were written, what a starter job also needs, and what to do with the job.
func sayNext(e *env, path string, starter templates.Starter) {
	fmt.Fprintf(e.Out, "wrote %s\n", path)
	for _, file := range starter.Files {
		fmt.Fprintf(e.Out, "wrote %s\n", filepath.Join(filepath.Dir(path), file.Name))
	}
	if starter.Bring != "" {
		fmt.Fprintf(e.Out, "you need:  %s\n", starter.Bring)
	}
	if starter.Place != "" {
		fmt.Fprintf(e.Out, "put it at: %s/%s\n", filepath.Dir(path), starter.Place)
	}
	word := slurm.ShellQuote(e.short(path))
	fmt.Fprintf(e.Out, "check it:  ddpbatch check %s\ntry it:    ddpbatch simulate %s\nsubmit it: ddpbatch submit %s\n", word, word, word)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
)

func newConfigCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "config",
		Usage:       "show the site's and the user's defaults for jobs, and the resulting settings of a job",
		Description: example("ddpbatch config show --origin", "ddpbatch config show job.toml --origin", "ddpbatch config path"),
		Subcommands: []*cli.Command{
			{
				Name:      "show",
				Usage:     "print the keys of the site's file, the user's file, a job and --set; later ones take precedence",
				ArgsUsage: "[JOB | RUN]",
				Description: example("ddpbatch config show", "ddpbatch config show job.toml --set slurm.nodes=4 --origin",
					"ddpbatch config show 123"),
				Flags: []cli.Flag{
					setFlag(), runDirFlag(), &cli.BoolFlag{Name: "origin", Usage: "show the file and line of each value"}, jsonFlag(),
				},
				Action: func(c *cli.Context) error {
					if err := checkWords(c, 0, 1); err != nil {
						return err
					}
					runs := func() string { return runsFolder(e, c) }
					return runConfigShow(c.Context, e, c.Args().First(), runs, c.StringSlice("set"), c.Bool("origin"), c.Bool("json"))
				},
			},
			{
				Name:        "path",
				Usage:       "print the paths of the files, and whether they exist",
				Description: example("ddpbatch config path"),
				Flags:       []cli.Flag{jsonFlag()},
				Action: func(c *cli.Context) error {
					if err := checkWords(c, 0, 0); err != nil {
						return err
					}
					return runConfigPath(e, c.Bool("json"))
				},
			},
		},
	}
}

func runConfigShow(ctx context.Context, e *env, name string, runs func() string, sets []string, origins, asJSON bool) error {
	run, err := runNamed(e, name, runs)
	if err != nil {
		return err
	}
	var settings []jobfile.Setting
	if run != nil {
		settings, err = settingsOfRun(ctx, e, run, sets)
	} else {
		settings, err = readSettings(ctx, e, name, sets)
	}
	if err != nil {
		return err
	}
	for i := range settings {
		settings[i] = settings[i].Redacted()
	}
	if asJSON {
		return printJSON(e, append([]jobfile.Setting{}, settings...)) // never null
	}
	return jobfile.WriteTOML(e.Out, settings, origins)
}

// runNamed returns the run that a name means, or nil if it means a job file: an existing file, or a missing one whose name ends in .toml.
func runNamed(e *env, name string, runs func() string) (*rundir.Dir, error) {
	if name == "" {
		return nil, nil
	}
	info, missing := os.Stat(e.abs(name))
	if missing == nil && !info.IsDir() {
		return nil, nil
	}
	run, _, err := e.viewer().Find(runs(), name)
	if err != nil && errors.Is(missing, fs.ErrNotExist) && filepath.Ext(name) == ".toml" {
		return nil, nil
	}
	return run, err
}

// settingsOfRun reads the keys of a run's job with the defaults that the run was submitted with, the --set of submit and of resumes, and
// sets.
func settingsOfRun(ctx context.Context, e *env, run *rundir.Dir, sets []string) ([]jobfile.Setting, error) {
	if err := checkSets(e, sets); err != nil {
		return nil, err
	}
	spec := run.Spec()
	d, err := jobfile.RecordedDefaults(spec.Defaults)
	if err != nil {
		return nil, fmt.Errorf("read the defaults that the run was submitted with: %w", err)
	}
	text, err := jobfile.ReadText(ctx, run.JobFilePath())
	if err != nil {
		return nil, fmt.Errorf("read the run's job file: %w", err)
	}
	settings, _, err := d.JobSettings(e.short(run.JobFilePath()), filepath.Dir(spec.Source), text, slices.Concat(spec.Sets, sets))
	return settings, err
}

// readSettings reads the keys of a job, or, without a job, those of the defaults and the overrides.
func readSettings(ctx context.Context, e *env, path string, sets []string) ([]jobfile.Setting, error) {
	d, err := readDefaults(e)
	if err != nil {
		return nil, err
	}
	if path == "" {
		return d.Settings(sets)
	}
	path = e.abs(path)
	text, err := readJob(ctx, path)
	if err != nil {
		return nil, err
	}
	settings, warnings, err := d.JobSettings(e.short(path), filepath.Dir(path), text, sets)
	warn(e, warnings)
	return settings, err
}

// filePlace is a place where a file is looked for.
type filePlace struct {
	Of    string `json:"of"` // "site", "user" or "templates"
	Path  string `json:"path"`
	There bool   `json:"there"`
}

func runConfigPath(e *env, asJSON bool) error {
	places := []filePlace{}
	p := e.defaultsPlaces()
	for _, file := range p.Files() {
		of := "user"
		if file.Site {
			of = "site"
		}
		places = append(places, filePlace{of, file.Path, isThere(file.Path)})
	}
	if folder := p.StarterFolder(); folder != "" {
		places = append(places, filePlace{"templates", folder, isThere(folder)})
	}
	if asJSON {
		return printJSON(e, places)
	}
	t := newTable(e, "OF", "PATH", "STATE")
	for _, place := range places {
		state := "not there"
		if place.There {
			state = "there"
		}
		t.Row(place.Of, place.Path, state)
	}
	return t.Flush()
}

// isThere reports whether a name exists. A link that leads nowhere counts.
func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

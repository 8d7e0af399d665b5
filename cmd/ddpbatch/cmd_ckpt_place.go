package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/rundir"
)

// ckptPlace is where a command looks for checkpoints.
type ckptPlace struct {
	path   string      // the folder of checkpoints
	folder string      // the name of one checkpoint's own folder in it; empty: none was named
	run    *rundir.Dir // that the folder belongs to; nil: none
	unsure error       // why it cannot be told whether it belongs to one; nil: it can
}

// findCheckpoints finds the checkpoints of a run named by job id or directory, a folder of checkpoints
// itself, or the folder of one.
func findCheckpoints(e *env, c *cli.Context, name string) (ckptPlace, error) {
	if rundir.IsJobID(name) { // and never a folder of that name
		run, err := rundir.Find(e.abs(c.String("runs")), name)
		if err != nil {
			return ckptPlace{}, noPlace(c.Context, e, name, err)
		}
		return ckptPlace{path: run.CheckpointsPath(), run: run}, nil
	}
	named := e.abs(name)
	path := named
	real, err := filepath.EvalSymlinks(path) // a link may lead to what belongs to a run
	if err != nil {
		real = path
	}
	if base := filepath.Base(real); isStepFolder(base) && isDir(real) {
		if filepath.Base(path) != base {
			path = real
		}
		var folders []string
		for _, hop := range linkHops(named) {
			folders = append(folders, filepath.Dir(hop))
		}
		return placeOf(filepath.Dir(path), append(folders, filepath.Dir(real)), base), nil
	}
	run, err := rundir.Open(path)
	if err != nil && (holdsCheckpoints(path) || holdsCheckpoints(real)) {
		return placeOf(path, []string{path, real}, ""), nil
	}
	if err != nil {
		word := name
		if strings.ContainsRune(name, filepath.Separator) {
			word = path
		}
		if run, err = rundir.Find(e.abs(c.String("runs")), word); err != nil {
			return ckptPlace{}, noPlace(c.Context, e, name, err)
		}
	}
	return ckptPlace{path: run.CheckpointsPath(), run: run}, nil
}

// placeOf describes the folder of checkpoints at path. It may be known as a run's under any of names. Each of them is followed link by
// link, because a run's folder of checkpoints may itself be a link. A copy elsewhere belongs to no run.
func placeOf(path string, names []string, folder string) ckptPlace {
	p := ckptPlace{path: path, folder: folder}
	for _, name := range names {
		for _, hop := range linkHops(name) {
			run, err := runOfCheckpoints(hop)
			switch {
			case err == nil:
				p.run, p.unsure = run, nil
				return p
			case !errors.Is(err, fs.ErrNotExist):
				p.unsure = err
			}
		}
	}
	return p
}

// linkHops returns path and, if it is a symbolic link, each path that it leads to in turn.
func linkHops(path string) []string {
	const most = 40 // that Linux follows (path_resolution(7))
	hops := []string{path}
	for range most {
		target, err := os.Readlink(path)
		if err != nil { // not a link
			return hops
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
		hops = append(hops, path)
	}
	return hops
}

func isStepFolder(name string) bool { return strings.HasPrefix(name, "step-") }

// holdsCheckpoints says whether path is a folder of checkpoints, by its name or by what is in it.
func holdsCheckpoints(path string) bool {
	if filepath.Base(path) == rundir.CheckpointsName && isDir(path) {
		return true
	}
	found, _ := filepath.Glob(filepath.Join(globQuote(path), "step-*"))
	return len(found) > 0
}

// globQuote makes a path match only itself.
func globQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// runOfCheckpoints is the run whose folder of checkpoints path is.
func runOfCheckpoints(path string) (*rundir.Dir, error) {
	if filepath.Base(path) != rundir.CheckpointsName {
		return nil, fs.ErrNotExist
	}
	return rundir.Open(filepath.Dir(path))
}

// open opens the folder to look at it: nothing is written through it.
func (p ckptPlace) open(e *env) (*checkpoint.Dir, error) {
	return checkpoint.Open(p.path, checkpoint.Options{Log: e.log()})
}

// parseStep reads a step as a person names it, 12 or step-12, or the name of a folder that has one.
func parseStep(name string) (int64, error) {
	number, _, _ := strings.Cut(strings.TrimPrefix(name, "step-"), ".")
	step, err := strconv.ParseInt(number, 10, 64)
	if err != nil || step < 0 || !isStepFolder(name) && number != name {
		return 0, usagef("a step is a whole number, not %q", name)
	}
	return step, nil
}

// choose opens the checkpoint that word names: a step, or the name of a checkpoint's folder. With an empty word it opens the one whose
// folder the user named, and otherwise the newest that counts. The caller closes it.
func (p ckptPlace) choose(ctx context.Context, e *env, dir *checkpoint.Dir, word string) (*checkpoint.Checkpoint, error) {
	if word == "" {
		word = p.folder
	}
	if word == "" {
		return p.latest(ctx, e, dir)
	}
	if isStepFolder(word) && isDir(filepath.Join(p.path, word)) && filepath.Base(word) == word {
		return dir.FindFolder(ctx, word)
	}
	step, err := parseStep(word)
	if err != nil {
		return nil, err
	}
	found, err := dir.Find(ctx, step)
	if errors.Is(err, checkpoint.ErrNone) {
		if infos, failed := dir.List(ctx); failed == nil {
			err = p.noStep(e, step, infos)
		}
	}
	return found, err
}

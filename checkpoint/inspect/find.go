package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/internal/vfs"
)

// Finder finds checkpoints by the names that people use.
type Finder struct {
	From    text.Dir          // the folder that relative paths start from
	Runs    string            // the folder of runs in which job ids are looked up
	Explain func(error) error // explains to a person that an array has no such element (rundir.NoElementError); nil: the error is returned
	Now     func() time.Time
	Log     *slog.Logger
}

// Folder is a folder of checkpoints that a user has named.
type Folder struct {
	Finder
	Path   string
	Only   string      // the name of one checkpoint's own folder in it, if the user named that; else empty
	Run    *rundir.Dir // the run that the folder belongs to; nil: none
	unsure error       // why it is unknown whether it belongs to a run; nil: it is known
}

// Find finds the checkpoints that name stands for: those of a run, given by its job id or directory, a folder of checkpoints
// itself, or the folder of one checkpoint.
func (f Finder) Find(ctx context.Context, name string) (Folder, error) {
	if rundir.IsJobID(name) { // a job id, even if a folder has that name
		run, err := rundir.Find(f.Runs, name)
		if err != nil {
			return Folder{}, f.notFound(ctx, name, err)
		}
		return Folder{Finder: f, Path: run.CheckpointsPath(), Run: run}, nil
	}
	named := f.From.Abs(name)
	path := named
	real, err := filepath.EvalSymlinks(path) // a link may lead to a run's folder
	if err != nil {
		real = path
	}
	if base := filepath.Base(real); isStepFolder(base) && vfs.IsDir(real) {
		if filepath.Base(path) != base {
			path = real
		}
		var folders []string
		for _, hop := range linkHops(named) {
			folders = append(folders, filepath.Dir(hop))
		}
		return f.folderAt(filepath.Dir(path), append(folders, filepath.Dir(real)), base), nil
	}
	run, err := rundir.Open(path)
	if err != nil && (holdsCheckpoints(path) || holdsCheckpoints(real)) {
		return f.folderAt(path, []string{path, real}, ""), nil
	}
	if err != nil {
		word := name
		if strings.ContainsRune(name, filepath.Separator) {
			word = path
		}
		if run, err = rundir.Find(f.Runs, word); err != nil {
			return Folder{}, f.notFound(ctx, name, err)
		}
	}
	return Folder{Finder: f, Path: run.CheckpointsPath(), Run: run}, nil
}

// folderAt describes the folder of checkpoints at path. Any of names may show that it belongs to a run. folderAt follows each of them link
// by link, because a run's folder of checkpoints may itself be a link. A copy elsewhere does not belong to a run.
func (f Finder) folderAt(path string, names []string, only string) Folder {
	d := Folder{Finder: f, Path: path, Only: only}
	for _, name := range names {
		for _, hop := range linkHops(name) {
			run, err := runOfCheckpoints(hop)
			switch {
			case err == nil:
				d.Run, d.unsure = run, nil
				return d
			case !errors.Is(err, fs.ErrNotExist):
				d.unsure = err
			}
		}
	}
	return d
}

// linkHops returns path and, if it is a symbolic link, each path that it leads to in turn.
func linkHops(path string) []string {
	const most = 40 // Linux follows as many (path_resolution(7))
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

// holdsCheckpoints reports whether path is a folder of checkpoints, by its name or its contents.
func holdsCheckpoints(path string) bool {
	if filepath.Base(path) == rundir.CheckpointsName && vfs.IsDir(path) {
		return true
	}
	entries, _ := os.ReadDir(path)
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return isStepFolder(e.Name()) })
}

// runOfCheckpoints returns the run whose folder of checkpoints is path.
func runOfCheckpoints(path string) (*rundir.Dir, error) {
	if filepath.Base(path) != rundir.CheckpointsName {
		return nil, fs.ErrNotExist
	}
	return rundir.Open(filepath.Dir(path))
}

// best is the word for the checkpoint with the label of this name, which the built-in trainer gives to that of the best evaluation.
const best = "best"

// IsStep reports whether a word means a step: best, or what ParseStep accepts.
func IsStep(word string) bool {
	_, err := ParseStep(word)
	return err == nil || word == best
}

// ParseStep parses a step as people write it: 12, step-12, or the name of a checkpoint's folder.
func ParseStep(name string) (int64, error) {
	number, _, _ := strings.Cut(strings.TrimPrefix(name, "step-"), ".")
	step, err := strconv.ParseInt(number, 10, 64)
	if err != nil || step < 0 || !isStepFolder(name) && number != name {
		return 0, usage.Errorf("a step is a whole number or the word best, not %q", name)
	}
	return step, nil
}

// Open opens the folder for reading.
func (d Folder) Open() (*checkpoint.Dir, error) {
	return checkpoint.Open(d.Path, checkpoint.Options{Log: d.Log})
}

// Choose opens the checkpoint that word names: a step, best, or the name of a checkpoint's folder. If word is empty, it opens the one whose
// folder the user named, and otherwise the newest one that is not superseded. The caller closes it.
func (d Folder) Choose(ctx context.Context, dir *checkpoint.Dir, word string) (*checkpoint.Checkpoint, error) {
	if word = cmp.Or(word, d.Only); word == "" {
		return d.latest(ctx, dir)
	}
	word, err := d.resolve(ctx, dir, word)
	if err != nil {
		return nil, err
	}
	if isStepFolder(word) && vfs.IsDir(filepath.Join(d.Path, word)) && filepath.Base(word) == word {
		return dir.FindFolder(ctx, word)
	}
	step, err := ParseStep(word)
	if err != nil {
		return nil, err
	}
	found, err := dir.Find(ctx, step)
	if errors.Is(err, checkpoint.ErrNone) {
		switch infos, failed := dir.List(ctx); {
		case failed != nil:
		case len(infos) == 0 && d.isArray():
			err = d.None()
		default:
			err = d.noStep(step, infos)
		}
	}
	return found, err
}

// resolve returns the name of the folder that best stands for, and any other word unchanged.
func (d Folder) resolve(ctx context.Context, dir *checkpoint.Dir, word string) (string, error) {
	if word != best {
		return word, nil
	}
	infos, err := dir.List(ctx)
	if err != nil {
		return "", err
	}
	if len(infos) == 0 {
		return "", d.None()
	}
	var found *checkpoint.Info
	for i, info := range infos { // copied folders may have the label several times
		if slices.Contains(info.Pinned, best) && (found == nil || info.Committed || !found.Committed) {
			found = &infos[i]
		}
	}
	if found == nil {
		return "", fmt.Errorf("%w in %s is kept as the best (the built-in trainer keeps one with train.evaluate.best); %s",
			checkpoint.ErrNone, d.From.Named(d.Path), committedSteps(infos))
	}
	return filepath.Base(found.Path), nil
}

// isArray reports whether the folder belongs to an array, whose elements have the checkpoints.
func (d Folder) isArray() bool {
	if d.Run == nil {
		return false
	}
	elements, _ := d.Run.Elements()
	return len(elements) > 0
}

// latest opens the newest checkpoint that is not superseded. If there are only checkpoints that were set aside, the error says so.
func (d Folder) latest(ctx context.Context, dir *checkpoint.Dir) (*checkpoint.Checkpoint, error) {
	found, err := dir.FindLatest(ctx)
	if !errors.Is(err, checkpoint.ErrNone) && !errors.Is(err, checkpoint.ErrCorrupt) {
		return found, err
	}
	infos, failed := dir.List(ctx)
	switch {
	case failed != nil:
		return nil, err
	case len(infos) == 0:
		return nil, d.None()
	}
	var aside []string
	for _, i := range infos {
		switch name := filepath.Base(i.Path); {
		case strings.Contains(name, ".broken"):
			aside = append(aside, name)
		case i.State != checkpoint.StatePartial:
			return nil, err
		}
	}
	if len(aside) == 0 {
		return nil, err
	}
	return nil, d.onlyBroken(ctx, dir, aside)
}

// OpenToWrite opens the folder on behalf of its run's newest attempt; if a newer attempt begins meanwhile, the fence refuses further
// changes. A folder that does not belong to a run directory, such as one of imported or copied checkpoints,
// is opened on behalf of the run that all checkpoints in it belong to.
func (d Folder) OpenToWrite(ctx context.Context) (*checkpoint.Dir, error) {
	options := checkpoint.Options{Log: d.Log}
	if d.unsure != nil { // the attempt of a run may be writing to it
		return nil, &usage.Error{
			Message: fmt.Sprintf("cannot find out whether %s belongs to a run that is still going: %v", d.From.Short(d.Path), d.unsure),
			Hint:    "make readable what cannot be read, or copy the checkpoints elsewhere",
		}
	}
	if d.Run == nil {
		var err error
		if options.Run, err = d.onlyRun(ctx); err != nil {
			return nil, err
		}
		return checkpoint.Open(d.Path, options)
	}
	attempt, err := d.Run.NewestAttempt()
	if err != nil {
		return nil, err
	}
	options.Run, options.Attempt = d.Run.Spec().Run, attempt
	options.Fence = func() error { return d.Run.Fence(attempt) }
	return checkpoint.Open(d.Path, options)
}

// onlyRun returns the run that all checkpoints in the folder belong to, or an empty name if there are none.
func (d Folder) onlyRun(ctx context.Context) (string, error) {
	dir, err := d.Open()
	if err != nil {
		return "", err
	}
	infos, err := dir.List(ctx)
	if err != nil {
		return "", err
	}
	run, known := "", false
	for _, info := range infos {
		switch {
		case info.Attempt == 0 && info.Run == "" && info.World == 0: // its manifest cannot be read
		case known && info.Run != run:
			return "", usage.Errorf("%s holds checkpoints of several runs: %q and %q", d.From.Short(d.Path), run, info.Run)
		default:
			run, known = info.Run, true
		}
	}
	return run, nil
}

package inspect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
)

// whatRun describes what a ckpt command accepts as RUN.
const whatRun = "a job id, a run directory, a folder of checkpoints or the folder of one checkpoint"

// notFound returns the error for a name that leads to no checkpoints; why is the error of the search for a run.
func (f Finder) notFound(ctx context.Context, name string, why error) error {
	path := f.From.Abs(name)
	info, err := os.Stat(path)
	switch parent := filepath.Dir(path); {
	case f.Explain != nil && errors.As(why, new(*rundir.NoElementError)):
		return f.Explain(why)
	case err == nil && !info.IsDir():
		return usage.Errorf("%s is a file; name %s", f.From.Named(path), whatRun)
	case !errors.Is(why, rundir.ErrNotFound):
		return why
	case err == nil:
		return f.noneBelow(path)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("look for checkpoints: %w", err)
	case isStepFolder(filepath.Base(path)) && holdsCheckpoints(parent):
		return f.noFolder(ctx, parent, filepath.Base(path))
	case strings.ContainsRune(name, filepath.Separator):
		return usage.Errorf("%s does not exist; name %s", f.From.Named(path), whatRun)
	}
	return usage.Errorf("%s does not exist, and there is %v", f.From.Named(path), why)
}

// noneBelow returns the error for a folder that is not a folder of checkpoints.
func (f Finder) noneBelow(path string) error {
	if _, err := os.ReadDir(path); err != nil {
		return fmt.Errorf("look for checkpoints: %w", err)
	}
	if runs, err := rundir.List(path); err == nil && len(runs) > 0 {
		return fmt.Errorf("%w in %s: it is a folder of runs; name one of them, such as %s", checkpoint.ErrNone, f.From.Named(path),
			f.From.Named(runs[0].Path()))
	}
	return fmt.Errorf("%w in %s: it is neither a run directory nor a folder of checkpoints", checkpoint.ErrNone, f.From.Named(path))
}

// noFolder returns the error for a checkpoint's folder that does not exist in a folder of checkpoints.
func (f Finder) noFolder(ctx context.Context, parent, folder string) error {
	d := Folder{Finder: f, Path: parent}
	dir, err := d.Open()
	if err != nil {
		return err
	}
	infos, err := dir.List(ctx)
	if err != nil {
		return err
	}
	return d.noneSuch(text.Clean(folder), infos)
}

// None returns the error for a folder without a checkpoint. It names what the user's own program has saved there.
func (d Folder) None() error {
	if d.Run != nil {
		if elements, _ := d.Run.Elements(); len(elements) > 0 {
			return fmt.Errorf("%w in %s: each element of the array has its own; name one of them, such as %s",
				checkpoint.ErrNone, d.From.Named(d.Path), d.From.Named(elements[0].Path()))
		}
	}
	foreign, _ := checkpoint.ListForeign(d.Path) // an error was reported when the checkpoints were listed
	if len(foreign) == 0 {
		return fmt.Errorf("%w in %s", checkpoint.ErrNone, d.From.Named(d.Path))
	}
	const most = 5
	var names []string
	for _, f := range foreign {
		names = append(names, describeForeign(f, d.Now()))
	}
	return fmt.Errorf("%w of ddpbatch's in %s, but the program itself has saved: %s",
		checkpoint.ErrNone, d.From.Named(d.Path), text.Few(names, most))
}

// describeForeign describes an entry that a user's program has made: its name, the size of a file, and its age.
func describeForeign(f checkpoint.Foreign, now time.Time) string {
	name, age := text.Clean(text.Shortened(f.Name, 60)), text.Span(now.Sub(f.Changed))+" old"
	switch f.Kind {
	case checkpoint.KindFile:
		return fmt.Sprintf("%s (%s, %s)", name, text.Bytes(uint64(f.Bytes)), age)
	case checkpoint.KindFolder:
		name += "/"
	}
	return fmt.Sprintf("%s (%s)", name, age)
}

// noneSuch returns the error for a folder without what was asked for, such as "of step 7"; infos are the checkpoints that it holds.
func (d Folder) noneSuch(what string, infos []checkpoint.Info) error {
	return fmt.Errorf("%w %s in %s: %s", checkpoint.ErrNone, what, d.From.Named(d.Path), committedSteps(infos))
}

// noStep returns the error for a step without a checkpoint that can be opened.
func (d Folder) noStep(step int64, infos []checkpoint.Info) error {
	for _, i := range infos {
		if i.Step == step {
			return fmt.Errorf("%w of step %d in %s: %s is %s; %s", checkpoint.ErrNone, step, d.From.Named(d.Path), filepath.Base(i.Path),
				i.State, committedSteps(infos))
		}
	}
	return d.noneSuch(fmt.Sprintf("of step %d", step), infos)
}

// committedSteps lists the steps that have been committed.
func committedSteps(infos []checkpoint.Info) string {
	const most = 5
	var steps []string
	for _, i := range infos {
		if step := strconv.FormatInt(i.Step, 10); i.Committed && (len(steps) == 0 || steps[len(steps)-1] != step) {
			steps = append(steps, step)
		}
	}
	switch n := len(steps); {
	case n > most:
		return fmt.Sprintf("there are %d steps, the newest %s", n, strings.Join(steps[n-most:], ", "))
	case n > 1:
		return "there are steps " + strings.Join(steps, ", ")
	case n == 1:
		return "there is step " + steps[0]
	}
	return "no step is committed"
}

// onlyBroken returns the error for a folder that holds only folders that were set aside, which are given oldest first.
func (d Folder) onlyBroken(ctx context.Context, dir *checkpoint.Dir, folders []string) error {
	newest := folders[len(folders)-1]
	which, of := "one that was found damaged and set aside: "+newest, ""
	if older := len(folders) - 1; older > 0 {
		which, of = fmt.Sprintf("those that were found damaged and set aside: %s and %d older", newest, older), "of the newest, "
	}
	return fmt.Errorf("%w in %s but %s; %s%s", checkpoint.ErrNone, d.From.Named(d.Path), which, of, d.whyBroken(ctx, dir, newest))
}

// whyBroken returns what is wrong with a folder that was set aside, as far as that is known without reading data, and what to do.
func (d Folder) whyBroken(ctx context.Context, dir *checkpoint.Dir, folder string) string {
	const remedy = "; to resume from one, put a good copy in its place, without .broken in its name"
	c, err := dir.FindFolder(ctx, folder)
	if err == nil {
		c.Close() // it was only read from
		name, _, _ := strings.Cut(folder, ".broken")
		return fmt.Sprintf("its manifest and chunk tables are whole: run ddpbatch ckpt verify --read-data %s to check its data; "+
			"if that finds no error, rename it to %s",
			d.From.Named(filepath.Join(d.Path, folder)), name)
	}
	if damage, ok := errors.AsType[*checkpoint.CorruptError](err); ok {
		return filepath.Base(damage.Path) + ": " + damage.Detail + remedy
	}
	if errors.Is(err, checkpoint.ErrNone) {
		return "MANIFEST.json is missing" + remedy
	}
	return err.Error()
}

package rehearse

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/inspect"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/vfs"
)

// Answer says whether the two runs ended the same.
type Answer int

const (
	Same Answer = iota
	Different
	Unknown
)

// Judge compares the end of a disturbed run with that of an undisturbed one. line is the result, and differ has one line for each
// difference.
func (r *Rehearsal) Judge(ctx context.Context, straight, disturbed Outcome) (answer Answer, line string, differ []string, err error) {
	if disturbed.Verdict.Exit != 0 {
		return Different, "different: the interrupted run did not finish; its run directory is kept: " + disturbed.Run.Path(), nil,
			nil
	}
	found, err := r.compare(ctx, straight, disturbed)
	switch {
	case err != nil:
		return Unknown, "", nil, err
	case disturbed.ignored():
		return Unknown, fmt.Sprintf("not known: the command ignored the warning: it ran on for %v, to its end; on %s, "+
			"or when the file of DDPBATCH_STOP_FILE exists, it must save and exit with %d (%s)",
			disturbed.AfterWarning.Round(time.Millisecond), disturbed.Job.Launch.WarnSignal, exit.Requeue, found.what), nil, nil
	case len(found.differ) > 0:
		return Different, "different: " + found.what + found.advice, found.differ, nil
	case found.compared == 0:
		return Unknown, "not known: both runs end with code 0, but there is nothing to compare: " + found.what, nil, nil
	case disturbed.Attempts < 2:
		return Unknown, fmt.Sprintf("not known: %s, but nothing interrupted the run before its end; use a longer job or an earlier fault",
			found.what), nil, nil
	}
	return Same, "same: " + found.what, nil, nil
}

// finding is the result of a comparison.
type finding struct {
	compared int
	differ   []string // one line each
	what     string   // what was compared, with the result
	advice   string   // appended to what; may be empty
}

// compare compares the ends of two runs: their newest checkpoints, or the files that the user names. Checkpoints of a command that uses
// package checkpoint cannot be compared as files, because the names and the manifests of each save are its own.
func (r *Rehearsal) compare(ctx context.Context, a, b Outcome) (finding, error) {
	if len(r.Patterns) > 0 {
		return r.compareFiles(ctx, a.Run, b.Run)
	}
	x, err := newest(ctx, r.Env.Log, a)
	switch {
	case err != nil:
		return finding{}, err
	case x == nil && !a.Job.Builtin():
		return r.compareFiles(ctx, a.Run, b.Run)
	case x == nil:
		return finding{what: "the job saved no checkpoint; see checkpoint.every_steps"}, nil
	}
	defer x.Close()
	y, err := newest(ctx, r.Env.Log, b)
	if err != nil {
		return finding{}, err
	}
	if y == nil {
		return finding{compared: 1, differ: []string{"the interrupted run has no checkpoint"}, what: "only one run has a checkpoint"}, nil
	}
	defer y.Close()
	d, err := inspect.Compare(ctx, x, y, r.Within)
	if err != nil {
		return finding{}, err
	}
	if d.Same && d.MaxAbs != nil {
		return finding{compared: d.Equal, what: fmt.Sprintf("the last checkpoints are equal within %s, %s and %s; %s", tolerated(r.Within),
			text.Plural(d.Equal, "tensor"), text.Plural(x.Values(), "value"), d.Farthest())}, nil
	}
	if d.Same {
		return finding{compared: d.Equal,
			what: fmt.Sprintf("the last checkpoints are equal bit for bit, %s and %s", text.Plural(d.Equal, "tensor"),
				text.Plural(x.Values(), "value"))}, nil
	}
	f := finding{
		compared: d.Equal + len(d.Tensors), differ: describeDifference(d),
		what: fmt.Sprintf("%d tensors and %d values of the last checkpoints are not the same", len(d.Tensors)+len(d.OnlyA)+
			len(d.OnlyB), len(d.Values)),
	}
	first, _, _ := strings.Cut(f.differ[0], ":")
	f.what += "; the first is " + first
	f.advice = adviceOn(d)
	return f, nil
}

// describeDifference describes how two checkpoints differ, one line for each difference.
func describeDifference(d *inspect.Difference) (lines []string) {
	for _, tensor := range d.Tensors {
		lines = append(lines, fmt.Sprintf("tensor %s (%s): %d of %d elements differ, by %s at most",
			text.Clean(tensor.Name), tensor.Is(), tensor.Differ, tensor.Elements, tensor.AtMost()))
	}
	for _, name := range append(d.OnlyA, d.OnlyB...) {
		lines = append(lines, "tensor "+text.Clean(name)+" is in only one of them")
	}
	for _, v := range d.Values {
		lines = append(lines, v.String())
	}
	return lines
}

// newest returns the newest checkpoint of a run, or nil if it has none.
func newest(ctx context.Context, log *slog.Logger, p Outcome) (*inspect.Contents, error) {
	dir, err := checkpoint.Open(p.Run.CheckpointsPath(), checkpoint.Options{Log: log})
	if err != nil {
		return nil, err
	}
	found, err := dir.FindLatest(ctx)
	if errors.Is(err, checkpoint.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last checkpoint of the %s run: %w", p.Name, err)
	}
	return inspect.OfCheckpoint(found), nil
}

// compareFiles compares the files that two runs of a command have left in their run directories: those that match one of the patterns, or,
// without patterns, all files in the directory that the command was given for its checkpoints.
func (r *Rehearsal) compareFiles(ctx context.Context, a, b *rundir.Dir) (finding, error) {
	x, err := filesOf(a, r.Patterns)
	if err != nil {
		return finding{}, err
	}
	y, err := filesOf(b, r.Patterns)
	if err != nil {
		return finding{}, err
	}
	names := maps.Clone(x)
	maps.Copy(names, y)
	if len(names) == 0 && len(r.Patterns) == 0 {
		return finding{
			what: "the command left no file in DDPBATCH_CHECKPOINT_DIR; save checkpoints there, or name files with --compare",
		}, nil
	}
	if len(names) == 0 {
		return finding{what: fmt.Sprintf("no file of the run directories matches %q", r.Patterns)}, nil
	}
	f := finding{compared: len(names)}
	var all readFiles
	for _, name := range slices.Sorted(maps.Keys(names)) {
		p, inA := x[name]
		q, inB := y[name]
		switch {
		case !inA || !inB:
			f.differ = append(f.differ, fmt.Sprintf("file %s: only one run has it", text.Clean(name)))
			all.others++
		case !bytes.Equal(p, q):
			lines, err := all.compare(ctx, name, filepath.Join(a.Path(), name), filepath.Join(b.Path(), name), r.Within)
			if err != nil {
				return f, err
			}
			f.differ = append(f.differ, lines...)
		}
	}
	f.what = fmt.Sprintf("%s equal byte for byte", text.Plural(len(names), "file"))
	if all.alike > 0 {
		f.what = fmt.Sprintf("%s equal, %d of them not byte for byte but in all that %s", text.Plural(len(names), "file"), all.alike,
			all.whatIsEqual(r.Within))
	}
	if n := all.apart + all.others; n > 0 {
		f.what = fmt.Sprintf("%d of %s", n, text.Plural(len(names), "file"))
		if all.others == 0 && all.farthest != nil {
			f.what += "; " + all.farthest.Farthest()
			f.advice = adviceOn(all.farthest)
		}
	}
	return f, nil
}

// filesOf returns the hashes of a run's files by their names in the run directory. For a link without an existing target it returns the
// target's name.
func filesOf(run *rundir.Dir, patterns []string) (map[string][]byte, error) {
	sums := map[string][]byte{}
	add := func(path string) error {
		name, err := filepath.Rel(run.Path(), path)
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) {
			if target, linkErr := os.Readlink(path); linkErr == nil {
				sums[name] = []byte("link to " + strings.TrimPrefix(target, run.Path()))
				return nil
			}
		}
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		sums[name], err = sumOf(path)
		return err
	}
	if len(patterns) == 0 {
		err := filepath.WalkDir(run.CheckpointsPath(), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			return add(path)
		})
		return sums, err
	}
	for _, pattern := range patterns {
		paths, err := fs.Glob(os.DirFS(run.Path()), filepath.Clean(pattern))
		if err != nil {
			return nil, fmt.Errorf("--compare %q: %w", pattern, err)
		}
		for _, path := range paths {
			if err := add(filepath.Join(run.Path(), path)); err != nil {
				return nil, err
			}
		}
	}
	return sums, nil
}

func sumOf(path string) ([]byte, error) {
	f, _, err := vfs.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, err
	}
	return sum.Sum(nil), nil
}

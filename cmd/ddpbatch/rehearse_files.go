package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/vfs"
)

// compareFiles compares what two runs of a command have left in their run directories: the files that match one of the patterns, or,
// without any, all in the folder that the command was given for its checkpoints.
func compareFiles(a, b *rundir.Dir, patterns []string) (finding, error) {
	x, err := filesOf(a, patterns)
	if err != nil {
		return finding{}, err
	}
	y, err := filesOf(b, patterns)
	if err != nil {
		return finding{}, err
	}
	names := maps.Clone(x)
	maps.Copy(names, y)
	if len(names) == 0 && len(patterns) == 0 {
		return finding{what: "the command left no file in DDPBATCH_CHECKPOINT_DIR; save there, and see --compare"}, nil
	}
	if len(names) == 0 {
		return finding{what: fmt.Sprintf("no file of the run directories matches %q", patterns)}, nil
	}
	f := finding{compared: len(names)}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		p, inA := x[name]
		q, inB := y[name]
		switch {
		case !inA || !inB:
			f.differ = append(f.differ, fmt.Sprintf("file %s: only one run has it", text.Clean(name)))
		case !bytes.Equal(p, q):
			f.differ = append(f.differ, fmt.Sprintf("file %s: the bytes differ", text.Clean(name)))
		}
	}
	f.what = fmt.Sprintf("%s equal byte for byte", plural(len(names), "file"))
	if n := len(f.differ); n > 0 {
		f.what = fmt.Sprintf("%d of %s", n, plural(len(names), "file"))
	}
	return f, nil
}

// filesOf are the sums of a run's files, by their names in the run directory. A link that leads nowhere is compared by where it leads.
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

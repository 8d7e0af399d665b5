package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
)

// Names in a directory that are never copied, because they are not code.
var (
	versionControl = []string{".git", ".hg", ".svn", ".bzr", ".jj", "_darcs", "CVS"}
	caches         = []string{
		"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints", ".cache", ".tox", ".nox",
		".eggs", "node_modules",
	}
)

// environments are files and directories that show the kind of directory that contains them.
var environments = map[string]string{
	"pyvenv.cfg": "a virtual environment", "conda-meta": "a conda environment", "CACHEDIR.TAG": "a cache",
}

// listedAtOnce is how many names of a directory are read at once.
const listedAtOnce = 1024

// walk calls visit for everything below a directory of the tree. visit says whether to descend into a directory.
func (s *Selection) walk(ctx context.Context, folder string, visit func(name string, info fs.FileInfo) (into bool, err error)) error {
	below, err := s.look(ctx, folder, visit)
	if err != nil {
		return err
	}
	slices.Sort(below)
	for _, name := range below {
		if err := s.walk(ctx, name, visit); err != nil {
			return err
		}
	}
	return nil
}

// look calls visit for everything in one directory, and returns the directories to descend into.
func (s *Selection) look(ctx context.Context, folder string, visit func(string, fs.FileInfo) (bool, error)) (below []string, err error) {
	f, err := os.OpenFile(filepath.Join(s.Root, folder), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, s.unreadable(err)
	}
	defer f.Close()
	for {
		entries, err := f.ReadDir(listedAtOnce)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, s.unreadable(err)
		}
		if len(entries) == 0 {
			return below, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if s.looked += len(entries); s.looked > looksPerFile*s.request.MaxFiles {
			return nil, s.tooMany(folder)
		}
		for _, entry := range entries {
			name := path.Join(folder, entry.Name())
			info, err := os.Lstat(filepath.Join(s.Root, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue // it has disappeared
			}
			if err != nil {
				return nil, s.unreadable(err)
			}
			into, err := visit(name, info)
			if err != nil {
				return nil, err
			}
			if into {
				below = append(below, name)
			}
		}
	}
}

// tooMany returns the error for a tree that has far more files than a copy may have.
func (s *Selection) tooMany(folder string) error {
	what := fmt.Sprintf("code.snapshot = %q looks", Copy)
	hint := "leave folders out with code.exclude, or raise code.max_files"
	if s.request.Snapshot == Git {
		what, hint = "code.include looks", `name the folder in each pattern, as in "configs/**/*.yaml", or raise code.max_files`
	}
	return &usage.Error{
		Message: fmt.Sprintf("%s at more than %s below %s, ten times code.max_files (the last in %s)",
			what, text.Plural(looksPerFile*s.request.MaxFiles, "file"), s.Root, shown(folder)),
		Hint: hint,
	}
}

// takeAll selects everything except what is not code.
func (s *Selection) takeAll(name string, info fs.FileInfo) (into bool, err error) {
	if why := s.noCode(name, info); why != "" {
		s.omit(name, why)
		return false, nil
	}
	if !info.IsDir() {
		return false, s.take(name, info)
	}
	return true, s.add(member{path: name, mode: info.Mode()}, 0)
}

// takeNamed selects what code.include names. tracked holds what git lists.
func (s *Selection) takeNamed(tracked map[string]bool) func(name string, info fs.FileInfo) (bool, error) {
	return func(name string, info fs.FileInfo) (into bool, err error) {
		switch {
		case info.IsDir():
			return mayHold(s.include, name) && s.noCode(name, info) == "", nil
		case tracked[name] || !matchAny(s.include, name, false) || s.noCode(name, info) != "":
			return false, nil
		}
		return false, s.take(name, info)
	}
}

// noCode says why something is left out, and returns "" for code.
func (s *Selection) noCode(name string, info fs.FileInfo) string {
	base := path.Base(name)
	switch {
	case slices.Contains(versionControl, base):
		return "version control"
	case matchAny(s.exclude, name, info.IsDir()):
		return excluded
	case s.runs != nil && os.SameFile(s.runs, info):
		return "run_dir"
	case info.Mode().IsRegular():
		return ""
	case rundir.IsRun(filepath.Join(s.Root, name)): // also behind a link, as each job has one
		return "a run directory"
	case !info.IsDir():
		return ""
	case slices.Contains(caches, base):
		return "a cache"
	}
	for file, what := range environments {
		if _, err := os.Lstat(filepath.Join(s.Root, name, file)); err == nil {
			return what
		}
	}
	return ""
}

const excluded = "code.exclude"

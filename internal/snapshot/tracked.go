package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/internal/usage"
)

// A repository is that of the tree, or of a submodule in it.
type repository struct {
	path   string // its top, relative to that of the tree; "." is the tree itself
	commit string // "" if there is none yet
}

// maxRepositories limits the number of submodules, because git is called several times for each.
const maxRepositories = 1000

// selectTracked selects what git tracks in the work tree that contains the working directory, and what patterns add.
func (s *Selection) selectTracked(ctx context.Context) error {
	if s.request.GitPath == "" {
		return &usage.Error{
			Message: fmt.Sprintf("code.snapshot = %q needs git, which is not on the PATH here", Git),
			Hint:    fmt.Sprintf("install it, load its module, or write code.snapshot = %q", Copy),
		}
	}
	s.git = newGitProgram(s.request.GitPath, s.request.Environ)
	workDir := s.Root
	top, err := s.git.top(ctx, workDir)
	if err != nil {
		return err
	}
	dir, err := filepath.Rel(top, workDir)
	if err != nil || !filepath.IsLocal(dir) {
		return &usage.Error{Message: fmt.Sprintf("code.snapshot = %q: git says that %s belongs to the work tree %s, which is not above it",
			Git, workDir, top)}
	}
	s.Root, s.Dir = top, dir
	tracked := map[string]bool{}
	if err := s.takeTracked(ctx, ".", tracked); err != nil {
		return err
	}
	if len(s.include) > 0 {
		if err := s.walk(ctx, ".", s.takeNamed(tracked)); err != nil {
			return err
		}
	}
	inWorkDir := func(m member) bool { return dir == "." || strings.HasPrefix(m.path, dir+"/") }
	if !slices.ContainsFunc(s.members, inWorkDir) {
		return &usage.Error{
			Message: fmt.Sprintf("code.snapshot = %q: git tracks no file in workdir, %s", Git, workDir),
			Hint:    fmt.Sprintf("git add the code, name it in code.include, or write code.snapshot = %q", Copy),
		}
	}
	return s.noteUntracked(ctx)
}

// top returns the top of the work tree that contains a directory.
func (g *gitProgram) top(ctx context.Context, dir string) (string, error) {
	top, err := g.line(ctx, dir, "rev-parse", "--show-toplevel")
	if err == nil {
		top, err = filepath.EvalSymlinks(top)
	}
	return top, refused(err)
}

// takeTracked selects what is tracked in the repository at path at, and in its submodules.
func (s *Selection) takeTracked(ctx context.Context, at string, tracked map[string]bool) error {
	commit, err := s.git.commit(ctx, filepath.Join(s.Root, at))
	if err != nil {
		return refused(err)
	}
	s.repos = append(s.repos, repository{at, commit})
	var submodules []string
	last := ""
	err = s.git.each(ctx, filepath.Join(s.Root, at), func(entry string) error {
		// mode, object and stage precede the tab
		facts, name, ok := strings.Cut(entry, "\t")
		if !ok || !filepath.IsLocal(name) || slices.Contains(strings.Split(name, "/"), ".git") {
			return fmt.Errorf("git lists %q, which is not a file of a work tree", entry)
		}
		name = path.Join(at, name)
		if name == last { // one of several stages of a merge
			return nil
		}
		last = name
		tracked[name] = true
		if strings.HasPrefix(facts, "160000 ") {
			submodules = append(submodules, name)
			return nil
		}
		return s.takeEntry(name)
	}, "ls-files", "-z", "--stage")
	if err != nil {
		return refused(err)
	}
	for _, name := range submodules {
		if err := s.takeSubmodule(ctx, name, tracked); err != nil {
			return err
		}
	}
	return nil
}

// takeEntry selects what is tracked under a name, in its present form.
func (s *Selection) takeEntry(name string) error {
	if matchAny(s.exclude, name, false) {
		s.omit(name, excluded)
		return nil
	}
	var info fs.FileInfo
	err := fs.ErrNotExist
	if s.isFolder(path.Dir(name)) {
		info, err = os.Lstat(filepath.Join(s.Root, name))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.omit(name, "tracked, but missing")
		return nil
	case err != nil:
		return s.unreadable(err)
	case info.IsDir():
		s.omit(name, "tracked as a file, but now a folder")
		return nil
	}
	return s.take(name, info)
}

// takeSubmodule selects what is tracked in a submodule.
func (s *Selection) takeSubmodule(ctx context.Context, name string, tracked map[string]bool) error {
	dir := filepath.Join(s.Root, name)
	switch _, err := os.Lstat(filepath.Join(dir, ".git")); {
	case matchAny(s.exclude, name, true):
		s.omit(name+"/", excluded)
		return nil
	case err != nil || !s.isFolder(name):
		s.omit(name+"/", "a submodule that is not checked out")
		return nil
	case len(s.repos) == maxRepositories:
		return &usage.Error{Message: fmt.Sprintf("code.snapshot = %q: %s has more than %d submodules", Git, s.Root, maxRepositories-1)}
	}
	switch top, err := s.git.top(ctx, dir); {
	case err != nil:
		return err
	case top != dir:
		s.omit(name+"/", "a submodule whose work tree is elsewhere")
		return nil
	}
	return s.takeTracked(ctx, name, tracked)
}

// noteUntracked records files that are not tracked, not ignored, and not named by a pattern: a new file is easily forgotten.
func (s *Selection) noteUntracked(ctx context.Context) error {
	taken := map[string]bool{}
	for _, m := range s.members {
		taken[m.path] = true
	}
	err := s.git.each(ctx, s.Root, func(name string) error {
		name = strings.TrimSuffix(name, "/")
		info, err := os.Lstat(filepath.Join(s.Root, name))
		if err != nil || taken[name] {
			return nil
		}
		why := s.noCode(name, info)
		switch {
		case why != "" && why != excluded:
			return nil
		case why == "":
			why = "untracked: git add, or code.include"
		}
		if info.IsDir() {
			name += "/"
		}
		s.omit(name, why)
		return nil
	}, "ls-files", "-z", "--others", "--exclude-standard", "--directory", "--no-empty-directory")
	return refused(err)
}

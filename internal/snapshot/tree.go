package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/internal/vfs"
)

// Request describes the requested copy of the code.
type Request struct {
	Config
	WorkDir string // where ranks would run without a copy; absolute
	RunDir  string // the directory of run directories, which is never copied; absolute
	GitPath string // the program; "": not installed
	Environ []string
}

// Selection is what belongs to a copy.
type Selection struct {
	Root string // the top of the tree: git's work tree, or the working directory; absolute, without links
	Dir  string // the working directory in it, relative; "." is the top

	request  Request
	git      *gitProgram // nil: not used
	members  []member
	bytes    int64
	repos    []repository
	leftOut  []Omission
	omitted  int      // also counts those for which leftOut has no room
	special  []string // pipes and similar files that are tracked as files, which git cannot read
	include  []pattern
	exclude  []pattern
	runs     fs.FileInfo // of the directory of run directories; nil: it does not exist
	looked   int
	inFolder map[string]*weight // by the first element of their paths
	folders  map[string]bool    // for each path that was checked, whether it is a directory and not a link
}

// A member is a file, a link or a directory of the copy.
type member struct {
	path string // relative to the top
	mode fs.FileMode
	link string // the target of a link, as it is to be written
}

// weight says how much of the copy is in one directory.
type weight struct {
	files int
	bytes int64
}

// Omission is something that is not in the copy, with the reason.
type Omission struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

const (
	// maxListed limits the list of omissions.
	maxListed = 1000
	// looksPerFile is how many files and directories are examined for each file that the copy may have. A user with more needs narrower
	// patterns.
	looksPerFile = 10
)

// Select decides what belongs to the copy. It reads directories but not files. It returns a *usage.Error for a tree that cannot be copied.
func (r Request) Select(ctx context.Context) (*Selection, error) {
	s := &Selection{request: r, inFolder: map[string]*weight{}, folders: map[string]bool{".": true}}
	var errs [4]error
	s.include, errs[0] = parsePatterns(r.Include)
	s.exclude, errs[1] = parsePatterns(r.Exclude)
	s.Root, errs[2] = filepath.EvalSymlinks(r.WorkDir)
	if errs[2] == nil && !vfs.IsDir(s.Root) {
		errs[2] = fmt.Errorf("%s is not a folder", s.Root)
	}
	if s.runs, errs[3] = os.Stat(r.RunDir); errors.Is(errs[3], fs.ErrNotExist) {
		errs[3] = nil
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, &usage.Error{Message: fmt.Sprintf("copy the code in workdir, %s: %v", r.WorkDir, err)}
	}
	s.Dir = "."
	var err error
	if r.Snapshot == Git {
		err = s.selectTracked(ctx)
	} else {
		err = s.walk(ctx, ".", s.takeAll)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(s.members, func(a, b member) int { return strings.Compare(a.path, b.path) })
	s.members = slices.CompactFunc(s.members, func(a, b member) bool { return a.path == b.path })
	return s, nil
}

// omit records what is not in the copy.
func (s *Selection) omit(name, why string) {
	s.omitted++
	if len(s.leftOut) < maxListed {
		s.leftOut = append(s.leftOut, Omission{shown(name), why})
	}
}

// take adds a file or a link to the copy, or records why it does not belong there.
func (s *Selection) take(name string, info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return s.add(member{path: name, mode: mode}, info.Size())
	case mode&fs.ModeSymlink != 0:
		link, err := os.Readlink(filepath.Join(s.Root, name))
		if err != nil {
			return s.unreadable(err)
		}
		to, ok := s.within(name, link)
		if !ok {
			s.omit(name, "a link that leads out of the tree, to "+shown(link))
			return nil
		}
		return s.add(member{path: name, mode: mode, link: to}, 0)
	}
	s.omit(name, "neither a file nor a link")
	s.special = append(s.special, name)
	return nil
}

// within returns the target of a link for the copy. It returns false if the link leads out of the tree, also by way of other links. An
// absolute link into the tree becomes relative, because it would lead from the copy to the tree.
func (s *Selection) within(name, link string) (string, bool) {
	if real, err := filepath.EvalSymlinks(filepath.Join(s.Root, name)); err == nil {
		if rel, err := filepath.Rel(s.Root, real); err != nil || !filepath.IsLocal(rel) {
			return "", false
		}
	}
	folder := filepath.Dir(name)
	if filepath.IsAbs(link) {
		for _, top := range []string{s.Root, s.requestedRoot()} {
			if rel, err := filepath.Rel(top, link); err == nil && filepath.IsLocal(rel) {
				link, err = filepath.Rel(folder, rel)
				return link, err == nil
			}
		}
		return "", false
	}
	return link, filepath.IsLocal(filepath.Join(folder, link))
}

// requestedRoot returns the top of the tree as the user may write it, with links on the way, as far as that can be determined.
func (s *Selection) requestedRoot() string {
	if s.Dir == "." {
		return s.request.WorkDir
	}
	if above, ok := strings.CutSuffix(s.request.WorkDir, "/"+s.Dir); ok {
		return above
	}
	return s.Root
}

// add adds a member, unless the copy becomes too large.
func (s *Selection) add(m member, size int64) error {
	s.members = append(s.members, m)
	s.bytes += size
	top, _, inFolder := strings.Cut(m.path, "/")
	if inFolder || m.mode.IsDir() {
		top += "/"
	}
	w := s.inFolder[top]
	if w == nil {
		w = &weight{}
		s.inFolder[top] = w
	}
	w.files++
	w.bytes += size
	if len(s.members) > s.request.MaxFiles {
		return s.tooLarge(text.Plural(s.request.MaxFiles, "file"), "code.max_files",
			func(a, b *weight) int { return cmp.Compare(a.files, b.files) }, func(w *weight) string { return text.Plural(w.files, "file") })
	}
	if s.bytes > s.maxBytes() {
		return s.tooLarge(text.Bytes(uint64(s.maxBytes())), "code.max_mb",
			func(a, b *weight) int { return cmp.Compare(a.bytes, b.bytes) }, func(w *weight) string { return text.Bytes(uint64(w.bytes)) })
	}
	return nil
}

func (s *Selection) maxBytes() int64 { return int64(s.request.MaxMB) << 20 }

// tooLarge returns the error for a copy that would be too large. It names what is largest so far.
func (s *Selection) tooLarge(limit, key string, order func(a, b *weight) int, show func(*weight) string) error {
	names := slices.Sorted(maps.Keys(s.inFolder))
	largest := slices.MaxFunc(names, func(a, b string) int { return order(s.inFolder[a], s.inFolder[b]) })
	advice := "leave out what is not code with code.exclude"
	if s.request.Snapshot == Copy {
		advice += fmt.Sprintf(", take only what git tracks with code.snapshot = %q", Git)
	}
	return &usage.Error{
		Message: fmt.Sprintf("code.snapshot = %q would copy more than %s from %s, but %s is the limit (the most so far: %s in %s)",
			s.request.Snapshot, limit, s.Root, key, show(s.inFolder[largest]), shown(largest)),
		Hint: advice + ", or raise " + key,
	}
}

// unreadable returns the error for what cannot be read.
func (s *Selection) unreadable(err error) error {
	return &usage.Error{Message: fmt.Sprintf("copy the code: %v", err), Hint: "leave it out with code.exclude"}
}

// isFolder reports whether a path of the tree is a directory, and each element on the way too, so that no link is followed.
func (s *Selection) isFolder(name string) bool {
	if is, known := s.folders[name]; known {
		return is
	}
	is := s.isFolder(path.Dir(name))
	if is {
		info, err := os.Lstat(filepath.Join(s.Root, name))
		is = err == nil && info.IsDir()
	}
	s.folders[name] = is
	return is
}

package rundir

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"ddpbatch/internal/each"
	"ddpbatch/internal/vfs"
)

// ErrNotFound: no run directory is what the user named.
var ErrNotFound = errors.New("no such run")

// Find opens what a user names: a run directory by its path or by its name below
// parent, a job there by <name>-<jobid> or by a path that ends so, or a job id alone ("123", or "123_4" for
// an element of an array; "123;lab" on a cluster). A job id of several runs (a
// rebuilt cluster counts from 1 again, and each cluster counts by itself) means
// the newest, and never a folder of that name. The error lists what has a
// similar name.
func Find(parent, jobOrPath string) (*Dir, error) {
	if id, cluster, ok := cutCluster(jobOrPath); ok {
		if d, err := findJob(parent, id, cluster); d != nil || err != nil {
			return d, err
		}
		// a folder named so is no job: anybody may make one
		return nil, fmt.Errorf("%w as %q%s", ErrNotFound, jobOrPath, suggestions(parent, jobOrPath))
	}
	for _, path := range candidates(parent, jobOrPath) {
		d, err := Open(path)
		if !errors.Is(err, os.ErrNotExist) {
			return d, err
		}
		if root, index, ok := taskPath(filepath.Clean(path)); ok {
			if array, err := Open(root); err == nil {
				return nil, &NoElementError{Run: array, Index: index}
			}
		}
	}
	return nil, fmt.Errorf("%w as %q%s", ErrNotFound, jobOrPath, suggestions(parent, jobOrPath))
}

// candidates are the paths that name may stand for. A bare name below parent
// comes first, so that a file of the same name in the working directory is not
// taken for it. <name>-<jobid>, and <name>-<jobid>/tasks/<index>, go by the job's link: before anything else if that is the caller's own.
// Another user's hides nothing that has the name itself.
func candidates(parent, name string) []string {
	if name == "" {
		return nil
	}
	paths := []string{filepath.Clean(name)}
	if !strings.ContainsRune(name, filepath.Separator) && name != "." && name != ".." {
		paths = []string{filepath.Join(parent, name), name}
	}
	run, task := paths[0], ""
	if root, index, ok := taskPath(run); ok {
		run, task = root, filepath.Join(tasksName, strconv.Itoa(index))
	}
	folder, link := filepath.Dir(run), linkPrefix+filepath.Base(run)
	if _, _, ok := cutLink(link); !ok {
		return paths
	}
	at := 1
	if l, _ := runOfLink(folder, link); l.own {
		at = 0
	}
	return slices.Insert(paths, at, filepath.Join(folder, link, task))
}

// maxOtherLinks is how many links of other users to the runs of one job id are followed: anybody can make more of them in a folder open to
// all.
const maxOtherLinks = 32

// findJob opens the run of a job id, on a cluster if that is not ""; it returns nil if there is none. It looks at links to the caller's own
// runs first, then at the job ids that the caller's runs record, because another user may have taken the name of a link, and only then at
// runs of other users.
func findJob(parent, id, cluster string) (*Dir, error) {
	job, _, isTask := strings.Cut(id, "_")
	elsewhere := func(path string) bool { return isElsewhere(path, job, cluster) }
	own, others := jobLinks(parent, job)
	found, err := newestOf(slices.DeleteFunc(own, elsewhere), true)
	if found == nil && err == nil {
		found, err = newestOf(slices.DeleteFunc(ownRunsOf(parent, job, cluster), elsewhere), true)
	}
	if found == nil && err == nil {
		found, err = newestOf(slices.DeleteFunc(others, elsewhere), false)
	}
	if found == nil || err != nil || !isTask {
		return found, err
	}
	offsets, err := found.Offsets()
	if err != nil {
		return nil, err
	}
	index, err := ElementOf(id, offsets)
	if err != nil {
		return nil, err
	}
	return found.openTask(index)
}

// isElsewhere reports whether a run's job of that number is certainly not on a cluster; "": on any. Of the newest job the run says which it
// is on; an earlier one, or another link of a chain, may be on those to which the run is sent.
func isElsewhere(path, job, cluster string) bool {
	recorded, on, err := (&Dir{path: path}).recordedJob()
	if cluster == "" || err != nil || on == cluster {
		return false
	}
	run, err := Open(path)
	return recorded == job || err == nil && !slices.Contains(strings.Split(run.spec.Clusters, ","), cluster)
}

// jobLinks returns the run directories that the links of a job id lead to: the caller's own, and those of other users by the newest
// maxOtherLinks links.
func jobLinks(parent, job string) (own, others []string) {
	var foreign []runLink
	_, links, _ := listNames(parent) // a parent that cannot be read has no job
	for _, name := range links {
		if !strings.HasSuffix(name, "-"+job) {
			continue
		}
		// else the run was removed, and its link was not; or nothing of ddpbatch's made the link
		if link, ok := runOfLink(parent, name); link.own {
			own = append(own, link.path)
		} else if ok {
			foreign = append(foreign, link)
		}
	}
	slices.SortStableFunc(foreign, func(a, b runLink) int { return b.made.Compare(a.made) })
	for _, link := range foreign[:min(maxOtherLinks, len(foreign))] {
		others = append(others, link.path)
	}
	return own, others
}

// ownRunsOf returns the caller's run directories that record job as their newest. Where a cluster is named it may be any of their jobs: the
// link of that number may lead to a run on another cluster.
func ownRunsOf(parent, job, cluster string) (paths []string) {
	runs, _, _ := listNames(parent)
	for _, name := range runs {
		d := &Dir{path: filepath.Join(parent, name)}
		if !ownFolder(d.path) {
			continue
		}
		if id, err := d.JobID(); err == nil && (id == job || cluster != "" && wasSubmittedAs(d.path, job)) {
			paths = append(paths, d.path)
		}
	}
	return paths
}

// wasSubmittedAs reports whether a job is one of those that a run was submitted as.
func wasSubmittedAs(path, job string) bool {
	run, err := Open(path)
	if err != nil {
		return false
	}
	known, err := run.Submissions()
	return err == nil && slices.Contains(known.Jobs, job)
}

// newestOf opens the newest of the run directories; it returns nil if there is none. If they are the caller's own, one that cannot be
// opened is an error. If not, it is skipped.
func newestOf(paths []string, own bool) (newest *Dir, err error) {
	for _, path := range paths {
		d, err := Open(path)
		switch {
		case err != nil && (!own || errors.Is(err, os.ErrNotExist)):
		case err != nil:
			return nil, err
		case newest == nil || d.spec.Created.After(newest.spec.Created):
			newest = d
		}
	}
	return newest, nil
}

// runLink is a link to a run directory beside it.
type runLink struct {
	path string // of the run
	made time.Time
	own  bool // the run is the caller's
}

// runOfLink looks at the link name in parent. ok is false if it leads elsewhere, or belongs to another user than the run.
func runOfLink(parent, name string) (_ runLink, ok bool) {
	link := filepath.Join(parent, name)
	target, err := os.Readlink(link)
	if err != nil || !runName().MatchString(target) {
		return runLink{}, false
	}
	path := filepath.Join(parent, target)
	of, err := os.Lstat(link)
	if err != nil {
		return runLink{}, false
	}
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || vfs.Owner(info) != vfs.Owner(of) {
		return runLink{}, false
	}
	return runLink{path, of.ModTime(), vfs.Owner(info) == os.Geteuid()}, true
}

// suggestions says which names below parent come closest to name, or which runs are
// newest.
func suggestions(parent, name string) string {
	const most = 5
	dirs, err := List(parent)
	if err != nil || len(dirs) == 0 {
		return fmt.Sprintf(": there is no run in %s", parent)
	}
	runs, links, _ := listNames(parent)
	for i, link := range links {
		links[i] = strings.TrimPrefix(link, linkPrefix)
	}
	similar := slices.DeleteFunc(append(links, runs...), func(n string) bool {
		unprintable := strings.ContainsFunc(n, func(r rune) bool { return !unicode.IsPrint(r) })
		return unprintable || !strings.Contains(n, name) && commonPrefix(n, name) < 3
	})
	if name != "" && len(similar) > 0 {
		slices.SortStableFunc(similar, func(a, b string) int {
			return cmp.Compare(commonPrefix(b, name), commonPrefix(a, name))
		})
		return fmt.Sprintf(" in %s; similar: %s", parent, strings.Join(similar[:min(most, len(similar))], ", "))
	}
	var newest []string
	for _, d := range dirs[:min(most, len(dirs))] {
		newest = append(newest, filepath.Base(d.path))
	}
	return fmt.Sprintf(" in %s; the newest there: %s", parent, strings.Join(newest, ", "))
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// listNames lists the directories below parent that are called like runs, and the
// symbolic links that may be of jobs.
func listNames(parent string) (runs, links []string, err error) {
	entries, err := os.ReadDir(parent)
	for _, e := range entries {
		switch {
		case e.Type()&os.ModeSymlink != 0 && strings.HasPrefix(e.Name(), linkPrefix):
			links = append(links, e.Name())
		case e.IsDir() && runName().MatchString(e.Name()):
			runs = append(runs, e.Name())
		}
	}
	return runs, links, err
}

// List opens every run directory below parent, newest first. What cannot be
// opened as one is left out; a parent that is not there holds none.
func List(parent string) ([]*Dir, error) {
	runs, _, err := listNames(parent)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	dirs := make([]*Dir, len(runs))
	each.Index(len(runs), func(i int) { dirs[i], _ = Open(filepath.Join(parent, runs[i])) })
	dirs = slices.DeleteFunc(dirs, func(d *Dir) bool { return d == nil })
	SortNewest(dirs)
	return dirs, nil
}

// SortNewest puts the newest run first.
func SortNewest(dirs []*Dir) {
	slices.SortStableFunc(dirs, func(a, b *Dir) int {
		return cmp.Or(b.spec.Created.Compare(a.spec.Created), cmp.Compare(b.path, a.path))
	})
}

// Newest opens up to most run directories below parent, or that links there lead to, those that were made last first. It goes by their
// names, which have that time, so that no others are looked into. What cannot be opened, and a parent that is not there, count as nothing.
func Newest(parent string, most int) (dirs []*Dir) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if runName().MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(madeAt(b), madeAt(a)) })
	for _, name := range names[:min(most, len(names))] {
		if d, err := Open(filepath.Join(parent, name)); err == nil {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

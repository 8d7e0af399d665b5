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

// ErrNotFound means that no run directory has the name that the user gave.
var ErrNotFound = errors.New("no such run")

// Find opens the run that a user names: a run directory by its path or by its name below parent, a job there by <name>-<jobid> or by a path
// that ends so, or a job by its ID alone ("123", or "123_4" for an element of an array; "123;lab" on a cluster). A job ID of several runs
// means the newest of them: a rebuilt cluster counts from 1 again, and each cluster counts by itself. A job ID never means a directory of
// that name. The error lists similar names.
func Find(parent, jobOrPath string) (*Dir, error) {
	if id, cluster, ok := cutCluster(jobOrPath); ok {
		if d, err := findJob(parent, id, cluster); d != nil || err != nil {
			return d, err
		}
		// a directory of that name is not the job: anyone may create one
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

// candidates returns the paths that name may stand for. A bare name is first looked for below parent, so that a file of that name in the
// working directory is not mistaken for it. <name>-<jobid> and <name>-<jobid>/tasks/<index> are found by the job's link: before anything
// else if the link is the caller's own. Another user's link comes last, and so hides nothing of that name.
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

// maxOtherLinks is the number of links of other users that are followed for one job ID, because anyone can create more in a directory that
// all may write to.
const maxOtherLinks = 32

// findJob opens the run of a job ID, on a cluster if that is not empty; it returns nil if there is none. It looks at links to the caller's
// own runs first. Then it looks at the job IDs that the caller's runs record, because another user may have taken the name of a link. Last
// it looks at runs of other users.
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

// isElsewhere reports whether a run's job of that ID is certainly not on cluster, where "" means any cluster. For its newest job the run
// records the cluster. An earlier job, or another link of a chain, may be on any cluster to which the run is sent.
func isElsewhere(path, job, cluster string) bool {
	recorded, on, err := (&Dir{path: path}).recordedJob()
	if cluster == "" || err != nil || on == cluster {
		return false
	}
	run, err := Open(path)
	return recorded == job || err == nil && !slices.Contains(strings.Split(run.spec.Clusters, ","), cluster)
}

// jobLinks returns the run directories that the links of a job ID point to: the caller's own, and those of other users by at most the
// newest maxOtherLinks links.
func jobLinks(parent, job string) (own, others []string) {
	var foreign []runLink
	_, links, _ := listNames(parent) // a parent that cannot be read has no jobs
	for _, name := range links {
		if !strings.HasSuffix(name, "-"+job) {
			continue
		}
		// else the run was removed and its link was not, or ddpbatch did not make the link
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

// ownRunsOf returns the caller's run directories that record job as their newest. If a cluster is named, job may be any of their jobs,
// because the link of that ID may point to a run on another cluster.
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

// wasSubmittedAs reports whether a job is one of those as which a run was submitted.
func wasSubmittedAs(path, job string) bool {
	run, err := Open(path)
	if err != nil {
		return false
	}
	known, err := run.Submissions()
	return err == nil && slices.Contains(known.Jobs, job)
}

// newestOf opens the newest of the run directories, and returns nil if there are none. A directory that cannot be opened is an error if it
// is the caller's own, and is skipped otherwise.
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

// runLink is a link to a run directory next to it.
type runLink struct {
	path string // of the run
	made time.Time
	own  bool // the run is the caller's
}

// runOfLink reads the link name in parent. ok is false if it points elsewhere, or belongs to another user than the run.
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

// suggestions returns the names below parent that are most similar to name, or the newest runs.
func suggestions(parent, name string) string {
	const most = 5
	dirs, err := List(parent)
	if err != nil || len(dirs) == 0 {
		return fmt.Sprintf(": %s has no runs", parent)
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

// listNames lists the directories below parent that have names of runs, and the symbolic links that may be those of jobs.
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

// List opens every run directory below parent, newest first. It leaves out directories that cannot be opened. A parent that does not exist
// has no runs.
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

// SortNewest sorts runs, newest first.
func SortNewest(dirs []*Dir) {
	slices.SortStableFunc(dirs, func(a, b *Dir) int {
		return cmp.Or(b.spec.Created.Compare(a.spec.Created), cmp.Compare(b.path, a.path))
	})
}

// Newest opens the newest run directories below parent, or to which links there point, at most most of them. It uses the time in their
// names, so that it need not open the others. Runs that cannot be opened are left out. A parent that does not exist has no runs.
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

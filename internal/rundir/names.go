package rundir

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Name is something by which [Find] knows a run: a job id, or the name of a run directory.
type Name struct {
	Text string
	Job  string // the job's name, of an id; "" of a directory
}

// Names are those below parent that begin with prefix: job ids, the newest first, then run directories, the newest first; after "123_" the
// elements of the array 123. They are told from the names of files alone, without a look into any run, so that thousands take no time. What
// has a name that ddpbatch gives to nothing is left out, and a parent that cannot be read has none.
func Names(parent, prefix string) []Name {
	if job, index, ok := strings.Cut(prefix, "_"); ok && jobID().MatchString(job) {
		return elementNames(parent, job, index)
	}
	runs, links, _ := listNames(parent)
	var ids, others []Name
	for _, link := range links {
		if name, id, ok := cutLink(link); ok && strings.HasPrefix(id, prefix) {
			ids = append(ids, Name{id, name})
		}
	}
	for _, run := range runs {
		if strings.HasPrefix(run, prefix) {
			others = append(others, Name{Text: run})
		}
	}
	// of numbers without leading zeros
	newestFirst := func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(b, a)) }
	slices.SortFunc(ids, func(a, b Name) int { return cmp.Or(newestFirst(a.Text, b.Text), cmp.Compare(a.Job, b.Job)) })
	ids = slices.CompactFunc(ids, func(a, b Name) bool { return a.Text == b.Text }) // a rebuilt cluster counts from 1 again
	slices.SortFunc(others, func(a, b Name) int {
		return cmp.Or(cmp.Compare(madeAt(b.Text), madeAt(a.Text)), cmp.Compare(a.Text, b.Text))
	})
	return append(ids, others...)
}

// plainID reports whether text is the id of a whole job.
func plainID(text string) bool { return jobID().MatchString(text) && !strings.ContainsAny(text, "_+") }

// madeAt is the part of a run directory's name that tells when it was made.
func madeAt(name string) string {
	rest := name[:strings.LastIndexByte(name, '-')]
	return rest[len(rest)-len("20261121-101500"):]
}

// elementNames are the elements of the array job whose indices begin with prefix.
func elementNames(parent, job, prefix string) (names []Name) {
	_, links, _ := listNames(parent)
	for _, link := range links {
		name, id, ok := cutLink(link)
		if !ok || id != job {
			continue
		}
		entries, _ := os.ReadDir(filepath.Join(parent, link, tasksName)) // none: it is no array, or none has begun
		var indices []int
		for _, entry := range entries {
			index, err := strconv.Atoi(entry.Name())
			if err == nil && index >= 0 && strconv.Itoa(index) == entry.Name() {
				indices = append(indices, index)
			}
		}
		slices.Sort(indices)
		offset, size := pieceOf(filepath.Join(parent, link), job)
		for _, index := range indices {
			index -= offset
			if isIn := size == 0 || index >= 0 && index < size; isIn && strings.HasPrefix(strconv.Itoa(index), prefix) {
				names = append(names, Name{fmt.Sprintf("%s_%d", job, index), name})
			}
		}
	}
	return names
}

// pieceOf tells which elements of a run an array job has, where the run is submitted as several: from offset, size at most. A size of 0: it
// is not.
func pieceOf(path, job string) (offset, size int) {
	run, err := Open(path)
	if err != nil {
		return 0, 0
	}
	offsets, err := run.Offsets()
	if err != nil {
		return 0, 0
	}
	return offsets[job], run.Spec().ArraySize
}

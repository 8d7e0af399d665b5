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

// Name is a name by which [Find] finds a run: a job ID, or the name of a run directory.
type Name struct {
	Text string
	Job  string // of a job ID: the job's name; of a directory: ""
}

// Names returns the names below parent that begin with prefix: job IDs, newest first, then run directories, newest first; after "123_" it
// returns the elements of array 123. It uses only the names of files and opens no run, so that thousands of runs take no time. Names that
// ddpbatch does not use are left out. A parent that cannot be read has no names.
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
	// for numbers without leading zeros
	newestFirst := func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(b, a)) }
	slices.SortFunc(ids, func(a, b Name) int { return cmp.Or(newestFirst(a.Text, b.Text), cmp.Compare(a.Job, b.Job)) })
	ids = slices.CompactFunc(ids, func(a, b Name) bool { return a.Text == b.Text }) // a rebuilt cluster counts from 1 again
	slices.SortFunc(others, func(a, b Name) int {
		return cmp.Or(cmp.Compare(madeAt(b.Text), madeAt(a.Text)), cmp.Compare(a.Text, b.Text))
	})
	return append(ids, others...)
}

// plainID reports whether text is the ID of a whole job.
func plainID(text string) bool { return jobID().MatchString(text) && !strings.ContainsAny(text, "_+") }

// madeAt returns the part of a run directory's name that says when it was created.
func madeAt(name string) string {
	rest := name[:strings.LastIndexByte(name, '-')]
	return rest[len(rest)-len("20261121-101500"):]
}

// elementNames returns the elements of the array job whose indices begin with prefix.
func elementNames(parent, job, prefix string) (names []Name) {
	_, links, _ := listNames(parent)
	for _, link := range links {
		name, id, ok := cutLink(link)
		if !ok || id != job {
			continue
		}
		entries, _ := os.ReadDir(filepath.Join(parent, link, tasksName)) // no entries: not an array, or no element has begun
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

// pieceOf returns which elements of a run an array job has, if the run is submitted as several arrays: size at most, starting at offset.
// size is 0 if it is not.
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

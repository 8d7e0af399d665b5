package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Index is that of the array element whose directory d is; ok is false for a run's own.
func (d *Dir) Index() (index int, ok bool) {
	if d.root == nil {
		return 0, false
	}
	_, index, ok = taskPath(d.path)
	return index, ok
}

// Array is the run that an element belongs to; nil of a run itself.
func (d *Dir) Array() *Dir { return d.root }

// Elements are those of an array that have a directory, by index; none of a run that is no array.
func (d *Dir) Elements() ([]*Dir, error) {
	entries, err := os.ReadDir(filepath.Join(d.path, tasksName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the array's elements: %w", err)
	}
	var all []*Dir
	for _, entry := range entries {
		index, err := strconv.Atoi(entry.Name())
		if err != nil || index < 0 || strconv.Itoa(index) != entry.Name() || !entry.IsDir() {
			continue
		}
		element, err := d.task(index)
		if err != nil {
			return nil, err
		}
		all = append(all, element)
	}
	slices.SortFunc(all, func(a, b *Dir) int {
		i, _ := a.Index()
		j, _ := b.Index()
		return i - j
	})
	return all, nil
}

// AnewFrom is the attempt from which on d, a run or an element, begins anew where its job says checkpoint.resume = "never"; 0: the first.
func (d *Dir) AnewFrom() int {
	if index, ok := d.Index(); ok {
		return d.Spec().AnewElements[index]
	}
	return d.Spec().Anew
}

// NoElementError: the element of an array that is named has no directory. It may not have begun.
type NoElementError struct {
	Run   *Dir
	Index int
}

func (e *NoElementError) Error() string {
	return fmt.Sprintf("there is no array element %d in %s", e.Index, e.Run.path)
}

func (e *NoElementError) Is(target error) bool {
	return target == ErrNotFound || target == fs.ErrNotExist
}

// ElementLogs are the jobs of elements, such as 12_3, that have left a log in a run's directory (see [Dir.SlurmLogPath]). One whose batch script
// failed early has no directory, and a log all the same.
func (d *Dir) ElementLogs() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("look for the logs of the array's elements: %w", err)
	}
	var ids []string
	for _, entry := range entries {
		id, isLog := strings.CutPrefix(strings.TrimSuffix(entry.Name(), ".log"), "slurm-")
		if isLog && strings.Contains(id, "_") && jobID().MatchString(id) && filepath.Base(d.SlurmLogPath(id)) == entry.Name() {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

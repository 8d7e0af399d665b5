package runview

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/internal/lines"
	"ddpbatch/internal/rundir"
)

// elementLabel begins each line of an element if several elements are shown.
func elementLabel(index string) string { return "[" + index + "] " }

// arrayLog shows the logs of an array's elements.
type arrayLog struct {
	v    *Viewer
	run  *rundir.Dir
	only string // the job whose logs are shown; "": the newest of each element
	jobs arrayJobs
	openLogs
}

func (a *arrayLog) print() error {
	if err := a.look(); err != nil {
		return err
	}
	if len(a.open) == 0 {
		fmt.Fprintln(a.v.Err, "no output yet")
	}
	for _, file := range a.open { // one after the other: there may be more files than a process may have open
		err := errors.Join(file.tail.copy(), file.label.Finish())
		file.tail.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// follow shows logs until the job id has ended.
func (a *arrayLog) follow(ctx context.Context, id string) error {
	err := a.v.untilEnd(ctx, a.run, id, a.more)
	if ctx.Err() == nil {
		err = errors.Join(err, a.look(), a.copy()) // what was written just before the end
	}
	return errors.Join(err, a.finish())
}

// more shows what is new.
func (a *arrayLog) more() error {
	if a.due(a.v.Now()) {
		if err := a.look(); err != nil {
			return err
		}
	}
	return a.copy()
}

// look finds new logs.
func (a *arrayLog) look() error {
	logs, err := a.list()
	if err != nil {
		return err
	}
	for _, index := range slices.Sorted(maps.Keys(logs)) {
		a.add(logs[index], a.v.Out, &lines.Writer{To: a.v.Out, Label: elementLabel(strconv.Itoa(index))})
	}
	return nil
}

// list finds each element's log, that of the newest job that has left one.
func (a *arrayLog) list() (map[int]string, error) {
	array, err := arrayIn(a.run)
	if err != nil {
		return nil, err
	}
	if a.jobs.whole == "" { // later jobs are known by the elements that begin in them
		if a.jobs, err = array.jobs(a.run); err != nil {
			return nil, err
		}
	}
	ids, err := a.run.ElementLogs()
	if err != nil {
		return nil, err
	}
	offsets, err := a.run.Offsets()
	if err != nil {
		return nil, err
	}
	logs := map[int]string{}
	for _, id := range ids {
		job, _, _ := strings.Cut(id, "_")
		index, failed := rundir.ElementOf(id, offsets)
		if failed != nil || a.only != "" && a.only != job {
			continue
		}
		recorded := ""
		if element := array.begun[index]; element != nil {
			if recorded, err = element.JobID(); err != nil {
				return nil, err
			}
		}
		if id == a.jobs.of(index, recorded) || id == recorded && logs[index] == "" || a.only != "" {
			logs[index] = a.run.SlurmLogPath(id)
		}
	}
	return logs, nil
}

// elementRanks returns the logs of the same ranks for each element.
func (l rankLogs) elementRanks() ([]rankLogs, error) {
	elements, err := l.run.Elements()
	all := make([]rankLogs, len(elements))
	for i, element := range elements {
		all[i] = l
		all[i].run, all[i].element = element, filepath.Base(element.Path())
	}
	return all, err
}

// printArray is print for each element.
func (l rankLogs) printArray() error {
	elements, err := l.elementRanks()
	if err == nil && len(elements) == 0 {
		fmt.Fprintln(l.v.Err, "no output yet")
	}
	for _, element := range elements {
		if failed := element.print(); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s%w", element.ofElement(": "), failed))
		}
	}
	return err
}

// arrayFollowing shows what the ranks of an array's elements write as they write it.
type arrayFollowing struct {
	rankLogs
	elements map[string]*following
	over     map[string]bool // elements of which everything requested was shown
	all      int             // number of elements that the job asks for; 0: only Slurm knows
	looked   pacer
}

// followArray is follow for each element, until the last one has ended.
func (l rankLogs) followArray(ctx context.Context, id string) error {
	array, err := arrayIn(l.run)
	if err != nil {
		return err
	}
	a := &arrayFollowing{rankLogs: l, elements: map[string]*following{}, over: map[string]bool{}, all: len(array.indices)}
	err = l.untilShown(ctx, id, a.more, a.rest)
	for _, f := range a.elements {
		err = errors.Join(err, f.finish())
	}
	return err
}

// more shows what is new.
func (a *arrayFollowing) more() error {
	if a.looked.due(a.v.Now()) {
		if err := a.look(); err != nil {
			return err
		}
	}
	return a.each((*following).more)
}

// rest shows what was written just before the end.
func (a *arrayFollowing) rest() error {
	return errors.Join(a.look(), a.each((*following).rest))
}

// look begins to follow new elements.
func (a *arrayFollowing) look() error {
	elements, err := a.elementRanks()
	if err != nil {
		return err
	}
	for _, element := range elements {
		if a.elements[element.element] != nil {
			continue
		}
		if a.elements[element.element], err = element.following(); err != nil {
			return err
		}
	}
	return nil
}

// each shows what is new of each element. It returns errAllShown if everything was shown of all elements.
func (a *arrayFollowing) each(show func(*following) error) error {
	for _, index := range slices.Sorted(maps.Keys(a.elements)) {
		if a.over[index] {
			continue
		}
		switch err := show(a.elements[index]); {
		case errors.Is(err, errAllShown):
			a.over[index] = true
		case err != nil:
			return err
		}
	}
	if a.all > 0 && len(a.over) >= a.all {
		return errAllShown
	}
	return nil
}

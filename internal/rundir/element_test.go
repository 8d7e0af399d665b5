package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// TestElements are found by their numbers, in their order; what has another name is none.
func TestElements(t *testing.T) {
	d := create1(t, t.TempDir(), "job")
	if found, err := d.Elements(); len(found) > 0 || err != nil {
		t.Errorf("of no array: %v, %v", found, err)
	}
	for _, i := range []int{10, 2, 0} {
		_, err := d.Task(i)
		must(t, err)
	}
	for _, name := range []string{"x", "07", "-1", "1.5"} {
		must(t, os.Mkdir(filepath.Join(d.Path(), tasksName, name), 0o700))
	}
	must(t, os.WriteFile(filepath.Join(d.Path(), tasksName, "4"), nil, 0o600))
	found, err := d.Elements()
	must(t, err)
	var got []int
	for _, element := range found {
		index, ok := element.Index()
		if opened, err := Open(element.Path()); !ok || err != nil || opened.Path() != element.Path() {
			t.Errorf("%s: %v", element.Path(), err)
		}
		got = append(got, index)
	}
	if len(got) != 3 || got[0] != 0 || got[1] != 2 || got[2] != 10 {
		t.Errorf("elements %v", got)
	}
	if _, ok := d.Index(); ok {
		t.Error("a run has an index")
	}
}

// TestElementLedger has the array's cancels in it, by time, and nothing else of the array's.
func TestElementLedger(t *testing.T) {
	d := create1(t, t.TempDir(), "job")
	element, err := d.Task(3)
	must(t, err)
	at := func(seconds int, event, job string) Event {
		return Event{Time: noon.Add(time.Duration(seconds) * time.Second), Event: event, Job: job}
	}
	for _, e := range []Event{at(0, EventSubmit, ""), at(2, EventCancel, "12"), at(3, EventResume, ""), at(9, EventCancel, "13")} {
		must(t, d.Append(e))
	}
	for _, e := range []Event{at(1, EventBegin, "12_3"), at(6, EventBegin, "13_3"), at(5, EventEnd, "")} { // the clocks of two nodes
		must(t, element.Append(e))
	}
	want := []Event{at(1, EventBegin, "12_3"), at(2, EventCancel, "12"), at(6, EventBegin, "13_3"), at(5, EventEnd, ""), at(9, EventCancel, "13")}
	if got, err := element.Ledger(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// TestNoElement is told by the run's job id and by a path, and looking makes nothing.
func TestNoElement(t *testing.T) {
	d := create1(t, t.TempDir(), "job")
	must(t, d.SetJobID("12"))
	_, err := d.Task(3)
	must(t, err)
	for _, name := range []string{"12_7", filepath.Join(d.Path(), tasksName, "7"), filepath.Join(d.Path(), tasksName, "7") + "/"} {
		_, err := Find(filepath.Dir(d.Path()), name)
		var none *NoElementError
		if !errors.As(err, &none) || none.Run.Path() != d.Path() || none.Index != 7 || !errors.Is(err, ErrNotFound) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if elements, err := d.Elements(); err != nil || len(elements) != 1 {
		t.Errorf("looking made something: %v, %v", elements, err)
	}
}

// TestElementLogs are told by their names alone.
func TestElementLogs(t *testing.T) {
	d := create1(t, t.TempDir(), "job")
	for _, name := range []string{"slurm-12_3.log", "slurm-7_10.log", "slurm-12.log", "slurm-12_x.log", "slurm-12_4", "12_5.log", "slurm-12_6.log.log"} {
		must(t, os.WriteFile(filepath.Join(d.Path(), name), nil, 0o600))
	}
	if got, err := d.ElementLogs(); err != nil || !reflect.DeepEqual(got, []string{"12_3", "7_10"}) {
		t.Errorf("found %q, %v", got, err)
	}
}

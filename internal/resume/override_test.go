package resume

import (
	"maps"
	"testing"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// TestAnewCountsFromTheNextAttempt: what a resume sets applies from the next attempt on. That is the next attempt of the run, of every
// element by its own count, or of the named element. Settings that the resume does not name stay as they were.
func TestAnewCountsFromTheNextAttempt(t *testing.T) {
	t.Parallel()
	never := []string{"train.epochs=3", "checkpoint.resume=never"}
	claim := func(d *rundir.Dir, attempts int) {
		t.Helper()
		for range attempts {
			if _, err := d.ClaimAttempt(); err != nil {
				t.Fatal(err)
			}
		}
	}
	asked := func(d *rundir.Dir, sets []string) {
		t.Helper()
		anew, elements, err := anewFrom(d, sets)
		if err != nil {
			t.Fatal(err)
		}
		spec := d.Spec()
		if err := d.WriteSpec(
			spec.Override(rundir.Overridden{Anew: anew, AnewElements: elements, WorkDir: spec.WorkDir, Nodes: spec.Nodes,
				Job: spec.Job})); err != nil {
			t.Fatal(err)
		}
	}
	from := func(what string, d *rundir.Dir, want int) {
		t.Helper()
		again, err := rundir.Open(d.Path())
		if err != nil {
			t.Fatal(err)
		}
		if got := again.AnewFrom(); got != want {
			t.Errorf("%s: from attempt %d on, want %d", what, got, want)
		}
	}

	run := fakeslurm.Run(t, "")
	claim(run, 2)
	asked(run, []string{"train.epochs=3", "checkpoint.keep_last=4"})
	from("not asked", run, 0)
	asked(run, never)
	from("asked", run, 3)
	claim(run, 2)
	asked(run, []string{"train.epochs=9"})
	from("asked before", run, 3)
	asked(run, []string{`checkpoint={resume="never"}`})
	from("asked by the table", run, 5)

	array := fakeslurm.Run(t, "")
	var elements []*rundir.Dir
	for i, attempts := range []int{1, 4, 2} {
		element, err := array.Task(5 * i)
		if err != nil {
			t.Fatal(err)
		}
		claim(element, attempts)
		elements = append(elements, element)
	}
	asked(elements[1], never)
	for i, want := range []int{0, 5, 0} {
		from("element 5 asked", elements[i], want)
	}
	claim(elements[1], 1)
	asked(array, never)
	for i, want := range []int{2, 6, 3} {
		from("array asked", elements[i], want)
	}
	asked(array, nil)
	if _, got, _ := anewFrom(array, nil); !maps.Equal(got, map[int]int{0: 2, 5: 6, 10: 3}) {
		t.Errorf("asked before: %v", got)
	}
	later, err := array.Task(7)
	if err != nil {
		t.Fatal(err)
	}
	from("an element that has not run yet", later, 0)
}

func TestCheckAnewRefusesPartsOfAnArray(t *testing.T) {
	t.Parallel()
	run := fakeslurm.Run(t, "")
	for _, test := range []struct {
		sets, words []string
		refused     bool
	}{
		{[]string{"checkpoint.resume=never"}, []string{"--array=1"}, true},
		{[]string{"checkpoint.resume=never"}, []string{"-p", "long", "--array", "1-2"}, true},
		{[]string{"checkpoint.resume=never"}, []string{"-a1"}, true},
		{[]string{"checkpoint.resume=never"}, []string{"-A", "me", "--account=x"}, false},
		{[]string{"checkpoint.resume=never"}, nil, false},
		{[]string{"train.epochs=2"}, []string{"--array=1"}, false},
	} {
		if err := checkAnew(run.Path(), test.sets, test.words); (err != nil) != test.refused {
			t.Errorf("%v -- %v: %v", test.sets, test.words, err)
		}
	}
}

// TestResumedJobIsOnTrial: the job is on trial for the element that is resumed with it, or for the whole run.
func TestResumedJobIsOnTrial(t *testing.T) {
	t.Parallel()
	array := fakeslurm.Run(t, "")
	element, err := array.Task(5)
	if err != nil {
		t.Fatal(err)
	}
	fits := func(*jobfile.Job, rundir.Overridden) error { return nil }
	for _, resumed := range []*rundir.Dir{element, array} {
		if _, _, err := override(t.Context(), resumed, nil, []string{"slurm.nodes=2"}, nil, nil, fits); err != nil {
			t.Fatal(err)
		}
		before := array.Spec().Before
		if before == nil || (before.Element != nil) != (resumed == element) || before.Element != nil && *before.Element != 5 {
			t.Errorf("%s is resumed, and on trial is %+v", resumed.Path(), before)
		}
	}
}

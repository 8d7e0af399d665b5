package rundir

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
)

// TestFinalizeOverrideUndoesWhatDoesNotFit: if the checkpoints do not fit a job, the job is reset to the last one that they did fit.
func TestFinalizeOverrideUndoesWhatDoesNotFit(t *testing.T) {
	for _, fits := range []bool{true, false} {
		d := create1(t, t.TempDir(), "job")
		first := d.Spec()
		must(t, d.FinalizeOverride(false)) // nothing is on trial yet
		for _, set := range []string{"a=1", "a=2"} {
			must(t, d.WriteSpec(
				d.Spec().Override(Overridden{Sets: []string{set}, Anew: 2, WorkDir: "/w", Nodes: 3, Job: []byte(`{"a":1}`)})))
		}
		must(t, d.FinalizeOverride(fits))
		again, err := Open(d.Path())
		must(t, err)
		got := again.Spec()
		if got.Before != nil || fits != (len(got.Sets) == 1 && got.Sets[0] == "a=2" && got.Anew == 2 && got.Nodes == 3) || !fits &&
			(len(got.Sets) != 0 || got.Anew != 0 || got.Nodes != first.Nodes || got.WorkDir != first.WorkDir) {
			t.Errorf("fits %v: %+v", fits, got)
		}
	}
}

// TestFinalizeOverrideWaitsForItsElement: what one element of an array is resumed with stays on trial until that element has ended. If the
// earlier job of another element ends meanwhile, this decides nothing. Any element can finalize a change of the whole array.
func TestFinalizeOverrideWaitsForItsElement(t *testing.T) {
	five, kept, taken := 5, []string{"a=1"}, []string(nil)
	for name, test := range map[string]struct {
		element *int // the element that is resumed; nil: all
		ended   []int
		fits    []bool
		want    []string
		trial   bool
	}{
		"another ends well":                  {&five, []int{7}, []bool{true}, kept, true},
		"another is refused":                 {&five, []int{7}, []bool{false}, kept, true},
		"it is refused after another":        {&five, []int{7, 5}, []bool{true, false}, taken, false},
		"it ends well, and then another not": {&five, []int{5, 7}, []bool{true, false}, kept, false},
		"the array, one ends well":           {nil, []int{7, 5}, []bool{true, false}, kept, false},
		"the array, one is refused":          {nil, []int{7}, []bool{false}, kept, true}, // other elements run with it, or will
		"the array, one is refused, one not": {nil, []int{7, 5}, []bool{false, true}, kept, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := create1(t, t.TempDir(), "job")
			must(t, d.WriteSpec(
				d.Spec().Override(Overridden{Element: test.element, Sets: kept, WorkDir: "/w", Nodes: 2, Job: []byte(`{"a":2}`)})))
			for i, index := range test.ended {
				run, err := Open(d.Path())
				must(t, err)
				element, err := run.Task(index)
				must(t, err)
				must(t, element.FinalizeOverride(test.fits[i]))
			}
			again, err := Open(d.Path())
			must(t, err)
			if got := again.Spec(); !slices.Equal(got.Sets, test.want) || (got.Before != nil) != test.trial {
				t.Errorf("sets %q, before %+v; want %q, on trial %t", got.Sets, got.Before, test.want, test.trial)
			}
		})
	}
}

// TestOverrideAgainKeepsTheFirstSettings holds that after two changes the settings from before the first one return if the second fails.
func TestOverrideAgainKeepsTheFirstSettings(t *testing.T) {
	five, seven := 5, 7
	d := create1(t, t.TempDir(), "job")
	for _, o := range []Overridden{{Element: &five, Sets: []string{"a=1"}}, {Element: &seven, Sets: []string{"a=1", "b=1"}}} {
		o.WorkDir, o.Nodes, o.Job = "/w", 2, []byte(`{"a":2}`)
		must(t, d.WriteSpec(d.Spec().Override(o)))
	}
	for _, test := range []struct{ index, sets int }{{five, 2}, {seven, 0}} {
		element, err := d.Task(test.index)
		must(t, err)
		must(t, element.FinalizeOverride(false))
		if got := d.Spec().Sets; len(got) != test.sets {
			t.Errorf("after element %d was refused: %q", test.index, got)
		}
	}
}

// TestFinalizeOverrideLeavesWhatRunsAlone: what one element was resumed with is not undone while another element runs.
func TestFinalizeOverrideLeavesWhatRunsAlone(t *testing.T) {
	five := 5
	d := create1(t, t.TempDir(), "job")
	o := Overridden{Element: &five, Sets: []string{"a=1"}, WorkDir: "/w", Nodes: 2, Job: []byte(`{"a":2}`)}
	must(t, d.WriteSpec(d.Spec().Override(o)))
	element, err := d.Task(five)
	must(t, err)
	other, err := d.Task(7)
	must(t, err)
	n, err := other.ClaimAttempt()
	must(t, err)
	for _, left := range []int{1, 0} {
		must(t, element.FinalizeOverride(false))
		if got := d.Spec().Sets; len(got) != left {
			t.Errorf("the sets are %q, want %d", got, left)
		}
		must(t, other.WriteVerdict(Verdict{Attempt: n, Cause: "done", Message: "done"}))
	}
}

func FuzzSpec(f *testing.F) {
	f.Add([]byte(`{"schema":1,"run":"x-20261121-120000-0000beef","name":"x","kind":"slurm","nodes":2,"job":{"a":[1]}}`))
	f.Add([]byte(`{"schema":1,"name":"../x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSpec(data)
		if err != nil {
			return
		}
		if filepath.Base(s.Name) != s.Name || s.Name == ".." || s.Nodes < 0 {
			t.Fatalf("spec was taken: %+v", s)
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseSpec(text); err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
	})
}

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
)

// cancels runs `ddpbatch cancel`, and checks which jobs scancel hears of, and what an error says.
func (w *arrayWorld) cancels(name string, want []string, message string) {
	w.t.Helper()
	before := len(w.calls())
	e, out, _ := w.env(0, 0)
	err := runCancel(w.t.Context(), e, filepath.Dir(w.run.Path()), name)
	got := slices.DeleteFunc(w.calls()[before:], func(call string) bool { return !strings.HasPrefix(call, "scancel ") })
	said := ""
	for i, id := range want {
		want[i] = "scancel " + id
		said += "cancelled job " + id + "\n"
	}
	if !slices.Equal(got, want) || !strings.HasPrefix(out.String(), said) {
		w.t.Errorf("cancel %s ran %q and said %q; want %q", name, got, out, want)
	}
	switch {
	case message == "" && err != nil, message != "" && err == nil:
		w.t.Errorf("cancel %s: %v; want %q", name, err, message)
	case message != "" && (err.Error() != message || exitCode(err) != exit.Usage):
		w.t.Errorf("cancel %s: %v (exit code %d); want %s", name, err, exitCode(err), message)
	}
}

// An array of which one element was resumed alone is two jobs: its directory means both, and an id only its own.
func TestCancelArrayWithOneAlone(t *testing.T) {
	w := newArrayWorld(t, "0-3")
	w.submitted("12")
	w.ran(0, "12", 0)
	one := w.ran(1, "12", 3)
	w.submitted("13", one)
	w.slurm("12_0 RUNNING", "12_[2-3] PENDING", "13_1 RUNNING")
	w.cancels("12", []string{"12"}, "")
	w.cancels("13", []string{"13"}, "")
	w.cancels(w.run.Path(), []string{"12", "13"}, "")
	w.slurm("12_0 RUNNING", "12_[2-3] PENDING", "13_1 COMPLETED")
	w.cancels(w.run.Path(), []string{"12"}, "")
	w.cancels("13", nil, "job 13 has ended already: COMPLETED; there is nothing to cancel")
	w.slurm("12_0 COMPLETED", "12_2 COMPLETED", "12_3 COMPLETED", "13_1 RUNNING")
	w.cancels(w.run.Path(), []string{"13"}, "")
	w.cancels("12", nil, "job 12 has ended already: COMPLETED (3 of 4 elements are done); there is nothing to cancel")
	w.slurm("12_0 COMPLETED", "12_2 COMPLETED", "12_3 COMPLETED", "13_1 COMPLETED")
	w.cancels(w.run.Path(), nil, "job 12 has ended already: COMPLETED (all 4 elements are done); there is nothing to cancel\njob 13 has ended already: COMPLETED; there is nothing to cancel")
}

package checkpoint

import (
	"flag"
	"path/filepath"
	"testing"
)

var updateV2 = flag.Bool("update-v2", false, "write testdata/v2, once for ever, where it is not there")

// goldenV2 are the states of testdata/v2: a full checkpoint by two ranks and a delta of it.
func goldenV2() (full, delta *State) {
	full, delta = deltaState(1), deltaState(2)
	for _, s := range []*State{full, delta} {
		s.Metrics = map[string]float64{"eval_loss": 0.25}
	}
	return full, delta
}

// TestGoldenVersion2 reads checkpoints that were written once by the first program with version 2
// and must stay readable for ever.
func TestGoldenVersion2(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "v2")
	full, delta := goldenV2()
	if *updateV2 {
		d, err := Open(path, Options{Run: "golden", Attempt: 2})
		must(t, err)
		fix(d)
		must(t, d.Begin(t.Context(), nil))
		base, err := split(t, d, full, 2, nil, Commit{})
		must(t, err)
		c, err := split(t, d, delta, 2, full, Commit{Base: base})
		must(t, err)
		must(t, c.Close())
		must(t, base.Close())
	}
	d, err := Open(path, Options{})
	must(t, err)
	if list, err := d.List(t.Context()); err == nil && len(list) == 0 {
		t.Skip("testdata/v2 is not written yet: -update-v2")
	}
	for _, want := range []*State{full, delta} {
		got, err := d.Load(t.Context(), want.Step)
		must(t, err)
		wantState(t, got, want)
		if got.Metrics["eval_loss"] != 0.25 {
			t.Errorf("step %d: metrics %v", want.Step, got.Metrics)
		}
	}
	must(t, d.Verify(t.Context(), 2, true))
}

package checkpoint

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit/vfstest"
)

// planned returns a plan as text: "step+ reason; reason" or "step- reason" for each checkpoint.
func planned(t *testing.T, d *Dir, p Policy) []string {
	t.Helper()
	decisions, err := d.Plan(t.Context(), p)
	must(t, err)
	var out []string
	for _, one := range decisions {
		sign := "-"
		if one.Keep {
			sign = "+"
		}
		out = append(out, fmt.Sprintf("%d%s %s", one.Step, sign, strings.Join(one.Reasons, "; ")))
	}
	return out
}

func wantPlan(t *testing.T, d *Dir, p Policy, want ...string) {
	t.Helper()
	if got := planned(t, d, p); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%+v: the plan is\n\t%s\nwant\n\t%s", p, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// sixSaves saves steps 100 to 600, an hour apart. Steps 100 to 500 have the losses 6, 5, 1, 4 and 1, and step 600 has no loss.
func sixSaves(t *testing.T) *Dir {
	d := openDir(t, Options{FS: vfstest.New(t), Run: "r", Attempt: 1})
	at := d.now()
	for i, loss := range []float64{6, 5, 1, 4, 1, 0} {
		d.now = func() time.Time { return at.Add(time.Duration(i) * time.Hour) }
		s := testState(int64(i+1)*100, 0)
		if loss > 0 {
			s.Metrics = map[string]float64{"eval_loss": loss}
		}
		save(t, d, s)
	}
	return d
}

func TestPlanSaysWhichRuleKeepsEach(t *testing.T) {
	t.Parallel()
	d := sixSaves(t)
	gone := func(step int) string { return fmt.Sprintf("%d- no rule keeps it", step) }
	wantPlan(t, d, Policy{Last: 2}, gone(100), gone(200), gone(300), gone(400), "500+ last 2", "600+ newest; last 2")
	wantPlan(t, d, Policy{Last: 2, Every: 200},
		gone(100), "200+ every 200 steps", gone(300), "400+ every 200 steps", "500+ last 2", "600+ newest; last 2; every 200 steps")
	wantPlan(t, d, Policy{Last: 2, Within: 3 * time.Hour},
		gone(100), gone(200), "300+ within 3h", "400+ within 3h", "500+ last 2; within 3h", "600+ newest; last 2; within 3h")
	saved := d.now
	d.now = func() time.Time { return saved().Add(2*time.Hour + time.Minute) } // Within counts back from now
	wantPlan(t, d, Policy{Last: 2, Within: 3 * time.Hour},
		gone(100), gone(200), gone(300), gone(400), "500+ last 2", "600+ newest; last 2; within 3h")
	d.now = func() time.Time { return saved().Add(1000 * time.Hour) } // long after the run
	wantPlan(t, d, Policy{Last: 3, Within: 3 * time.Hour},
		gone(100), gone(200), gone(300), "400+ last 3", "500+ last 3", "600+ newest; last 3")
	d.now = func() time.Time { return saved().Add(-time.Hour) } // a clock that is behind does not keep fewer
	wantPlan(t, d, Policy{Last: 2, Within: 2 * time.Hour},
		gone(100), gone(200), "300+ within 2h", "400+ within 2h", "500+ last 2; within 2h", "600+ newest; last 2; within 2h")
	d.now = saved
	wantPlan(t, d, Policy{Last: 2, Best: 1, Metric: "eval_loss"}, // keeps the newer one of two that are equally good
		gone(100), gone(200), gone(300), gone(400), "500+ last 2; best 1 by eval_loss", "600+ newest; last 2")
	wantPlan(t, d, Policy{Last: 2, Best: 2, Metric: "eval_loss", Max: true},
		"100+ best 2 by eval_loss", "200+ best 2 by eval_loss", gone(300), gone(400), "500+ last 2", "600+ newest; last 2")
	none := "no policy is set"
	wantPlan(t, d, Policy{}, "100+ "+none, "200+ "+none, "300+ "+none, "400+ "+none, "500+ "+none, "600+ "+none+"; newest")
}

func TestPlanKeepsWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	d := sixSaves(t)
	for step, why := range map[int64]string{100: "of another run", 600: "newest; last 2"} {
		other := openDir(t, Options{FS: d.fs, Run: "other", Attempt: 1})
		got := planned(t, other, Policy{Last: 2})
		if step == 100 && got[0] != "100+ "+why {
			t.Errorf("another run says %q", got[0])
		}
	}
	two := openDir(t, Options{FS: d.fs, Run: "r", Attempt: 2})
	save(t, two, testState(50, 0))
	must(t, d.Pin(t.Context(), 200, "best"))
	must(t, d.Pin(t.Context(), 300, ""))
	wantPlan(t, d, Policy{Last: 2}, "50+ of a newer attempt", "100- no rule keeps it", "200+ pinned best", "300+ pinned",
		"400- no rule keeps it", "500+ last 2", "600+ newest; last 2")
	_, err := d.Prune(t.Context(), Policy{Last: 2})
	must(t, err)
	wantList(t, d, "50 committed, 200 committed, 300 committed, 500 committed, 600 committed")
	must(t, d.Pin(t.Context(), 500, "best")) // the label moves
	wantPlan(t, d, Policy{Last: 2}, "50+ of a newer attempt", "200- no rule keeps it", "300+ pinned",
		"500+ pinned best; last 2", "600+ newest; last 2")
	wantErr(t, "Pin", d.Pin(t.Context(), 400, "best"), ErrNone)
	if err := d.Pin(t.Context(), 500, "../x"); err == nil {
		t.Error("a path is taken for a label")
	}
}

func TestBadPolicyIsRefused(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]Policy{
		"only one":  {Last: 1},
		"no last":   {Every: 100},
		"negative":  {Last: -2},
		"every":     {Last: 2, Every: -1},
		"within":    {Last: 2, Within: -1},
		"best":      {Last: 2, Best: -1, Metric: "x"},
		"no metric": {Last: 2, Best: 1},
	} {
		d := openDir(t, Options{FS: vfstest.New(t)})
		if p.Validate() == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := d.Plan(t.Context(), p); err == nil {
			t.Errorf("%s: Plan takes it", name)
		}
		if _, err := d.Prune(t.Context(), p); err == nil {
			t.Errorf("%s: Prune takes it", name)
		}
	}
}

// A delta without its base does not count as a checkpoint: it does not take the place of a good one, and List says so.
func TestOrphansTakeNoPlace(t *testing.T) {
	t.Parallel()
	fs := vfstest.New(t)
	d, states := deltas(t, Options{FS: fs, Attempt: 1}) // step 1 is full, steps 2 and 3 are deltas of it
	for step := int64(4); step <= 6; step += 2 {
		s := deltaState(step)
		states = append(states, s)
		c, err := split(t, d, s, 2, nil, Commit{})
		must(t, err)
		must(t, c.Close())
	}
	delta, err := d.Find(t.Context(), 6)
	must(t, err)
	last, err := split(t, d, deltaState(7), 2, states[len(states)-1], Commit{Base: delta})
	must(t, err)
	must(t, last.Close())
	must(t, fs.Rename(d.stepPath(6), testPath+"/elsewhere"))
	wantList(t, d, "1 committed, 2 committed, 3 committed, 4 committed, 7 broken")
	plan, err := d.Plan(t.Context(), Policy{Last: 2})
	must(t, err)
	kept := map[int64]bool{}
	for _, p := range plan {
		kept[p.Step] = p.Keep
	}
	if !kept[3] || !kept[4] || !kept[1] {
		t.Errorf("kept %v, want the last two good ones, 3 and 4, and the base of 3", kept)
	}
}

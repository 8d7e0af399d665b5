package runview

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"ddpbatch/internal/testkit/fakeslurm"
)

// newSweepWorld returns an array of four elements. Elements 0 to 2 have ended with these metrics, and element 3 waits.
func newSweepWorld(t *testing.T, metrics ...string) *arrayWorld {
	w := &arrayWorld{fakeslurm.NewArrayOf(t, "[sweep]\n\"setup.env.LR\" = [0.1, 0.2]\n\"setup.env.N\" = \"1-2\"\n"), t}
	w.Submitted("12")
	for index, text := range metrics {
		element := w.Ran(index, "12", 0)
		w.Must(os.WriteFile(element.MetricsPath(), []byte(text), 0o600))
	}
	w.Queue("12_0 COMPLETED", "12_1 COMPLETED", "12_2 COMPLETED", "12_[3] PENDING")
	return w
}

func (w *arrayWorld) results(sort string) string {
	w.t.Helper()
	row, err := viewerOf(w.Slurm).Status(w.t.Context(), w.Run)
	w.Must(err)
	results, err := row.Results(sort)
	if err != nil {
		return err.Error()
	}
	text := results.Metric + " of " + strings.Join(results.Columns, ",") + ":"
	for _, r := range results.Rows {
		metric := "-"
		if r.Metric != nil {
			metric = fmt.Sprint(*r.Metric)
		}
		text += fmt.Sprintf(" %s=%s", strings.Join(r.Shown, ","), metric)
	}
	return text
}

func TestResultsAreSortedByAMetric(t *testing.T) {
	w := newSweepWorld(t,
		`{"step":10,"loss":3,"eval_loss":0.5}`+"\n"+`{"step":20,"loss":1,"eval_loss":0.75,"accuracy":0.25}`+"\n",
		`{"step":10,"loss":2,"eval_loss":0.25,"accuracy":0.5}`+"\n"+`{"step":20,"loss":2}`+"\n",
		`{"step":10,"loss":0.5}`+"\n")
	for sort, want := range map[string]string{
		"":           "eval_loss of LR,N: 0.1,2=0.25 0.1,1=0.5 0.2,1=- 0.2,2=-",
		"loss":       "loss of LR,N: 0.2,1=0.5 0.1,1=1 0.1,2=2 0.2,2=-",
		"-loss":      "loss of LR,N: 0.1,2=2 0.1,1=1 0.2,1=0.5 0.2,2=-",
		"accuracy":   "accuracy of LR,N: 0.1,2=0.5 0.1,1=0.25 0.2,1=- 0.2,2=-",
		"-accuracy":  "accuracy of LR,N: 0.1,1=0.25 0.1,2=0.5 0.2,1=- 0.2,2=-",
		"-eval_loss": "eval_loss of LR,N: 0.1,1=0.5 0.1,2=0.25 0.2,1=- 0.2,2=-",
		"step":       "step of LR,N: 0.2,1=10 0.1,1=20 0.1,2=20 0.2,2=-",
		"a\x1b[31m":  `no element has "a\x1b[31m" in its metrics.jsonl; the metrics are accuracy, eval_loss, loss, step`,
	} {
		if got := w.results(sort); got != want {
			t.Errorf("sorted by %q: %s, want %s", sort, got, want)
		}
	}
	if isSweep, err := HasElements(w.Run); err != nil || !isSweep {
		t.Errorf("%v, %v", isSweep, err)
	}
}

// While no element has metrics, any name of a metric is accepted.
func TestResultsOfASweepThatWaits(t *testing.T) {
	w := newSweepWorld(t)
	w.Queue("12_[0-3] PENDING")
	for _, sort := range []string{"", "loss"} {
		if got, want := w.results(sort), "loss of LR,N: 0.1,1=- 0.1,2=- 0.2,1=- 0.2,2=-"; got != want {
			t.Errorf("sorted by %q: %s, want %s", sort, got, want)
		}
	}
}

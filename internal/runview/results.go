package runview

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
)

// Result is the result of an element of an array or sweep. Its JSON names are a contract (docs/cli/status.md).
type Result struct {
	Index  int            `json:"index"`
	Name   string         `json:"name"`   // made from its values; empty if it is not part of a sweep
	Values map[string]any `json:"values"` // by the keys of the job file
	Metric *float64       `json:"metric"` // null before the first value
	RunStatus

	Shown []string `json:"-"` // Values as text, in the order of Results.Columns
}

// Results are the results of an array's elements. Those of a sweep are sorted, best first; others keep their order unless a metric is
// named.
type Results struct {
	Columns []string // of a sweep: the keys, shortened
	Metric  string   // the metric that is shown for each element
	Rows    []Result
}

// The built-in trainer's metrics for the quality of a model.
const (
	evalLoss = "eval_loss"
	accuracy = "accuracy"
	loss     = "loss"
)

// HasElements reports whether a run is a whole array, as a sweep is.
func HasElements(run *rundir.Dir) (bool, error) {
	has, _, err := arrayAsked(run)
	return has && err == nil, err
}

// Results reads the results of the elements of an array, whose row this is. They are sorted by the metric named by sort; "-" before it puts
// the worst first. If sort is empty, those of a sweep are sorted by the job's metric.
func (row *RunStatus) Results(sort string) (*Results, error) {
	job, err := jobfile.OfRun(row.run)
	if err != nil {
		return nil, err
	}
	metric, reversed := strings.CutPrefix(sort, "-")
	r := &Results{Metric: cmp.Or(metric, metricOf(row, job))}
	if job.Sweep != nil {
		r.Columns = job.Sweep.Columns()
	}
	for i := range row.elements {
		element := &row.elements[i]
		if job.Sweep != nil && (element.index < 0 || element.index >= job.Sweep.Len()) {
			continue
		}
		result := Result{Index: element.index, Values: map[string]any{}, RunStatus: *element}
		if s := job.Sweep; s != nil {
			result.Name, result.Values, result.Shown = s.Name(element.index), s.Given(element.index), s.Shown(element.index)
		}
		if result.Metric, err = element.result(r.Metric); err != nil {
			return nil, err
		}
		r.Rows = append(r.Rows, result)
	}
	if metric != "" && !slices.ContainsFunc(r.Rows, func(r Result) bool { return r.Metric != nil }) {
		if err := row.refuseMetric(metric); err != nil {
			return nil, err
		}
	}
	if job.Sweep != nil || metric != "" {
		r.sort(reversed)
	}
	return r, nil
}

// metricOf returns the default metric by which a sweep's elements are compared.
func metricOf(row *RunStatus, job *jobfile.Job) string {
	evaluates := func(element RunStatus) bool {
		value, err := element.result(evalLoss)
		return err == nil && value != nil
	}
	switch {
	case job.Builtin() && job.Train.Evaluate.Best == accuracy:
		return accuracy
	case slices.ContainsFunc(row.elements, evaluates):
		return evalLoss
	}
	return loss
}

// result returns an element's result for a metric, or nil if it has none yet.
func (row *RunStatus) result(metric string) (*float64, error) {
	if _, begun := row.run.Index(); !begun {
		return nil, nil
	}
	if metric != evalLoss && metric != accuracy {
		value, ok, err := row.run.LastMetric(metric)
		if !ok {
			return nil, err
		}
		return &value, err
	}
	values, err := row.run.MetricValues(metric)
	if err != nil || len(values) == 0 {
		return nil, err
	}
	best := slices.Min(values)
	if metric == accuracy {
		best = slices.Max(values)
	}
	return &best, nil
}

// sort puts the best first, and those without a metric last.
func (r *Results) sort(reversed bool) {
	if r.Metric == accuracy {
		reversed = !reversed
	}
	slices.SortStableFunc(r.Rows, func(a, b Result) int {
		switch {
		case a.Metric == nil && b.Metric == nil:
			return 0
		case a.Metric == nil:
			return 1
		case b.Metric == nil:
			return -1
		case reversed:
			return cmp.Compare(*b.Metric, *a.Metric)
		}
		return cmp.Compare(*a.Metric, *b.Metric)
	})
}

// refuseMetric returns an error if none of the elements has a metric, unless they have no metrics at all.
func (row *RunStatus) refuseMetric(metric string) error {
	known := map[string]bool{}
	for _, element := range row.elements {
		if _, begun := element.run.Index(); !begun {
			continue
		}
		names, err := element.run.MetricNames()
		if err != nil {
			return err
		}
		for _, name := range names {
			known[name] = true
		}
	}
	if len(known) == 0 {
		return nil
	}
	const most = 30
	return usage.Errorf("no element has %s in its metrics.jsonl; the metrics are %s",
		text.Quoted(metric, most), text.Few(slices.Sorted(maps.Keys(known)), most))
}

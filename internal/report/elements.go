package report

import (
	"context"
	"maps"
	"slices"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
)

const (
	maxElements   = 50        // whose curves are drawn: the best
	elementsRead  = 512 << 20 // bytes of all their metrics together
	maxTableLines = 1000      // elements in the table
)

// Elements are those of an array, the best first where it is a sweep.
type Elements struct {
	Metric  string           `json:"metric_name"` // by which they are compared
	Columns []string         `json:"columns"`     // of a sweep: its keys in short
	Rows    []runview.Result `json:"elements"`
	Metrics []ElementMetrics `json:"metrics"`
}

// ElementMetrics is what an element's metrics.jsonl has of the metric, and of the loss.
type ElementMetrics struct {
	Index int    `json:"index"`
	Name  string `json:"name"`
	Metrics
}

// readElements reads those of an array, and how the best of them went.
func (d *Data) readElements(ctx context.Context, run *rundir.Dir) {
	isArray, err := runview.HasElements(run)
	if err != nil || !isArray || !d.known {
		d.fault(err)
		return
	}
	results, err := d.Status.Results("")
	if err != nil {
		d.fault(err)
		return
	}
	e := &Elements{Metric: shown(results.Metric), Columns: append([]string{}, results.Columns...), Rows: results.Rows}
	d.Elements = e
	begun, err := run.Elements()
	d.fault(err)
	byIndex := map[int]*rundir.Dir{}
	for _, element := range begun {
		index, _ := element.Index()
		byIndex[index] = element
	}
	drawn := 0
	for _, row := range results.Rows {
		element := byIndex[row.Index]
		if element == nil {
			continue
		}
		if drawn++; drawn > maxElements {
			d.Earlier.Elements++
			continue
		}
		wanted := func(name string) bool { return name == "loss" || name == results.Metric }
		most := int64(elementsRead/min(maxElements, len(results.Rows))) / readBlock * readBlock
		c, err := collectRun(ctx, element, most, wanted)
		d.fault(err)
		e.Metrics = append(e.Metrics, ElementMetrics{row.Index, row.Name, c.metrics})
	}
}

// names are those of the metrics that elements have.
func (e *Elements) names() []string {
	all := map[string]bool{}
	for _, m := range e.Metrics {
		for _, c := range m.Curves {
			all[c.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

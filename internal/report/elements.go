package report

import (
	"context"
	"maps"
	"slices"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
)

const (
	maxElements   = 50        // elements whose curves are drawn: the best ones
	elementsRead  = 512 << 20 // bytes of all their metrics together
	maxTableLines = 1000      // elements in the table
)

// Elements are the elements of an array. In a sweep the best come first.
type Elements struct {
	Metric  string           `json:"metric_name"` // the metric by which elements are compared
	Columns []string         `json:"columns"`     // in a sweep: its keys, shortened
	Rows    []runview.Result `json:"elements"`
	Metrics []ElementMetrics `json:"metrics"`
}

// ElementMetrics holds an element's values of the metric and of the loss.
type ElementMetrics struct {
	Index int    `json:"index"`
	Name  string `json:"name"`
	Metrics
}

// readElements reads the elements of an array, and the curves of the best ones.
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

// names returns the names of the elements' metrics.
func (e *Elements) names() []string {
	all := map[string]bool{}
	for _, m := range e.Metrics {
		for _, c := range m.Curves {
			all[c.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

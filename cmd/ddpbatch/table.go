package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// table prints rows aligned under a heading on a terminal, and as tab-separated
// values without a heading into a pipe.
type table struct {
	e       *env
	heading []string
	aligned *tabwriter.Writer // nil: a pipe
}

func newTable(e *env, heading ...string) *table {
	t := &table{e: e, heading: heading}
	if _, ok := e.Terminal(e.Out); ok {
		t.aligned = tabwriter.NewWriter(e.Out, 0, 8, 2, ' ', 0)
		t.row(heading...)
	}
	return t
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' ' // a cell is one line without control characters, whatever Slurm or a file said
			}
			return r
		}, c)
	}
	if t.aligned != nil {
		fmt.Fprintln(t.aligned, strings.Join(cells, "\t"))
		return
	}
	fmt.Fprintln(t.e.Out, strings.Join(cells, "\t"))
}

func (t *table) flush() error {
	if t.aligned == nil {
		return nil
	}
	return t.aligned.Flush()
}

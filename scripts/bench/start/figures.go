package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	bench "ddpbatch/scripts/bench/internal/report"
)

// part is something about agents that has no peer.
type part struct {
	name    string
	times   int
	figures []bench.Figure
	measure func(ctx context.Context, turn int) ([]float64, error) // a sample of each figure
}

// measureFigures measures the parts that are asked for, with jobs below a folder. With an error come the samples from before it.
func measureFigures(ctx context.Context, ddpbatch, below string, o options, progress io.Writer) ([]bench.Figure, error) {
	c := cluster{ddpbatch, below}
	var all []bench.Figure
	for _, p := range []part{c.meeting(o.meet, o.launches), c.crash(o.launches), c.idle(o.idle)} {
		if !slices.Contains(o.parts, p.name) {
			continue
		}
		for turn := range p.times {
			fmt.Fprintf(progress, "%s: %d of %d\n", p.name, turn+1, p.times)
			samples, err := p.measure(ctx, turn)
			if err != nil && turn > 0 {
				all = append(all, p.figures...)
			}
			if err != nil {
				return all, fmt.Errorf("%s: %w", p.name, err)
			}
			for i, sample := range samples {
				p.figures[i].Samples = append(p.figures[i].Samples, sample)
			}
		}
		all = append(all, p.figures...)
	}
	return all, nil
}

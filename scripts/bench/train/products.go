package main

import (
	"context"
	"regexp"
	"strings"

	"ddpbatch/scripts/bench/internal/gobench"
)

// products holds the results of the benchmarks of trainer.
type products struct {
	library string             // the library that computes them
	outside map[string]float64 // share of a step outside matrix products, by model
}

// measureProducts runs the benchmarks of trainer, in which the library counts its time.
func measureProducts(ctx context.Context, dir string) (products, error) {
	benchmarks, err := gobench.Build(ctx, dir, "trainer")
	if err != nil {
		return products{}, err
	}
	results, said, err := benchmarks.Run(ctx, []string{"taskset", "-c", core(0)}, "^BenchmarkTraining$", "-test.count=3")
	if err != nil {
		return products{}, err
	}
	return newProducts(results, said), nil
}

// libraryLine matches what one of them logs.
var libraryLine = regexp.MustCompile(`matrix products: (.*)`)

// newProducts takes the smallest of each model's shares, that of the quietest moment.
func newProducts(results []gobench.Result, said string) products {
	p := products{outside: map[string]float64{}}
	if match := libraryLine.FindStringSubmatch(said); match != nil {
		p.library = match[1]
	}
	for _, r := range results {
		share, ok := r.Metrics["%outside"]
		model := strings.TrimPrefix(r.Name, "Training/")
		if before, known := p.outside[model]; ok && (!known || share/100 < before) {
			p.outside[model] = share / 100
		}
	}
	return p
}

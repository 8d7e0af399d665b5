package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/tools"
)

// products is what the benchmarks of trainer say.
type products struct {
	library string             // that computes them
	outside map[string]float64 // share of a step that is none of them, by model
}

// measureProducts runs the benchmarks of trainer, which have a library that counts.
func measureProducts(ctx context.Context, dir string) (products, error) {
	program := filepath.Join(dir, "trainer.test")
	if err := tools.Run(ctx, "go", "test", "-c", "-o", program, "./trainer"); err != nil {
		return products{}, fmt.Errorf("build the benchmarks of trainer: %w", err)
	}
	cmd := exec.Command("taskset", "-c", core(0), program, "-test.run", "^$", "-test.bench", "^BenchmarkTraining$", "-test.cpu", "1", "-test.count", "3")
	cmd.Dir = "trainer"
	said, _, err := processes.Run(ctx, cmd)
	if err != nil {
		return products{}, fmt.Errorf("benchmark trainer: %w", err)
	}
	return parseProducts(said), nil
}

// benchmarkLine is one of a benchmark of a model.
var benchmarkLine = regexp.MustCompile(`^BenchmarkTraining/(\w+)\S*\s.*\s([0-9.e+-]+) %outside`)

// libraryLine is what one of them logs.
var libraryLine = regexp.MustCompile(`matrix products: (.*)`)

// parseProducts takes the smallest of each model's shares, that of the quietest moment.
func parseProducts(text string) products {
	p := products{outside: map[string]float64{}}
	for line := range strings.Lines(text) {
		if match := libraryLine.FindStringSubmatch(line); match != nil {
			p.library = match[1]
		}
		match := benchmarkLine.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		share, err := strconv.ParseFloat(match[2], 64)
		if before, ok := p.outside[match[1]]; err == nil && (!ok || share/100 < before) {
			p.outside[match[1]] = share / 100
		}
	}
	return p
}

package gobench

import (
	"context"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/tools"
)

// Program is a test binary with the benchmarks of a package.
type Program struct{ pkg, path string }

// Build builds the benchmarks of a package in dir. pkg is a directory relative to the root of the repository.
func Build(ctx context.Context, dir, pkg string) (Program, error) {
	p := Program{pkg: pkg, path: filepath.Join(dir, path.Base(pkg)+".test")}
	return p, tools.Run(ctx, "go", "test", "-c", "-o", p.path, "./"+pkg)
}

// Result is a line of a benchmark's output.
type Result struct {
	Name    string             // without "Benchmark"
	Metrics map[string]float64 // by unit: "ns/op", "MB/s", and those that the benchmark reports
}

// Run runs the benchmarks that a pattern matches, with one thread, and returns their results and their whole output. before are the words
// of a command that starts them; without it they are started directly.
func (p Program) Run(ctx context.Context, before []string, pattern string, flags ...string) (results []Result, said string, err error) {
	line := append(append([]string{}, before...), p.path, "-test.run=^$", "-test.bench="+pattern, "-test.cpu=1")
	line = append(line, flags...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir = filepath.FromSlash(p.pkg)
	if said, _, err = processes.Run(ctx, cmd); err == nil {
		results, err = parse(said)
	}
	if err != nil {
		return nil, "", fmt.Errorf("benchmarks of %s: %w", p.pkg, err)
	}
	return results, said, nil
}

// parse parses lines such as "BenchmarkEncode/float32 \t 55 \t 4113461 ns/op \t 0.83 ratio" (go.dev/design/14313-benchmark-format).
func parse(said string) (results []Result, err error) {
	for line := range strings.Lines(said) {
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		r := Result{Name: strings.TrimPrefix(words[0], "Benchmark"), Metrics: map[string]float64{}}
		for i := 2; i+1 < len(words); i += 2 { // after the number of iterations
			if r.Metrics[words[i+1]], err = strconv.ParseFloat(words[i], 64); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("no figures in %q", said)
	}
	return results, nil
}

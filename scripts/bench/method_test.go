package main

import (
	"os"
	"regexp"
	"testing"
)

// The programs of all sides have the same bounds on calls, the same pattern and the same measure of the clock.
func TestOneMethod(t *testing.T) {
	for path, patterns := range map[string][]string{
		"peers/mpi.c": {`MIN_CALLS = 7,`, `MAX_CALLS = 10000,`, `PERIOD = 251,`, `CLOCK_READINGS = 1001 `, `budget_us / 10`, `\(r \+ 3\) \+ seed\) % 8`},
		"peers/gloo.py": {`MIN_CALLS, MAX_CALLS, PERIOD = 7, 10000, 251`, `range\(1001\)`, `budget_us / 10`,
			`\(rank \+ 3\) \+ seed\) % 8`},
		"../../cmd/ddpbatch/bench_options.go": {`minBenchCalls += 7\n`, `maxBenchCalls += 10_000\n`},
		"../../cmd/ddpbatch/bench_time.go":    {`make\(\[\]float64, 1001\)`, `budget/10`},
		"../../cmd/ddpbatch/bench_pattern.go": {`patternPeriod = 251`, `\(i\*\(rank\+3\)\+seed\)%8`},
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, pattern := range patterns {
			if !regexp.MustCompile(pattern).Match(text) {
				t.Errorf("%s has no %s", path, pattern)
			}
		}
	}
}

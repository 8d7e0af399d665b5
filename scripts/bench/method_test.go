package main

import (
	"os"
	"regexp"
	"testing"
)

// The programs of all sides have the same bounds on calls, the same pattern and the same measure of the clock.
func TestOneMethod(t *testing.T) {
	for path, patterns := range map[string][]string{
		"peers/mpi.c": {`MIN_CALLS = 7,`, `MAX_CALLS = 10000,`, `PERIOD = 4093, MOST_RANKS = 1024,`, `CLOCK_READINGS = 1001 `, `budget_us / 10`, `0x85ebca6b`, `0xc2b2ae35`, `\(iteration \* MOST_RANKS \+ r\) \* PERIOD \+ i % PERIOD\) % 8`},
		"peers/gloo.py": {`MIN_CALLS, MAX_CALLS, PERIOD, MOST_RANKS = 7, 10000, 4093, 1024`, `range\(1001\)`, `budget_us / 10`,
			`0x85EBCA6B`, `0xC2B2AE35`, `\(iteration \* MOST_RANKS \+ rank\) \* PERIOD`},
		"../../internal/collbench/options.go": {`minCalls += 7\n`, `maxCalls += 10_000\n`, `maxRanks += 1024 `},
		"../../internal/collbench/measure.go": {`make\(\[\]float64, 1001\)`, `budget/10`},
		"../../internal/collbench/pattern.go": {`patternPeriod = 4093`, `0x85ebca6b`, `0xc2b2ae35`, `\(iteration\*maxRanks\+rank\)\*patternPeriod\+i%patternPeriod\)\) % 8`},
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

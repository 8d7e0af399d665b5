package main

import (
	"bytes"
	"os"
	"regexp"
	"runtime"
	"slices"
	"testing"
	"time"

	"ddpbatch/internal/collbench"
	"ddpbatch/scripts/bench/internal/tools"
)

// The MPI launchers receive the option to bind ranks exactly if each rank can have a core.
func TestPeersBindWhereThereAreCores(t *testing.T) {
	o := options{begin: 4, end: 4, factor: 4, budget: time.Millisecond}
	for flag, side := range map[string]side{"--bind-to": openMPI(tools.MPI{}), "-bind-to": mpich(tools.MPI{})} {
		for ranks, want := range map[int]bool{runtime.NumCPU(): true, runtime.NumCPU() + 1: false} {
			args := side.commands(o, setting{"allreduce", "tcp", ranks})[0].Args
			if slices.Contains(args, flag) != want {
				t.Errorf("%s, %d ranks on %d cores: %q", side.name, ranks, runtime.NumCPU(), args)
			}
		}
	}
}

// The programs of all sides have the same bounds on calls, the same pattern and the same way to measure the clock.
func TestAllSidesHaveOneMethod(t *testing.T) {
	for path, patterns := range map[string][]string{
		"peers/mpi.c": {`MIN_CALLS = 7,`, `MAX_CALLS = 10000,`, `PERIOD = 4093, MOST_RANKS = 1024,`, `CLOCK_READINGS = 1001 `,
			`budget_us / 10`, `0x85ebca6b`, `0xc2b2ae35`, `\(iteration \* MOST_RANKS \+ r\) \* PERIOD \+ i % PERIOD\) % 8`,
			`count \* r \* \(r \+ 1\) / \(ranks \+ 1\)`},
		"peers/gloo.py": {`MIN_CALLS, MAX_CALLS, PERIOD, MOST_RANKS = 7, 10000, 4093, 1024`, `range\(1001\)`, `budget_us / 10`,
			`0x85EBCA6B`, `0xC2B2AE35`, `\(iteration \* MOST_RANKS \+ rank\) \* PERIOD`, `count \* r \* \(r \+ 1\) // \(ranks \+ 1\)`},
		"../../internal/collbench/buffers.go": {`count \* r \* \(r \+ 1\) / \(s.b.ranks \+ 1\)`},
		"../../internal/collbench/options.go": {`minCalls += 7\n`, `maxCalls += 10_000\n`, `maxRanks += 1024 `},
		"../../internal/collbench/measure.go": {`make\(\[\]float64, 1001\)`, `budget/10`},
		"../../internal/collbench/pattern.go": {`patternPeriod = 4093`, `0x85ebca6b`, `0xc2b2ae35`,
			`\(iteration\*maxRanks\+rank\)\*patternPeriod\+i%patternPeriod\)\) % 8`},
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

// Each collective is in the programs of all sides that are launched with it.
func TestSidesKnowAllCollectives(t *testing.T) {
	for _, collective := range knownCollectives {
		s := setting{collective, "tcp", 2}
		if !slices.Contains(collbench.Names(), collective) {
			t.Errorf("ddpbatch bench has no %s", collective)
		}
		row := regexp.MustCompile(`\t\{"` + collective + `", (WHOLE|EVEN|UNEVEN), `).FindSubmatch(mpiSource)
		if row == nil || (string(row[1]) != "WHOLE") != slices.Contains(inBlocks, collective) {
			t.Errorf("peers/mpi.c has %s as %q", collective, row)
		}
		if has := bytes.Contains(glooSource, []byte("\""+collective+"\"")); has != gloo("", "", "").takes(s) {
			t.Errorf("peers/gloo.py has %s: %v, and is launched with it: %v", collective, has, !has)
		}
	}
}

func TestOnlyRowsAreReadAsRows(t *testing.T) {
	if s, ok := parsePeer("row 1048576 314.9000 0"); !ok || s != (sample{1048576, 314.9, 0}) {
		t.Errorf("%+v, %v", s, ok)
	}
	if s, ok := parseOurs(`{"size":64,"count":16,"time_us":0.5,"wrong":2,"transport":"shm"}`); !ok || s != (sample{64, 0.5, 2}) {
		t.Errorf("%+v, %v", s, ok)
	}
	for _, line := range []string{"", "end", "row", "row 4", "row four 1 0", "{}", `{"size":4}`, "# size", "[1]"} {
		if _, ok := parsePeer(line); ok {
			t.Errorf("%q is taken for a peer's row", line)
		}
		if _, ok := parseOurs(line); ok {
			t.Errorf("%q is taken for a row of ours", line)
		}
	}
}

package main

import (
	"strings"
	"testing"

	"ddpbatch/internal/jobfile"
)

// Every job is one, and its last line of metrics is about its last ten steps, as train.py's loss is.
func TestModels(t *testing.T) {
	for _, m := range models {
		for ranks := 1; ranks <= mostRanks; ranks++ {
			job, warnings, err := jobfile.Parse(m.name+".toml", t.TempDir(), []byte(m.jobText(ranks)), nil)
			if err != nil || len(warnings) > 0 {
				t.Errorf("%s: %v, %v", m.name, err, warnings)
				continue
			}
			perEpoch := m.rows / (m.batch * ranks)
			if m.rows%(m.batch*ranks) != 0 || perEpoch <= 10 {
				t.Errorf("%s, %d ranks: %d rows are %d steps", m.name, ranks, m.rows, perEpoch)
			}
			if got, want := perEpoch*job.Train.Epochs, m.steps(1)*m.times; got != want || got%10 != 0 {
				t.Errorf("%s, %d ranks: %d steps, want %d, a multiple of 10", m.name, ranks, got, want)
			}
			if m.warmUp >= m.steps(1)-10 {
				t.Errorf("%s: a warm-up of %d steps of %d", m.name, m.warmUp, m.steps(1))
			}
		}
	}
}

// A side is placed by the environment, and bound to a core for each rank.
func TestCommands(t *testing.T) {
	for _, side := range []side{ours("ddpbatch", ""), torch("python3", "")} {
		for i, cmd := range side.commands(models[0], 2, "") {
			line := strings.Join(append(cmd.Env, cmd.Args...), " ")
			for _, want := range []string{[]string{"RANK=0 ", "RANK=1 "}[i], "WORLD_SIZE=2 ", "OMP_NUM_THREADS=1 ", []string{"taskset -c 0 ", "taskset -c 1 "}[i], side.rank(models[0], 2).Args[0]} {
				if !strings.Contains(line, want) {
					t.Errorf("%s, rank %d: no %q in %s", side.name, i, want, line)
				}
			}
		}
	}
}

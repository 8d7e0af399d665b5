package main

import (
	"testing"

	"ddpbatch/internal/jobfile"
)

// Every job is valid, and its last line of metrics covers its last ten steps, as train.py's loss does.
func TestModelsAreJobs(t *testing.T) {
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

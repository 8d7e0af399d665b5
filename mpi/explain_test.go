package mpi

import (
	"strings"
	"testing"
)

// Explain predicts a time for each algorithm that may be chosen, and chooses one of them.
func TestExplainPredictsEveryAlgorithm(t *testing.T) {
	for _, over := range []string{"shm", "tcp"} {
		c := newWorldOn(t, over, 2, nil)[0]
		for kind, d := range collectives {
			if d.internal || len(collective(kind).traits()) == 0 {
				continue
			}
			testPredictions(t, c, d.name)
			if len(d.algorithms[1]) > 0 {
				testPredictions(t, c, d.name+"_v")
			}
		}
	}
}

func testPredictions(t *testing.T, c *Comm, name string) {
	t.Helper()
	for _, n := range []int{0, 128, 8 << 10, 1 << 20, 32 << 20} {
		predictions, err := c.Explain(name, n)
		if err != nil {
			t.Fatal(err)
		}
		chosen := 0
		for _, p := range predictions {
			if p.Refused == "" && p.Time <= 0 {
				t.Errorf("%s, %d bytes: %s takes %v", name, n, p.Algorithm, p.Time)
			}
			if p.Chosen {
				chosen++
			}
		}
		if chosen != 1 {
			t.Errorf("%s, %d bytes: %d are chosen of %+v", name, n, chosen, predictions)
		}
	}
}

// An unknown collective, one without a choice of algorithms, and a negative length are errors.
func TestExplainRefusesWrongArguments(t *testing.T) {
	c := Self()
	for _, tt := range []struct {
		name  string
		bytes int
		want  string
	}{
		{"all_reduse", 4, `unknown collective "all_reduse"`},
		{"all_gather_v", 4, "all_gather_v does not choose among algorithms"},
		{"alloc", 4, "alloc does not choose among algorithms"},
		{"broadcast", -1 << 30, "must not be negative, got -1073741824"},
	} {
		if got, err := c.Explain(tt.name, tt.bytes); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s of %d bytes: %v, %v", tt.name, tt.bytes, got, err)
		}
	}
}

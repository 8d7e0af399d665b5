package main

import (
	"context"
	"strings"
	"time"
)

// explained are the collectives that have a choice of algorithms, by the name that package mpi has for them.
func explained(collective string) string {
	return map[string]string{
		"allreduce": "all_reduce", "reduce": "reduce", "reducescatter": "reduce_scatter", "scan": "scan", "exscan": "exscan", "broadcast": "broadcast",
		"allgather": "all_gather", "gather": "gather", "scatter": "scatter", "alltoall": "all_to_all", "barrier": "barrier",
	}[collective]
}

// algorithm is what serves calls of a size: the one asked for, or else the one that is chosen. auto: there is no choice.
func (b *benchRank) algorithm(size int64) (string, error) {
	name := explained(b.o.collective.name)
	if b.o.algorithm != "auto" || name == "" {
		return b.o.algorithm, nil
	}
	predictions, err := b.comm.Explain(name, int(size))
	if err != nil {
		return "", err
	}
	for _, p := range predictions {
		if p.Chosen {
			return p.Algorithm, nil
		}
	}
	return b.o.algorithm, nil
}

// checkAlgorithm refuses, before anything is measured, the name of an algorithm that the collective does not have. One rank
// says so.
func (b *benchRank) checkAlgorithm() error {
	if b.o.algorithm == "auto" {
		return nil
	}
	predictions, err := b.comm.Explain(explained(b.o.collective.name), int(b.o.begin))
	if err != nil {
		return err
	}
	var names []string
	for _, p := range predictions {
		if p.Algorithm == b.o.algorithm {
			return nil // whether it can serve these calls, they tell
		}
		names = append(names, p.Algorithm)
	}
	if b.rank > 0 {
		return &codeError{code: exitUsage}
	}
	return usagef("--algorithm is %q; %s has %s", b.o.algorithm, b.o.collective.name, strings.Join(names, ", "))
}

// explain makes a row of each algorithm that can serve the call, with what was predicted of it.
func (b *benchRank) explain(ctx context.Context, row benchRow, call benchCall) error {
	predictions, err := b.comm.Explain(explained(b.o.collective.name), int(row.Size))
	if err != nil {
		return err
	}
	for _, p := range predictions {
		if p.Refused != "" {
			continue
		}
		b.timed, b.o.algorithm = b.comm.Using(p.Algorithm), p.Algorithm
		row.Predicted, row.Chosen = float64(p.Time)/float64(time.Microsecond), p.Chosen
		if err := b.time(ctx, row, call); err != nil {
			return err
		}
	}
	return nil
}

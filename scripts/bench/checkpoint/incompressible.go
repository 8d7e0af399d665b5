package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	"ddpbatch/checkpoint"
	bench "ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/stats"
)

// measureIncompressible saves bytes that no codec makes smaller with the default codec and without one: in turn, so many pairs of them.
func measureIncompressible(ctx context.Context, bytes int64, below string, pairs int, progress io.Writer) ([]bench.Figure, error) {
	fmt.Fprintf(progress, "incompressible data: %d pairs\n", pairs)
	s := noise(bytes)
	var took [2]costs // without a codec and with one
	var larger stats.Samples
	for pair := range pairs {
		var stored [2]int64
		for i := range took {
			with := (pair + i) % 2 // every pair begins with the other one
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			err := inFolder(below, func(dir string) error {
				t := cpuTime(func() error {
					info, err := save(ctx, s, dir, []string{"none", "auto"}[with])
					stored[with] = info.Bytes
					return err
				})
				took[with].add(t)
				return t.err
			})
			if err != nil {
				return nil, err
			}
		}
		larger = append(larger, 100*(float64(stored[1])/float64(bytes)-1))
	}
	return []bench.Figure{
		{What: "incompressible: time that compression adds to a save", Goal: "<= 3", Unit: "%", Samples: added(took[0].wall, took[1].wall)},
		{What: "incompressible: processor time that it adds", Unit: "%", Samples: added(took[0].cpu, took[1].cpu)},
		{What: "incompressible: checkpoint larger than the state", Goal: "<= 0.1", Unit: "%", Samples: larger},
	}, nil
}

// noise is a state of random bits.
func noise(bytes int64) *state {
	data := make([]byte, bytes&^7)
	var seed [32]byte
	_, _ = rand.NewChaCha8(seed).Read(data) // never fails
	return &state{[]checkpoint.Tensor{{Name: "noise", DType: "float32", Shape: []int{len(data) / 4}, Data: data}}}
}

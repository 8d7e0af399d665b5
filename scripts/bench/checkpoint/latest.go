package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"ddpbatch/checkpoint"
	bench "ddpbatch/scripts/bench/internal/report"
)

// stored is among how many checkpoints the latest is looked for.
const stored = 100

// measureLatest measures how long a program that has just begun takes to find the newest of many checkpoints.
func measureLatest(ctx context.Context, below string, launches int, progress io.Writer) ([]bench.Figure, error) {
	fmt.Fprintf(progress, "latest of %d\n", stored)
	f := bench.Figure{What: fmt.Sprintf("latest of %d checkpoints found, no data read", stored), Goal: "<= 200", Unit: "ms"}
	err := inFolder(below, func(dir string) error {
		d, err := checkpoint.Open(dir, checkpoint.Options{})
		if err != nil {
			return err
		}
		for step := range int64(stored) {
			s := &checkpoint.State{Step: step, World: 1, Tensors: []checkpoint.Tensor{checkpoint.Float32Tensor("w", []int{64}, make([]float32, 64))}}
			if _, err := d.Save(ctx, s); err != nil {
				return err
			}
		}
		for range launches {
			took, err := findLatest(ctx, dir)
			if err != nil {
				return err
			}
			f.Samples = append(f.Samples, 1000*took)
		}
		return nil
	})
	return []bench.Figure{f}, err
}

func findLatest(ctx context.Context, dir string) (seconds float64, err error) {
	start := time.Now()
	d, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		return 0, err
	}
	c, err := d.FindLatest(ctx)
	if err != nil {
		return 0, err
	}
	seconds = time.Since(start).Seconds()
	if c.Step() != stored-1 {
		return 0, fmt.Errorf("the latest is step %d of %d", c.Step(), stored)
	}
	return seconds, c.Close()
}

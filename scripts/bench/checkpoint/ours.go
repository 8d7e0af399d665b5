package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
)

// oursSave commits a checkpoint durably.
func oursSave(s *trainingState, codec string) side {
	return side{name: "ddpbatch", run: func(ctx context.Context, dir string) (float64, int64, error) {
		start := time.Now()
		info, err := save(ctx, s, dir, codec)
		return time.Since(start).Seconds(), info.Bytes, err
	}}
}

func save(ctx context.Context, s *trainingState, dir, codec string) (checkpoint.Info, error) {
	d, err := checkpoint.Open(dir, checkpoint.Options{Codec: codec})
	if err != nil {
		return checkpoint.Info{}, err
	}
	return d.Save(ctx, &checkpoint.State{Step: 1, World: 1, Tensors: s.tensors})
}

// oursLoad reads a checkpoint from the page cache, and checks every byte.
func oursLoad(s *trainingState, codec string) side {
	return side{
		name: "ddpbatch",
		prepare: func(ctx context.Context, dir string) error {
			_, err := save(ctx, s, dir, codec)
			return err
		},
		run: func(ctx context.Context, dir string) (float64, int64, error) {
			start := time.Now()
			got, err := load(ctx, dir)
			if err != nil {
				return 0, 0, err
			}
			if len(got.Tensors) != len(s.tensors) {
				return 0, 0, fmt.Errorf("%d tensors came back", len(got.Tensors))
			}
			return time.Since(start).Seconds(), 0, nil
		},
	}
}

func load(ctx context.Context, dir string) (*checkpoint.State, error) {
	d, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		return nil, err
	}
	return d.Load(ctx, 1)
}

// oursStall measures how long an asynchronous save stops training.
func oursStall(s *trainingState) side {
	var saver *distributed.Saver
	return side{
		name: "ddpbatch",
		prepare: func(ctx context.Context, dir string) (err error) {
			saver, err = newSaver(ctx, s, dir, "none")
			return err
		},
		run: func(ctx context.Context, dir string) (float64, int64, error) {
			start := time.Now()
			err := saver.Save(ctx, distributed.Meta{Step: 1})
			took := time.Since(start).Seconds()
			if err == nil {
				_, err = saver.Wait(ctx)
			}
			return took, 0, errors.Join(err, saver.Close())
		},
	}
}

// newSaver starts an asynchronous save of the state.
func newSaver(ctx context.Context, s *trainingState, dir, codec string) (*distributed.Saver, error) {
	d, err := checkpoint.Open(dir, checkpoint.Options{Codec: codec})
	if err != nil {
		return nil, err
	}
	var arrays []distributed.Array
	for _, t := range s.tensors {
		arrays = append(arrays, distributed.Array{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: t.Data, Replicated: true})
	}
	return distributed.New(ctx, alone{}, d, arrays, distributed.Options{Async: true})
}

// alone is a group of one rank.
type alone struct{}

func (alone) Rank() int { return 0 }
func (alone) Size() int { return 1 }
func (alone) Gather(_ context.Context, payload []byte) ([][]byte, error) {
	return [][]byte{payload}, nil
}
func (alone) Broadcast(_ context.Context, payload []byte) ([]byte, error) { return payload, nil }

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"ddpbatch/checkpoint"
	"ddpbatch/scripts/bench/internal/paired"

	"golang.org/x/sys/unix"
)

// comparison is a row: our side, which comes first, and its peers.
type comparison struct {
	what  string
	bytes int64 // of the state
	sides []side
}

// comparisons returns what is measured, in the order of the table.
func comparisons(s *trainingState, file string, py *torch) []comparison {
	synced := py.save("torch.save + fsync", "sync")
	return []comparison{
		{"save, uncompressed", s.bytes(), []side{oursSave(s, "none"), bareWrite(s), synced, py.save("torch.save", "save")}},
		{"save, compressed", s.bytes(), []side{oursSave(s, "auto"), zstdSave(file), synced}},
		{"load, uncompressed", s.bytes(), []side{oursLoad(s, "none"), bareRead(s, file), py.load()}},
		{"load, compressed", s.bytes(), []side{oursLoad(s, "auto"), zstdLoad(file), py.load()}},
		{"stall of an asynchronous save", s.bytes(), []side{oursStall(s), memoryCopy(s)}},
	}
}

// comparisonResult is the result of a comparison.
type comparisonResult struct {
	What  string      `json:"what"`
	Bytes int64       `json:"bytes"`
	Sides []sideTimes `json:"sides"` // ours first
}

type sideTimes struct {
	paired.Row       // of seconds
	Stored     int64 `json:"stored"` // bytes on disk; 0: it does not write
}

// measure runs all sides in turn, the given number of times. Each turn begins with another side.
func (c comparison) measure(ctx context.Context, launches int, dir string, progress io.Writer) (comparisonResult, error) {
	r := comparisonResult{What: c.what, Bytes: c.bytes}
	for _, s := range c.sides {
		r.Sides = append(r.Sides, sideTimes{Row: paired.NewRow(s.name, launches)})
	}
	err := paired.InTurn(ctx, c.what, launches, len(c.sides), progress, func(turn, side int) error {
		seconds, stored, err := c.sides[side].launch(ctx, dir)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", c.what, c.sides[side].name, err)
		}
		r.Sides[side].Times[turn], r.Sides[side].Stored = seconds, stored
		return nil
	})
	for i := range r.Sides[1:] {
		r.Sides[1+i].Against(r.Sides[0].Row)
	}
	return r, err
}

// launch runs a side once in a new directory, after the dirty pages of earlier runs have been written to disk.
func (s side) launch(ctx context.Context, below string) (seconds float64, stored int64, err error) {
	err = inFolder(below, func(dir string) (err error) {
		if s.prepare != nil {
			if err := s.prepare(ctx, dir); err != nil {
				return err
			}
		}
		unix.Sync()
		seconds, stored, err = s.run(ctx, dir)
		return err
	})
	return seconds, stored, err
}

// side is one side of a comparison.
type side struct {
	name string
	// prepare creates, in its own directory, what run needs; nil: nothing. It is not timed.
	prepare func(ctx context.Context, dir string) error
	// run does the work in that directory. It returns the seconds it took, and the bytes that it needs on disk (0: none).
	run func(ctx context.Context, dir string) (seconds float64, stored int64, err error)
}

// trainingState is the state that is saved: weights and Adam's two moments of them, each a third of the bytes.
type trainingState struct{ tensors []checkpoint.Tensor }

// newTrainingState draws weights from N(0, 0.02), and moments as Adam has them after many steps with gradients from N(0, 0.001). The same
// size gives the same state.
func newTrainingState(bytes int) *trainingState {
	rng := rand.New(rand.NewPCG(1, 2))
	n := bytes / 12 &^ 1023
	weight, mean, square := make([]byte, 4*n), make([]byte, 4*n), make([]byte, 4*n)
	for i := range n {
		put(weight, i, 0.02*rng.NormFloat64())
		// Decaying sums of gradients (beta1 = 0.9, beta2 = 0.999) have these spreads.
		put(mean, i, 0.001*math.Sqrt(0.1/1.9)*rng.NormFloat64())
		put(square, i, 1e-6*math.Max(0.5, 1+math.Sqrt(2*0.001/1.999)*rng.NormFloat64()))
	}
	tensor := func(name string, data []byte) checkpoint.Tensor {
		return checkpoint.Tensor{Name: name, DType: "float32", Shape: []int{n / 1024, 1024}, Data: data}
	}
	return &trainingState{[]checkpoint.Tensor{tensor("weight", weight), tensor("exp_avg", mean), tensor("exp_avg_sq", square)}}
}

func put(b []byte, i int, x float64) {
	binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(x)))
}

// elements returns the number of elements of one tensor.
func (s *trainingState) elements() int { return len(s.tensors[0].Data) / 4 }

func (s *trainingState) bytes() int64 { return int64(len(s.tensors) * len(s.tensors[0].Data)) }

// noise returns a state of random bits.
func noise(bytes int64) *trainingState {
	data := make([]byte, bytes&^7)
	var seed [32]byte
	_, _ = rand.NewChaCha8(seed).Read(data) // it never fails
	return &trainingState{[]checkpoint.Tensor{{Name: "noise", DType: "float32", Shape: []int{len(data) / 4}, Data: data}}}
}

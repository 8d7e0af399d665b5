package main

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"

	"ddpbatch/checkpoint"
)

// state is what is saved: weights and Adam's two moments of them, a third of the bytes each.
type state struct{ tensors []checkpoint.Tensor }

// newState draws weights from N(0, 0.02), and moments as Adam keeps them after many steps of gradients from N(0, 0.001). The same
// size gives the same state.
func newState(bytes int) *state {
	rng := rand.New(rand.NewPCG(1, 2))
	n := bytes / 12 &^ 1023
	weight, mean, square := make([]byte, 4*n), make([]byte, 4*n), make([]byte, 4*n)
	for i := range n {
		put(weight, i, 0.02*rng.NormFloat64())
		// Sums of gradients that fade (beta1 = 0.9, beta2 = 0.999) have these spreads.
		put(mean, i, 0.001*math.Sqrt(0.1/1.9)*rng.NormFloat64())
		put(square, i, 1e-6*math.Max(0.5, 1+math.Sqrt(2*0.001/1.999)*rng.NormFloat64()))
	}
	tensor := func(name string, data []byte) checkpoint.Tensor {
		return checkpoint.Tensor{Name: name, DType: "float32", Shape: []int{n / 1024, 1024}, Data: data}
	}
	return &state{[]checkpoint.Tensor{tensor("weight", weight), tensor("exp_avg", mean), tensor("exp_avg_sq", square)}}
}

func put(b []byte, i int, x float64) {
	binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(x)))
}

// elements are those of one tensor.
func (s *state) elements() int { return len(s.tensors[0].Data) / 4 }

func (s *state) bytes() int64 { return int64(len(s.tensors) * len(s.tensors[0].Data)) }

// writeTo writes the bare bytes, one tensor after the other.
func (s *state) writeTo(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for _, t := range s.tensors {
		if _, err := f.Write(t.Data); err != nil {
			f.Close()
			return err
		}
	}
	return f.Close()
}

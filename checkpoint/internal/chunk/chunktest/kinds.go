package chunktest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"ddpbatch/checkpoint/internal/chunk"
)

// A Kind is one kind of data.
type Kind struct {
	Name   string
	Layout chunk.Layout
	// Make returns n elements, and those of the base if the kind is a difference from one (else nil).
	Make func(r *rand.Rand, n int) (data, base []byte)
}

var (
	float32s  = chunk.Layout{Width: 4, Float: true}
	bfloat16s = chunk.Layout{Width: 2, Float: true}
)

// Kinds returns all kinds. Weights are Gaussian with standard deviation 0.02, and updates of them Gaussian with the standard deviation
// in the name. Benchmarks are named after kinds, so the names must not change.
func Kinds() []Kind {
	return []Kind{
		{"float32", float32s, alone(func(r *rand.Rand, n int) []byte { return put32(weights(r, n)) })},
		{"bfloat16", bfloat16s, alone(func(r *rand.Rand, n int) []byte { return put16(weights(r, n)) })},
		{"adam_m", float32s, alone(func(r *rand.Rand, n int) []byte { m, _ := adam(r, n); return put32(m) })},
		{"adam_v", float32s, alone(func(r *rand.Rand, n int) []byte { _, v := adam(r, n); return put32(v) })},
		{"bf16_in_f32", float32s, alone(bfloat16InFloat32)},
		{"delta_f32_1e-6", float32s, updated(put32, 1e-6)},
		{"delta_f32_1e-5", float32s, updated(put32, 1e-5)},
		{"delta_f32_1e-4", float32s, updated(put32, 1e-4)},
		{"delta_bf16_1e-6", bfloat16s, updated(put16, 1e-6)},
		{"delta_bf16_1e-5", bfloat16s, updated(put16, 1e-5)},
		{"delta_bf16_1e-4", bfloat16s, updated(put16, 1e-4)},
		{"incompressible", float32s, alone(noise)},
	}
}

func alone(f func(r *rand.Rand, n int) []byte) func(*rand.Rand, int) ([]byte, []byte) {
	return func(r *rand.Rand, n int) ([]byte, []byte) { return f(r, n), nil }
}

func weights(r *rand.Rand, n int) []float32 {
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(r.NormFloat64() * 0.02)
	}
	return w
}

// updated returns a function that makes weights after an update, and as base those before it.
func updated(put func([]float32) []byte, size float64) func(*rand.Rand, int) ([]byte, []byte) {
	return func(r *rand.Rand, n int) (data, base []byte) {
		w := weights(r, n)
		base = put(w)
		for i := range w {
			w[i] += float32(r.NormFloat64() * size)
		}
		return put(w), base
	}
}

// adam makes Adam's moments after some steps: averages of gradients and of their squares, with the usual decay of
// 0.9 and 0.999. Gradients are Gaussian; their size differs from tensor to tensor, of 64 Ki elements here, and a
// little from row to row.
func adam(r *rand.Rand, n int) (m, v []float32) {
	const steps, tensor, row = 16, 1 << 16, 1 << 9
	m, v = make([]float32, n), make([]float32, n)
	var ofTensor, ofRow float64
	for i := range n {
		if i%tensor == 0 {
			ofTensor = 1e-4 * math.Exp(2*r.NormFloat64())
		}
		if i%row == 0 {
			ofRow = ofTensor * math.Exp(0.5*r.NormFloat64())
		}
		for range steps {
			g := float32(r.NormFloat64() * ofRow)
			m[i] = 0.9*m[i] + (1-0.9)*g
			v[i] = 0.999*v[i] + (1-0.999)*g*g
		}
	}
	return m, v
}

func bfloat16InFloat32(r *rand.Rand, n int) []byte {
	w := weights(r, n)
	for i := range w {
		w[i] = math.Float32frombits(uint32(round16(w[i])) << 16)
	}
	return put32(w)
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, 4*n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// put32 and put16 store numbers as little-endian float32 and bfloat16.
func put32(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func put16(x []float32) []byte {
	b := make([]byte, 0, 2*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint16(b, round16(v))
	}
	return b
}

// round16 rounds a finite number to the nearest bfloat16, ties to even.
func round16(x float32) uint16 {
	u := math.Float32bits(x)
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

package main

import (
	"math"
	"math/rand/v2"

	"ddpbatch/trainer/data"
)

const (
	arms    = 3 // number of spirals, which are the classes
	columns = 2 // coordinates of a point
)

// spirals is a data.Dataset, like a map-style data set of torch.utils.data: points on interleaved spirals around the origin.
type spirals struct {
	points [][columns]float32
}

// newSpirals makes rows that depend only on rows and seed, so that all ranks have the same.
func newSpirals(rows int, seed uint64) *spirals {
	random := rand.New(rand.NewPCG(seed, 0))
	s := &spirals{points: make([][columns]float32, rows)}
	for i := range s.points {
		radius := random.Float64()
		angle := 2*math.Pi*(float64(i%arms)/arms+radius) + 0.1*random.NormFloat64()
		s.points[i] = [columns]float32{float32(radius * math.Cos(angle)), float32(radius * math.Sin(angle))}
	}
	return s
}

func (s *spirals) Len() int { return len(s.points) }

func (s *spirals) Spec() data.Spec { return data.Spec{Inputs: columns, Classes: arms, Labels: 1} }

// Read copies row i. It is called on the loader's goroutine.
func (s *spirals) Read(i int, x, _ []float32, labels []int) {
	copy(x, s.points[i][:])
	labels[0] = i % arms
}

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"ddpbatch/checkpoint/npy"
)

const (
	edge      = 28
	pixels    = edge * edge
	imageRows = 5120
	sequence  = 128
	textRows  = 320
)

// writeData writes the arrays that both sides read to dir. They are random, because the time of a step does not depend on them. Targets
// depend on inputs, so that a side that trains incorrectly has another loss.
func writeData(ctx context.Context, dir string) error {
	random := rand.New(rand.NewPCG(1, 2))
	inputs, targets := plane(random)
	images, labels := classes(random)
	n := imageRows
	return errors.Join(
		writeNPY(ctx, filepath.Join(dir, "dense-inputs.npy"), inputs, len(targets), len(inputs)/len(targets)),
		writeNPY(ctx, filepath.Join(dir, "dense-targets.npy"), targets, len(targets), 1),
		writeNPY(ctx, filepath.Join(dir, "mlp-inputs.npy"), images, n, pixels),
		writeNPY(ctx, filepath.Join(dir, "mlp-targets.npy"), labels, n),
		writeNPY(ctx, filepath.Join(dir, "cnn-inputs.npy"), images, n, 1, edge, edge),
		writeNPY(ctx, filepath.Join(dir, "cnn-targets.npy"), labels, n),
		os.WriteFile(filepath.Join(dir, "text.bin"), text(random), 0o600),
	)
}

// plane draws points near a plane.
func plane(random *rand.Rand) (inputs, targets []float32) {
	const rows, columns = 4096, 20
	inputs, targets = make([]float32, rows*columns), make([]float32, rows)
	for i := range targets {
		targets[i] = float32(0.1 * random.NormFloat64())
		for j := range columns {
			x := float32(random.NormFloat64())
			inputs[i*columns+j] = x
			targets[i] += x * float32(j+1) / columns
		}
	}
	return inputs, targets
}

// classes draws images of ten classes. Each class has a pattern of squares, and each image is its class's pattern with noise. They are not
// brighter, because SGD with these learning rates would be so unstable that rounding alone changes the losses.
func classes(random *rand.Rand) (images []float32, labels []int64) {
	const count, square, share, bright = 10, 7, 0.25, 0.5
	var patterns [count][pixels]float32
	for class := range patterns {
		var squares [edge / square][edge / square]float32
		for i := range squares {
			for j := range squares[i] {
				squares[i][j] = random.Float32()
			}
		}
		for i := range pixels {
			patterns[class][i] = squares[i/edge/square][i%edge/square]
		}
	}
	images, labels = make([]float32, imageRows*pixels), make([]int64, imageRows)
	for row := range labels {
		class := random.IntN(count)
		labels[row] = int64(class)
		for i, shade := range patterns[class] {
			images[row*pixels+i] = bright * (share*shade + (1-share)*random.Float32())
		}
	}
	return images, labels
}

// text draws symbols: a sequence for each row, and one more after the last. Some are much more frequent than others, as letters are, and
// each has one that follows it with more than random frequency.
func text(random *rand.Rand) []byte {
	const symbols, follows = 64, 8
	var upTo [symbols]float64 // the k-th has a frequency proportional to 1/k (Zipf's law)
	total := 0.0
	for k := range upTo {
		total += 1 / float64(k+1)
		upTo[k] = total
	}
	text := make([]byte, textRows*sequence+1)
	for i := range text {
		symbol, _ := slices.BinarySearch(upTo[:], total*random.Float64())
		if i > 0 && random.IntN(follows) == 0 {
			symbol = (int(text[i-1]) + 1) % symbols
		}
		text[i] = byte(symbol)
	}
	return text
}

// writeNPY writes an array of float32 or int64 to a file.
func writeNPY(ctx context.Context, path string, values any, shape ...int) error {
	dtype := "float32"
	if _, ok := values.([]int64); ok {
		dtype = "int64"
	}
	return npy.WriteFile(ctx, path, dtype, shape, func(w io.Writer) error { return binary.Write(w, binary.LittleEndian, values) })
}

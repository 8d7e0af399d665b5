package main

import (
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

const (
	pixels    = 28 * 28
	imageRows = 5120
	sequence  = 128
	textRows  = 320
)

// writeData writes, into dir, the arrays that both sides read, and says where those of images and of text are from: files below
// folder as README.md of the reference data names them, or, where there are none, drawn at random in the same shapes. The
// time of a step depends on neither.
func writeData(dir, folder string) (from []string, err error) {
	random := rand.New(rand.NewPCG(1, 2))
	inputs, targets := plane(random)
	images, labels, imagesFrom, err := digits(filepath.Join(folder, "mnist"), random)
	if err != nil {
		return nil, err
	}
	text, textFrom, err := symbols(filepath.Join(folder, "text", "tinyshakespeare.txt"), random)
	if err != nil {
		return nil, err
	}
	n := imageRows
	return []string{imagesFrom, textFrom}, errors.Join(
		writeNPY(filepath.Join(dir, "dense-inputs.npy"), inputs, len(targets), len(inputs)/len(targets)),
		writeNPY(filepath.Join(dir, "dense-targets.npy"), targets, len(targets), 1),
		writeNPY(filepath.Join(dir, "mlp-inputs.npy"), images, n, pixels),
		writeNPY(filepath.Join(dir, "mlp-targets.npy"), labels, n),
		writeNPY(filepath.Join(dir, "cnn-inputs.npy"), images, n, 1, 28, 28),
		writeNPY(filepath.Join(dir, "cnn-targets.npy"), labels, n),
		os.WriteFile(filepath.Join(dir, "text.bin"), text, 0o600),
	)
}

// plane draws points beside a plane.
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

// digits are MNIST's, scaled to 0 to 1, or noise.
func digits(folder string, random *rand.Rand) (images []float32, labels []int64, from string, err error) {
	images, labels = make([]float32, imageRows*pixels), make([]int64, imageRows)
	shown := filepath.Join(folder, "t10k-images-idx3-ubyte.gz")
	x, err := gunzip(shown, 16, len(images)) // IDX: a header of 4 bytes, and 4 for each dimension
	if err == nil {
		var y []byte
		if y, err = gunzip(filepath.Join(folder, "t10k-labels-idx1-ubyte.gz"), 8, len(labels)); err != nil {
			return nil, nil, "", err
		}
		for i, v := range x {
			images[i] = float32(v) / 255
		}
		for i, v := range y {
			labels[i] = int64(v)
		}
		return images, labels, "images: MNIST", nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, "", err
	}
	for i := range images {
		images[i] = random.Float32()
	}
	for i := range labels {
		labels[i] = random.Int64N(10)
	}
	return images, labels, "images: random", nil
}

// gunzip reads n bytes that come after skip others.
func gunzip(path string, skip, n int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	all := make([]byte, skip+n)
	if _, err := io.ReadFull(unpacked, all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all[skip:], nil
}

// symbols are the first bytes of a text, or any: a sequence of each row, and the symbol after the last.
func symbols(path string, random *rand.Rand) (text []byte, from string, err error) {
	const n = textRows*sequence + 1
	all, err := os.ReadFile(path)
	switch {
	case err == nil && len(all) >= n:
		return all[:n], "text: " + filepath.Base(path), nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, "", err
	}
	text = make([]byte, n)
	for i := range text {
		text[i] = byte(random.IntN(256))
	}
	return text, "text: random", nil
}

// writeNPY writes an array as numpy.save does, in format 1.0 (numpy.lib.format): of float32, or of int64.
func writeNPY(path string, values any, shape ...int) error {
	kind := "<f4"
	if _, ok := values.([]int64); ok {
		kind = "<i8"
	}
	sizes := strings.Trim(fmt.Sprint(shape), "[]")
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }", kind, strings.ReplaceAll(sizes, " ", ", "))
	const fixed = 10 // bytes before the header, which with it and its newline fills lines of 64
	header += strings.Repeat(" ", 63-(fixed+len(header))%64) + "\n"
	text := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	text, err := binary.Append(append(text, header...), binary.LittleEndian, values)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

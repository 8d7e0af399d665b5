package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ddpbatch/trainer/data"
)

// ddpbatch reads the files that writeData writes.
func TestWriteDataIsReadByDdpbatch(t *testing.T) {
	dir := t.TempDir()
	if err := writeData(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]data.Spec{
		"dense": {Inputs: 20, Outputs: 1},
		"mlp":   {Inputs: 784, Classes: 10, Labels: 1},
		"cnn":   {Inputs: 784, Classes: 10, Labels: 1, Image: data.Image{Channels: 1, Height: 28, Width: 28}},
	} {
		files := data.NPYConfig{Inputs: filepath.Join(dir, name+"-inputs.npy"), Targets: filepath.Join(dir, name+"-targets.npy")}
		d, err := data.LoadNPY(files)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(models, func(m model) bool { return m.name == name })
		if d.Spec() != want || d.Len() != models[i].rows {
			t.Errorf("%s: %+v, %d rows", name, d.Spec(), d.Len())
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "text.bin")); err != nil || len(text) != textRows*sequence+1 {
		t.Errorf("%d bytes of text, %v", len(text), err)
	}
}

// The pixels of an image determine its class: images of one half are nearer to the mean of their class in the other half than to the means
// of other classes.
func TestClassesDependOnPixels(t *testing.T) {
	images, labels := classes(rand.New(rand.NewPCG(1, 2)))
	row := func(i int) []float32 { return images[i*pixels : (i+1)*pixels] }
	var sums [10][pixels]float64
	var counts [10]float64
	for i := range imageRows / 2 {
		for j, shade := range row(i) {
			sums[labels[i]][j] += float64(shade)
		}
		counts[labels[i]]++
	}
	wrong := 0
	for i := imageRows / 2; i < imageRows; i++ {
		var away [10]float64
		for class := range away {
			for j, shade := range row(i) {
				d := float64(shade) - sums[class][j]/counts[class]
				away[class] += d * d
			}
		}
		if slices.Index(away[:], slices.Min(away[:])) != int(labels[i]) {
			wrong++
		}
	}
	if wrong > imageRows/100 {
		t.Errorf("%d of %d images look like another class", wrong, imageRows/2)
	}
}

// Two things can be learned from the text: which symbols are frequent, and which symbol follows which.
func TestTextIsNotNoise(t *testing.T) {
	symbols := text(rand.New(rand.NewPCG(1, 2)))
	var first, follows float64
	for i, symbol := range symbols {
		if symbol == 0 {
			first++
		}
		if i > 0 && symbol == (symbols[i-1]+1)%64 {
			follows++
		}
	}
	n := float64(len(symbols))
	if first < 0.1*n || follows < 0.1*n {
		t.Errorf("of %v symbols %v are the first, and %v the one after that before", n, first, follows)
	}
}

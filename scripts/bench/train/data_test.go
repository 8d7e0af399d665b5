package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ddpbatch/trainer/data"
)

// What is written is what ddpbatch reads, with and without the real data.
func TestWriteData(t *testing.T) {
	for _, real := range []bool{false, true} {
		dir, folder := t.TempDir(), t.TempDir()
		if real {
			images := bytes.Repeat([]byte{51}, 16+imageRows*pixels) // 51 / 255 is 0.2
			pack(t, filepath.Join(folder, "mnist", "t10k-images-idx3-ubyte.gz"), images)
			pack(t, filepath.Join(folder, "mnist", "t10k-labels-idx1-ubyte.gz"), bytes.Repeat([]byte{7}, 8+imageRows))
		}
		from, err := writeData(dir, folder)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{false: "images: random", true: "images: MNIST"}[real]; from[0] != want || from[1] != "text: random" {
			t.Errorf("data from %q", from)
		}
		for name, want := range map[string]data.Spec{
			"dense": {Inputs: 20, Outputs: 1},
			"mlp":   {Inputs: 784, Classes: 10, Labels: 1},
			"cnn":   {Inputs: 784, Classes: 10, Labels: 1, Image: data.Image{Channels: 1, Height: 28, Width: 28}},
		} {
			if real && name != "dense" {
				want.Classes = 8
			}
			d, err := data.LoadNPY(data.NPYConfig{Inputs: filepath.Join(dir, name+"-inputs.npy"), Targets: filepath.Join(dir, name+"-targets.npy")})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(models, func(m model) bool { return m.name == name })
			if d.Spec() != want || d.Len() != models[i].rows {
				t.Errorf("%s: %+v, %d rows", name, d.Spec(), d.Len())
			}
			if x := make([]float32, want.Inputs); real && name == "cnn" {
				d.Read(imageRows-1, x, nil, make([]int, 1))
				if x[0] != 0.2 || x[783] != 0.2 {
					t.Errorf("pixels %v, want 0.2", x)
				}
			}
		}
		if text, err := os.ReadFile(filepath.Join(dir, "text.bin")); err != nil || len(text) != textRows*sequence+1 {
			t.Errorf("%d bytes of text, %v", len(text), err)
		}
	}
}

func pack(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

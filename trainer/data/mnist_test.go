package data

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeMNIST writes two files and returns their paths.
func writeMNIST(t *testing.T, images, labels []byte) (string, string) {
	t.Helper()
	return writeFile(t, "images", images), writeFile(t, "labels", labels)
}

func mustMNIST(t *testing.T, images, labels []byte) Dataset {
	t.Helper()
	x, y := writeMNIST(t, images, labels)
	set, err := LoadMNIST(t.Context(), nil, x, y)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestLoadMNIST(t *testing.T) {
	set := mustMNIST(t, idxBytes([]uint32{2, 1, 2}, 0, 255, 51, 0), gzipped(t, idxBytes([]uint32{2}, 3, 9)))
	if set.Len() != 2 || set.Spec() != (Spec{Inputs: 2, Classes: 10, Labels: 1, Image: Image{1, 1, 2}}) {
		t.Fatalf("%d rows of %+v", set.Len(), set.Spec())
	}
	x := make([]float32, 2)
	label := []int{0}
	if set.Read(1, x, nil, label); label[0] != 9 {
		t.Errorf("label %d, want 9", label)
	}
	// (51/255 - 0.1307) / 0.3081 and (0 - 0.1307) / 0.3081, by a calculator.
	for i, want := range []float64{0.224927, -0.424213} {
		if d := float64(x[i]) - want; d > 1e-6 || d < -1e-6 {
			t.Errorf("pixel %d is %v, want %v", i, x[i], want)
		}
	}
}

func TestLoadMNISTRefuses(t *testing.T) {
	images, labels := idxBytes([]uint32{2, 1, 1}, 7, 8), idxBytes([]uint32{2}, 1, 2)
	for name, c := range map[string]struct {
		images, labels []byte
		want           string
	}{
		"swapped":         {labels, images, "swapped"},
		"another count":   {images, idxBytes([]uint32{3}, 1, 2, 3), "2 images"},
		"label too large": {images, idxBytes([]uint32{2}, 1, 10), "label 10 of row 1"},
		"images cut":      {images[:len(images)-1], labels, "cut short"},
		"huge images":     {gzipped(t, idxBytes([]uint32{1, 4097, 4096}, make([]byte, 4097*4096)...)), idxBytes([]uint32{1}, 1), "4097 x 4096 pixels are more than 16777216"},
		"labels no IDX":   {images, []byte("1,2"), "not an IDX file"},
	} {
		t.Run(name, func(t *testing.T) {
			x, y := writeMNIST(t, c.images, c.labels)
			_, err := LoadMNIST(t.Context(), nil, x, y)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := LoadMNIST(t.Context(), nil, "/nowhere/images", "/nowhere/labels"); err == nil || !strings.Contains(err.Error(), "/nowhere/images") {
		t.Errorf("error %v, want one that names the missing file", err)
	}
}

// The first test digits of MNIST show 7, 2, 1, 0, 4, as every tutorial prints them.
func TestRealDigits(t *testing.T) {
	set, err := LoadMNIST(t.Context(), nil,
		filepath.Join("testdata", "mnist", "images-idx3-ubyte.gz"),
		filepath.Join("testdata", "mnist", "labels-idx1-ubyte.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if set.Len() != 1500 || set.Spec() != (Spec{Inputs: 28 * 28, Classes: 10, Labels: 1, Image: Image{1, 28, 28}}) {
		t.Fatalf("%d rows of %+v", set.Len(), set.Spec())
	}
	var batch Batch
	batch.Fill(set, []int{0, 1, 2, 3, 4})
	if want := []int{7, 2, 1, 0, 4}; !slices.Equal(batch.Labels, want) {
		t.Errorf("labels %v, want %v", batch.Labels, want)
	}
}

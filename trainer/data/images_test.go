package data

import (
	"bytes"
	"math"
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
	// The wanted values are (51/255 - 0.1307) / 0.3081 and (0 - 0.1307) / 0.3081, by a calculator.
	for i, want := range []float64{0.224927, -0.424213} {
		if d := float64(x[i]) - want; d > 1e-6 || d < -1e-6 {
			t.Errorf("pixel %d is %v, want %v", i, x[i], want)
		}
	}
}

func TestLoadMNISTRefusesBadFiles(t *testing.T) {
	images, labels := idxBytes([]uint32{2, 1, 1}, 7, 8), idxBytes([]uint32{2}, 1, 2)
	for name, c := range map[string]struct {
		images, labels []byte
		want           string
	}{
		"swapped":         {labels, images, "swapped"},
		"another count":   {images, idxBytes([]uint32{3}, 1, 2, 3), "2 images"},
		"label too large": {images, idxBytes([]uint32{2}, 1, 10), "label 10 of row 1"},
		"images cut":      {images[:len(images)-1], labels, "cut short"},
		"huge images": {gzipped(t, idxBytes([]uint32{1, 4097, 4096}, make([]byte, 4097*4096)...)), idxBytes([]uint32{1}, 1),
			"4097 x 4096 pixels are more than 16777216"},
		"labels no IDX": {images, []byte("1,2"), "not an IDX file"},
	} {
		t.Run(name, func(t *testing.T) {
			x, y := writeMNIST(t, c.images, c.labels)
			_, err := LoadMNIST(t.Context(), nil, x, y)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := LoadMNIST(t.Context(), nil, "/nowhere/images", "/nowhere/labels"); err == nil ||
		!strings.Contains(err.Error(), "/nowhere/images") {
		t.Errorf("error %v, want one that names the missing file", err)
	}
}

// The first test digits of MNIST are 7, 2, 1, 0, 4, as in every tutorial.
func TestRealDigitsAreThoseOfTutorials(t *testing.T) {
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

// cifarRows returns rows of CIFAR-10's binary version with the given labels. The pixels count up, and continue from row to row.
func cifarRows(labels ...byte) []byte {
	var file []byte
	for _, label := range labels {
		file = append(file, label)
		for i := range cifarInputs {
			file = append(file, byte(len(file)+i/1024))
		}
	}
	return file
}

func TestLoadCIFAR10(t *testing.T) {
	first, second := cifarRows(3, 0), cifarRows(9)
	set, err := LoadCIFAR10(writeFile(t, "data_batch_1.bin", first), writeFile(t, "data_batch_2.bin", second))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Spec{Inputs: 3072, Classes: 10, Labels: 1, Image: Image{3, 32, 32}}); set.Len() != 3 || set.Spec() != want {
		t.Fatalf("%d rows of %+v", set.Len(), set.Spec())
	}
	got := all(set)
	if !slices.Equal(got.Labels, []int{3, 0, 9}) {
		t.Errorf("labels %v, want 3 0 9", got.Labels)
	}
	mean, deviation := []float64{0.4914, 0.4822, 0.4465}, []float64{0.2470, 0.2435, 0.2616}
	for row, file := range [][]byte{first[1:3073], first[3074:], second[1:]} {
		for i, pixel := range file {
			want := (float64(pixel)/255 - mean[i/1024]) / deviation[i/1024]
			// The tolerance allows for three roundings to float32 of values up to 2.2.
			if x := got.X[row*3072+i]; math.Abs(float64(x)-want) > 1e-6 {
				t.Fatalf("row %d pixel %d is %v, want %v", row, i, x, want)
			}
		}
	}
}

func TestLoadCIFAR10RefusesBadFiles(t *testing.T) {
	good := cifarRows(1)
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":           {nil, "0 bytes"},
		"cut":             {good[:3072], "3072 bytes are not rows of 3073"},
		"label too large": {cifarRows(1, 10), "label 10 of row 1 is out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, "data_batch_2.bin", c.file)
			_, err := LoadCIFAR10(writeFile(t, "data_batch_1.bin", good), path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one with %q that names the file", err, c.want)
			}
		})
	}
	if _, err := LoadCIFAR10(); err == nil {
		t.Error("no files: no error")
	}
	absent := filepath.Join(t.TempDir(), "absent")
	if _, err := LoadCIFAR10(absent); err == nil || !strings.Contains(err.Error(), absent) {
		t.Errorf("error %v, want one that names %s", err, absent)
	}
}

func FuzzCIFAR10(f *testing.F) {
	f.Add(cifarRows(1))
	f.Add(cifarRows(12))
	f.Fuzz(func(t *testing.T, file []byte) {
		set, err := parseCIFAR10(file, make([][256]float32, 3))
		if err != nil {
			return
		}
		if set.Len()*cifarRow != len(file) || !bytes.Equal(set.x.(pixels).bytes, file) {
			t.Errorf("%d rows in %d bytes", set.Len(), len(file))
		}
		for _, label := range all(set).Labels {
			if label < 0 || label > 9 {
				t.Errorf("label %d", label)
			}
		}
	})
}

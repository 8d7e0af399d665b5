package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testenv"
)

// idxBytes is an IDX file of unsigned bytes with the given header and data.
func idxBytes(dims []uint32, data ...byte) []byte {
	b := []byte{0, 0, 8, byte(len(dims))}
	for _, n := range dims {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return append(b, data...)
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestReadIDX(t *testing.T) {
	file := idxBytes([]uint32{2, 1, 3}, 1, 2, 3, 4, 5, 6)
	for name, b := range map[string][]byte{"plain": file, "gzip": gzipped(t, file)} {
		t.Run(name, func(t *testing.T) {
			idx, err := ReadIDX(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(idx.Dims, []int{2, 1, 3}) || !bytes.Equal(idx.Data, []byte{1, 2, 3, 4, 5, 6}) {
				t.Errorf("got %v %v", idx.Dims, idx.Data)
			}
		})
	}
}

func TestReadIDXRefuses(t *testing.T) {
	good := idxBytes([]uint32{2, 2}, 1, 2, 3, 4)
	zipped := gzipped(t, good)
	flipped := slices.Clone(zipped)
	flipped[len(flipped)-8] ^= 1 // in gzip's CRC-32
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":                  {nil, "no magic number"},
		"text":                   {[]byte("label,pixel0\n"), "not an IDX file"},
		"no dimensions":          {[]byte{0, 0, 8, 0}, "not an IDX file"},
		"255 dimensions":         {idxBytes(make([]uint32, 255)), "not an IDX file"},
		"floats":                 {[]byte{0, 0, 0x0d, 1, 0, 0, 0, 1, 0, 0, 0, 0}, "type 0x0d"},
		"header cut":             {good[:9], "cut short in the header"},
		"data cut":               {good[:len(good)-1], "cut short: 3 bytes"},
		"gzip cut":               {zipped[:len(zipped)/2], "cut short"},
		"gzip's sum cut":         {zipped[:len(zipped)-4], "damaged at the end"},
		"gzip's sum wrong":       {flipped, "damaged"},
		"gzip header cut":        {zipped[:5], "gzip"},
		"too long":               {append(slices.Clone(good), 0), "goes on"},
		"zero rows":              {idxBytes([]uint32{0, 28, 28}), "dimension of 0"},
		"a promise of 2^32 rows": {idxBytes([]uint32{1<<32 - 1}), "more than the 1024 MiB"},
		"a product over 2^64":    {idxBytes([]uint32{1 << 31, 1 << 31, 1 << 31}), "more than the 1024 MiB"},
		"a promise of 1 GiB":     {idxBytes([]uint32{1 << 30}, 1), "cut short: 1 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			idx, err := ReadIDX(bytes.NewReader(c.file))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, error %v; want an error with %q", idx, err, c.want)
			}
		})
	}
}

func TestOpenIDXNamesThePath(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, []byte{0}, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, short, filepath.Join(dir, "absent")} {
		if _, err := OpenIDX(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want one that names %s", err, path)
		}
	}
}

// A named pipe would be waited for until somebody writes to it.
func TestOpenIDXDoesNotWaitForAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := OpenIDX(pipe)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), pipe+" is not a regular file") {
			t.Errorf("error %v, want one that names the pipe", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("OpenIDX waits for a writer")
	}
}

func FuzzReadIDX(f *testing.F) {
	good := idxBytes([]uint32{2, 2}, 1, 2, 3, 4)
	f.Add(good)
	f.Add(gzipped(f, good))
	f.Add(idxBytes([]uint32{1 << 31, 1 << 31, 1 << 31}))
	f.Fuzz(func(t *testing.T, file []byte) {
		idx, err := ReadIDX(bytes.NewReader(file))
		if err != nil {
			return
		}
		size := 1
		for _, n := range idx.Dims {
			size *= n
		}
		if size != len(idx.Data) || size == 0 {
			t.Errorf("dimensions %v with %d bytes", idx.Dims, len(idx.Data))
		}
	})
}

// writeMNIST writes two files and returns their paths.
func writeMNIST(t *testing.T, images, labels []byte) (string, string) {
	t.Helper()
	dir := t.TempDir()
	x, y := filepath.Join(dir, "images"), filepath.Join(dir, "labels")
	for path, b := range map[string][]byte{x: images, y: labels} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return x, y
}

func TestLoadMNIST(t *testing.T) {
	set, err := LoadMNIST(writeMNIST(t, idxBytes([]uint32{2, 1, 2}, 0, 255, 51, 0), gzipped(t, idxBytes([]uint32{2}, 3, 9))))
	if err != nil {
		t.Fatal(err)
	}
	if set.Len() != 2 || set.Spec() != (Spec{Inputs: 2, Classes: 10}) {
		t.Fatalf("%d rows of %+v", set.Len(), set.Spec())
	}
	x := make([]float32, 2)
	if label := set.Read(1, x, nil); label != 9 {
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
		"labels no IDX":   {images, []byte("1,2"), "not an IDX file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := LoadMNIST(writeMNIST(t, c.images, c.labels))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := LoadMNIST("/nowhere/images", "/nowhere/labels"); err == nil || !strings.Contains(err.Error(), "/nowhere/images") {
		t.Errorf("error %v, want one that names the missing file", err)
	}
}

// The first test digits of MNIST show 7, 2, 1, 0, 4, as every tutorial prints them.
func TestRealDigits(t *testing.T) {
	set, err := LoadMNIST(
		testenv.Shared(t, "data", "mnist", "t10k-images-idx3-ubyte.gz"),
		testenv.Shared(t, "data", "mnist", "t10k-labels-idx1-ubyte.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if set.Len() != 10000 || set.Spec() != (Spec{Inputs: 28 * 28, Classes: 10}) {
		t.Fatalf("%d rows of %+v", set.Len(), set.Spec())
	}
	var batch Batch
	batch.Fill(set, []int{0, 1, 2, 3, 4})
	if want := []int{7, 2, 1, 0, 4}; !slices.Equal(batch.Labels, want) {
		t.Errorf("labels %v, want %v", batch.Labels, want)
	}
}

package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// idxBytes returns an IDX file of unsigned bytes with the given dimensions and data.
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

func TestOpenIDX(t *testing.T) {
	file := idxBytes([]uint32{2, 1, 3}, 1, 2, 3, 4, 5, 6)
	for name, b := range map[string][]byte{"plain": file, "gzip": gzipped(t, file)} {
		t.Run(name, func(t *testing.T) {
			x, err := openIDX(t.Context(), nil, writeFile(t, "array", b))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(x.dims, []int{2, 1, 3}) || !bytes.Equal(x.data, []byte{1, 2, 3, 4, 5, 6}) {
				t.Errorf("got %v %v", x.dims, x.data)
			}
		})
	}
}

func TestOpenIDXRefusesBadFiles(t *testing.T) {
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
		"gzip too long":          {gzipped(t, append(slices.Clone(good), 0)), "goes on"},
		"gzip too short":         {gzipped(t, good[:len(good)-1]), "cut short: 3 bytes"},
		"gzip without data":      {gzipped(t, good[:len(good)-4]), "cut short: 0 bytes"},
		"gzip of a lying header": {gzipped(t, idxBytes([]uint32{1 << 30}, 1)), "cut short: 1 bytes"},
		"zero rows":              {idxBytes([]uint32{0, 28, 28}), "dimension of 0"},
		"a promise of 2^32 rows": {idxBytes([]uint32{1<<32 - 1}), "more than the 1024 MiB"},
		"a product over 2^64":    {idxBytes([]uint32{1 << 31, 1 << 31, 1 << 31}), "more than the 1024 MiB"},
		"a promise of 1 GiB":     {idxBytes([]uint32{1 << 30}, 1), "cut short: 1 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := openIDX(t.Context(), nil, writeFile(t, "array", c.file))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, error %v; want an error with %q", x, err, c.want)
			}
		})
	}
}

// A gzip file takes no more memory than its unpacked size, however well it is packed. A header that promises more data than there is
// costs little.
func TestReadIDXTakesLittleMemory(t *testing.T) {
	const size = 32 << 20
	packed := gzipped(t, idxBytes([]uint32{size}, make([]byte, size)...))
	lying := gzipped(t, idxBytes([]uint32{1 << 30}, 1))
	for name, c := range map[string]struct {
		file []byte
		most uint64
	}{
		"true":  {packed, size + 1<<20},
		"lying": {lying, 1 << 20},
	} {
		least := allocated(func() {
			x, err := readIDX(c.file)
			if (err == nil) != (name == "true") || err == nil && len(x.data) != size {
				t.Errorf("%s: error %v", name, err)
			}
		})
		if least > c.most {
			t.Errorf("%s: %d bytes of memory, want at most %d", name, least, c.most)
		}
	}
}

func TestOpenIDXNamesThePath(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, []byte{0}, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, short, filepath.Join(dir, "absent")} {
		if _, err := openIDX(t.Context(), nil, path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want one that names %s", err, path)
		}
	}
}

// openIDX refuses a named pipe. Opening it would block until another process writes to it.
func TestOpenIDXDoesNotWaitForAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := openIDX(t.Context(), nil, pipe)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), pipe+" is not a regular file") {
			t.Errorf("error %v, want one that names the pipe", err)
		}
	case <-time.After(testkit.Patience):
		t.Error("openIDX waits for a writer")
	}
}

func FuzzIDX(f *testing.F) {
	good := idxBytes([]uint32{2, 2}, 1, 2, 3, 4)
	f.Add(good)
	f.Add(gzipped(f, good))
	f.Add(idxBytes([]uint32{1 << 31, 1 << 31, 1 << 31}))
	f.Fuzz(func(t *testing.T, file []byte) {
		x, err := parseIDX(file)
		if bytes.HasPrefix(file, []byte{0x1f, 0x8b}) {
			x, err = readIDX(file)
		}
		if err != nil {
			return
		}
		size := 1
		for _, n := range x.dims {
			size *= n
		}
		if size != len(x.data) || size == 0 {
			t.Errorf("dimensions %v with %d bytes", x.dims, len(x.data))
		}
	})
}

// If a file server holds a lease on a file for one of its clients, openMapping waits until the lease is given back.
func TestOpenMappingWaitsForALease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Lease(t, path)
	m, err := openMapping(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(m.bytes) != "x" {
		t.Errorf("the file holds %q, want x", m.bytes)
	}
	runtime.KeepAlive(m)
}

package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

var testSource = source{Path: "/data", Size: 1, Modified: 2, Changed: 3, Inode: 1<<64 - 1, Files: "hash", Settings: "csv"}

func encoded(t testing.TB, p *prepared) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := encodePrepared(&b, testSource, p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sample() *prepared {
	return &prepared{Classes: 7, Arrays: []array{
		newArray([]float32{1, 2, 3, 4, 5, 6}, 2, 3), newArray([]int32{-1, 6}, 2), {kindBytes, []int{3}, []byte{1, 2, 3}},
		{kindBytes, []int{0}, []byte{}},
	}}
}

func TestPreparedFileReadsBack(t *testing.T) {
	want := sample()
	file := encoded(t, want)
	got, from, err := decodePrepared(file)
	if err != nil || from != testSource || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v from %+v, error %v; want %+v", got, from, err, want)
	}
	for i := range want.Arrays {
		if at := cap(file) - cap(got.Arrays[i].bytes); at%preparedAlign != 0 {
			t.Errorf("array %d begins at byte %d", i, at)
		}
	}
}

// A change of any byte is detected, and so is a file cut to any length.
func TestPreparedSeesAllDamage(t *testing.T) {
	file := encoded(t, sample())
	for i := range file {
		damaged := bytes.Clone(file)
		damaged[i] ^= 0x10
		if _, _, err := decodePrepared(damaged); !errors.Is(err, errStale) {
			t.Fatalf("byte %d changed: error %v", i, err)
		}
		if _, _, err := decodePrepared(file[:i]); !errors.Is(err, errStale) {
			t.Fatalf("cut to %d bytes: error %v", i, err)
		}
	}
}

// A file whose checksums are right is still refused if its arrays do not make a valid table.
func TestPreparedTableRefusesBadContents(t *testing.T) {
	x := newArray([]float32{1, 2}, 2, 1)
	for name, p := range map[string]*prepared{
		"nothing":         {},
		"no inputs":       {Classes: 2, Arrays: []array{newArray([]int32{0, 1}, 2, 1)}},
		"a label too big": {Classes: 2, Arrays: []array{x, newArray([]int32{0, 2}, 2, 1)}},
		"a negative one":  {Classes: 2, Arrays: []array{x, newArray([]int32{0, -1}, 2, 1)}},
		"fewer labels":    {Classes: 2, Arrays: []array{x, newArray([]int32{0}, 1, 1)}},
		"two for a row":   {Classes: 2, Arrays: []array{x, newArray([]int32{0, 0, 0, 0}, 2, 2)}},
		"outputs":         {Classes: 2, Arrays: []array{x, newArray([]float32{0, 1}, 2, 1)}},
		"flat inputs":     {Classes: 2, Arrays: []array{newArray([]float32{1, 2}, 2), newArray([]int32{0, 1}, 2, 1)}},
	} {
		if got, err := p.table(false); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func FuzzPrepared(f *testing.F) {
	file := encoded(f, sample())
	size := binary.LittleEndian.Uint32(file[12:])
	f.Add(file[preparedFixed:preparedFixed+size], file[preparedFixed+size:])
	f.Add([]byte(`{"arrays":[{"kind":"B","dims":[4611686018427387904,4]}]}`), []byte{})
	f.Add([]byte(`{"arrays":[{"kind":"f","dims":[-1]},{"kind":"","dims":null}]}`), []byte{1})
	f.Fuzz(func(t *testing.T, header, rest []byte) {
		// The checksums are right, since otherwise nothing else would be checked.
		b := []byte(preparedMagic)
		castagnoli := crc32.MakeTable(crc32.Castagnoli)
		for _, n := range []uint32{preparedVersion, uint32(len(header)), crc32.Checksum(header, castagnoli),
			crc32.Checksum(rest, castagnoli)} {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
		p, _, err := decodePrepared(slices.Concat(b, header, rest))
		if err != nil {
			if !errors.Is(err, errStale) {
				t.Error(err)
			}
			return
		}
		for _, a := range p.Arrays {
			if n := length(a.kind, a.dims); n != len(a.bytes) {
				t.Errorf("%v of kind %c with %d bytes", a.dims, a.kind, len(a.bytes))
			}
		}
		for _, regression := range []bool{false, true} {
			if set, err := p.table(regression); err == nil && set.Len() > 0 {
				set.Read(set.Len()-1, make([]float32, set.Spec().Inputs), make([]float32, set.Spec().Outputs),
					make([]int, set.Spec().Labels))
			}
		}
	})
}

// A file stays mapped while its data set is in use, and is unmapped once the data set is garbage.
func TestMappingLastsAsLongAsItsDataSet(t *testing.T) {
	path := writeFile(t, "a text of this test alone", []byte(strings.Repeat("text", 1<<18)))
	mapped := func() bool {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Skipf("needs /proc to see what is mapped: %v", err)
		}
		return strings.Contains(string(maps), path)
	}
	set, err := OpenText(t.Context(), nil, path, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	x, labels := make([]float32, 1<<10), make([]int, 1<<10)
	for i := range set.Len() {
		if i%100 == 0 {
			runtime.GC()
		}
		if set.Read(i, x, nil, labels); x[0] != 't' || labels[0] != 'e' {
			t.Fatalf("row %d begins with %v", i, x[0])
		}
	}
	if !mapped() {
		t.Error("the file is not mapped while its data set is in use")
	}
	runtime.KeepAlive(set)
	set = nil
	testkit.Eventually(t, "the file is unmapped", func() bool {
		runtime.GC()
		return !mapped()
	})
}

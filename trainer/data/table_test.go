package data

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"testing"
)

func digestOf(d Dataset) [sha256.Size]byte {
	sum, err := Digest(context.Background(), d)
	if err != nil {
		panic(err)
	}
	return sum
}

// Data sets have different digests if a row differs, or how rows are read. Copies have the same digest.
func TestDigestDiffersWhereRowsDo(t *testing.T) {
	load := func(images, labels []byte) Dataset {
		return mustMNIST(t, images, labels)
	}
	images, labels := idxBytes([]uint32{3, 1, 2}, 1, 2, 3, 4, 1, 2), idxBytes([]uint32{3}, 7, 8, 7)
	want := digestOf(load(images, labels))
	if digestOf(load(images, gzipped(t, labels))) != want {
		t.Error("a copy of the files has another digest")
	}
	part := func(first, end int) Dataset {
		set, err := Subset(load(images, labels), Range{first, end})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	if digestOf(part(0, 1)) != digestOf(part(2, 3)) {
		t.Error("equal rows at other places have another digest")
	}
	for name, set := range map[string]Dataset{
		"a pixel":      load(idxBytes([]uint32{3, 1, 2}, 1, 2, 3, 5, 1, 2), labels),
		"a label":      load(images, idxBytes([]uint32{3}, 7, 9, 7)),
		"the order":    load(idxBytes([]uint32{3, 1, 2}, 3, 4, 1, 2, 1, 2), idxBytes([]uint32{3}, 8, 7, 7)),
		"fewer rows":   part(0, 2),
		"another kind": mustGenerate(t, GeneratedConfig{Rows: 3, Inputs: 2, Outputs: 1}),
	} {
		if digestOf(set) == want {
			t.Errorf("%s: the digest is the same", name)
		}
	}
	plain := mustGenerate(t, GeneratedConfig{Rows: 3, Inputs: 2, Outputs: 1})
	if noisy := mustGenerate(t, GeneratedConfig{Rows: 3, Inputs: 2, Outputs: 1, Noise: 1}); digestOf(plain) == digestOf(noisy) {
		t.Error("other outputs have the same digest")
	}
}

// own is a data set as a user might write it: it has only the methods of the interface.
type own struct{ Dataset }

// In every kind of data set, views of equal rows have the same digest, wherever the rows lie. Views of other rows have other digests.
func TestDigestOfAViewIsThatOfACopy(t *testing.T) {
	npy := func() (Dataset, error) {
		return loadPair(t,
			npyFile(1, npyDictOf("<f4", "(3, 1)"), bytesOf([]float32{1, 2, 1})),
			npyFile(1, npyDictOf("|u1", "(3,)"), []byte{4, 5, 4}))
	}
	for name, open := range map[string]func() (Dataset, error){
		"cifar10": func() (Dataset, error) {
			return LoadCIFAR10(writeFile(t, "1", append(make([]byte, 3073), 1)[:3073]),
				writeFile(t, "2", append(cifarRows(1), make([]byte, 3073)...)))
		},
		"csv": func() (Dataset, error) {
			return LoadCSV(t.Context(), nil, CSVConfig{Path: writeFile(t, "csv", []byte("1,2\n3,4\n1,2\n"))})
		},
		"npy": npy,
		"text": func() (Dataset, error) {
			return OpenText(t.Context(), nil, writeFile(t, "text", []byte("abcdabc")), 2)
		},
		"own": func() (Dataset, error) { set, err := npy(); return own{set}, err },
	} {
		part := func(first, end int) [32]byte {
			set, err := open()
			if err == nil {
				set, err = Subset(set, Range{first, end})
			}
			if err != nil {
				t.Fatal(err)
			}
			return digestOf(set)
		}
		if part(0, 1) != part(2, 3) {
			t.Errorf("%s: equal rows at other places have another digest", name)
		}
		if part(0, 1) == part(1, 2) || part(0, 2) == part(1, 3) || part(0, 2) == part(0, 3) {
			t.Errorf("%s: other rows have the same digest", name)
		}
	}
}

// The digest depends on the last label of a text, too, which is not an input of any row.
func TestDigestSeesTheLastLabel(t *testing.T) {
	var sums [][32]byte
	for _, text := range []string{"abcde", "abcdf", "abcdeX"} {
		set, err := OpenText(t.Context(), nil, writeFile(t, "text", []byte(text)), 2)
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, digestOf(set))
	}
	if sums[0] == sums[1] {
		t.Error("another last label has the same digest")
	}
	if sums[0] != sums[2] {
		t.Error("a byte that belongs to no row changes the digest")
	}
}

func BenchmarkDigest(b *testing.B) {
	set := mustGenerate(b, GeneratedConfig{Rows: 9000, Inputs: 784, Outputs: 1})
	b.SetBytes(9000 * 785 * 4)
	for b.Loop() {
		digestOf(set)
	}
}

// A stop also ends the hashing of one long piece of memory, such as a mapped file. The bytes after the stop are not hashed.
func TestStopEndsOneLongWrite(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := &stoppableHash{stopsAfter{sha256.New(), cancel}, ctx}
	if n, err := h.Write(make([]byte, 64<<20)); n != 64<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	want := sha256.Sum256(make([]byte, 16<<20))
	if got := h.Sum(nil); !bytes.Equal(got, want[:]) {
		t.Error("it did not stop after the first piece of 16 MiB")
	}
}

// stopsAfter is a hash whose first write ends a context.
type stopsAfter struct {
	hash.Hash
	stop func()
}

func (s stopsAfter) Write(b []byte) (int, error) {
	defer s.stop()
	return s.Hash.Write(b)
}

// A stop ends the hashing of rows that are read one by one. The rows of this test would take years.
func TestStopEndsTheDigest(t *testing.T) {
	stop := errors.New("TERM")
	ctx, cancel := context.WithCancelCause(t.Context())
	rows := mustGenerate(t, GeneratedConfig{Rows: 1, Inputs: 2, Outputs: 1})
	if _, err := Digest(ctx, endless{rows, func() { cancel(stop) }}); !errors.Is(err, stop) {
		t.Errorf("%v, want %v", err, stop)
	}
}

// endless repeats one row 2^60 times, and calls begun before each read.
type endless struct {
	Dataset
	begun func()
}

func (e endless) Len() int { return 1 << 60 }

func (e endless) Read(i int, x, y []float32, labels []int) {
	e.begun()
	e.Dataset.Read(0, x, y, labels)
}

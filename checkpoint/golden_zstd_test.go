package checkpoint

import (
	"encoding/binary"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
)

// zstdState has the dtypes that goldenState lacks, in numbers that zstd makes smaller. Step 2 differs from step 1 by a little.
func zstdState(step int64) *State {
	g, update := lcg(2), lcg(step)
	tensor := func(name, dtype string, data []byte, shape ...int) Tensor {
		if step == 2 { // one byte of a hundred is another
			for i := range data {
				if i%100 == 7 && dtype != "bool" {
					data[i] ^= byte(update.next()) & 3
				}
			}
		}
		return Tensor{Name: name, DType: dtype, Shape: append([]int{}, shape...), Data: data}
	}
	few := func(n int, values ...byte) []byte { // n bytes of these values
		b := make([]byte, n)
		for i := range b {
			b[i] = values[g.next()%uint32(len(values))]
		}
		return b
	}
	var pairs []byte // of float32, whose low halves are 0
	for range 4000 {
		pairs = binary.LittleEndian.AppendUint32(pairs, math.Float32bits(g.bell())&^0xffff)
	}
	var counts []byte
	for i := range uint32(3000) {
		counts = binary.LittleEndian.AppendUint32(counts, i/3)
	}
	noise := make([]byte, 400)
	for i := range noise {
		noise[i] = byte(g.next())
	}
	return &State{
		Step: step, World: 2, Metrics: map[string]float64{"eval_loss": 0.5},
		Tensors: []Tensor{
			tensor("e4m3", "float8_e4m3fn", few(4000, 0x00, 0x38, 0x3c, 0xb8, 0x7e), 40, 100),
			tensor("e5m2", "float8_e5m2", few(4000, 0x00, 0x3c, 0xbc, 0x7b), 4000),
			tensor("pairs", "complex64", pairs, 2, 1000),
			tensor("flags", "bool", few(2000, 0, 1), 2000),
			tensor("bytes", "int8", few(2000, 0x80, 0xff, 0x00, 0x7f), 2000),
			tensor("shorts", "uint16", few(2000, 0, 1, 2), 1000),
			tensor("counts", "int32", counts, 3, 1000),
			tensor("more counts", "uint32", slices.Clone(counts), 3000),
			tensor("long", "uint64", few(2400, 0, 0, 0, 9), 300),
			tensor("noise", "float16", noise, 200),
		},
	}
}

// TestGoldenVersion2Zstd is TestGoldenVersion2 for the codec "zstd". A second attempt went on from step 2, after the first had saved step 3, which
// counts for nothing since.
func TestGoldenVersion2Zstd(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "v2-zstd")
	full, delta, late := zstdState(1), zstdState(2), zstdState(3)
	if toBeMade(path) {
		writeZstdGolden(t, path, full, delta, late)
	}
	d, err := Open(path, Options{Run: "golden"})
	must(t, err)
	for _, want := range []*State{full, delta} {
		got, err := d.Load(t.Context(), want.Step)
		must(t, err)
		wantState(t, got, want)
		if got.Metrics["eval_loss"] != 0.5 {
			t.Errorf("step %d: metrics %v", want.Step, got.Metrics)
		}
		must(t, d.Verify(t.Context(), want.Step, true))
	}
	// Every method that the format has without planes: pieces of two ranks each, of which noise stays as it is.
	if got, want := methodsIn(t, filepath.Join(path, "step-000000000001")), map[byte]int{0: 2, 1: 18}; !maps.Equal(got, want) {
		t.Errorf("step 1 has chunks by method %v, want %v", got, want)
	}
	if got := methodsIn(t, filepath.Join(path, "step-000000000002")); got[129] < 10 || got[2]+got[130] > 0 {
		t.Errorf("step 2 has chunks by method %v, want mostly 129", got)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	wantRecord(t, path, manifest.Record{Run: "golden", Attempt: 1, ResumedStep: -1, Created: at})
	wantRecord(t, path, manifest.Record{Run: "golden", Attempt: 2, ResumedStep: 2, ResumedFolder: "step-000000000002", Created: at})
	list, err := d.List(t.Context())
	must(t, err)
	if len(list) != 3 || list[0].State != StateCommitted || list[1].State != StateCommitted || list[2].State != StateSuperseded {
		t.Errorf("the list is %+v, want steps 1 and 2, and a third that is superseded", list)
	}
}

func writeZstdGolden(t *testing.T, path string, full, delta, late *State) {
	first, err := Open(path, Options{Codec: "zstd", Run: "golden", Attempt: 1})
	must(t, err)
	fix(first)
	must(t, first.Begin(t.Context(), nil))
	base, err := split(t, first, full, 2, nil, Commit{})
	must(t, err)
	c, err := split(t, first, delta, 2, full, Commit{Base: base})
	must(t, err)
	superseded, err := split(t, first, late, 2, nil, Commit{})
	must(t, err)
	second, err := Open(path, Options{Codec: "zstd", Run: "golden", Attempt: 2})
	must(t, err)
	fix(second)
	must(t, second.Begin(t.Context(), c))
	for _, open := range []*Checkpoint{base, c, superseded} {
		must(t, open.Close())
	}
}

// methodsIn counts the chunks of a folder's shards by method, by what docs/format.md says of the header and the table.
func methodsIn(t *testing.T, folder string) map[byte]int {
	t.Helper()
	shards, err := filepath.Glob(filepath.Join(folder, "shard-*.ddpt"))
	must(t, err)
	methods := map[byte]int{}
	for _, name := range shards {
		file, err := os.ReadFile(name)
		must(t, err)
		chunks := int(binary.LittleEndian.Uint32(file[36:]))
		for table := file[len(file)-32-16*chunks : len(file)-32]; len(table) > 0; table = table[16:] {
			methods[table[12]]++
		}
	}
	return methods
}

// wantRecord compares an attempt's record with what its program knew.
func wantRecord(t *testing.T, path string, want manifest.Record) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path, manifest.RecordName(want.Attempt, runCRC(want.Run))))
	must(t, err)
	got, err := manifest.ParseRecord(data)
	if err != nil || got != want {
		t.Errorf("the record of attempt %d is %+v, error %v; want %+v", want.Attempt, got, err, want)
	}
}

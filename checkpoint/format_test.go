package checkpoint

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
)

// TestFormatDocumentShowsOurBytes compares the worked example of docs/format.md with the bytes that the package writes.
func TestFormatDocumentShowsOurBytes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docs", "format.md"))
	must(t, err)
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m, Codec: "none", Run: "mnist", Attempt: 1})
	d.program = "ddpbatch v0.1.0"
	d.nonce = func() uint32 { return 0x5f2c91d0 }
	s := &State{
		Step: 7, World: 2,
		Tensors: []Tensor{
			Float32Tensor("w", []int{2}, []float32{1, -2}),
			{Name: "n", DType: "int64", Data: []byte{3, 0, 0, 0, 0, 0, 0, 0}},
		},
		Values: map[string]json.RawMessage{"sampler.epoch": json.RawMessage("1"), "lr": json.RawMessage("0.1")},
	}
	save(t, d, s)

	manifest := vfstest.Read(t, m, d.stepPath(7)+"/"+manifest.Name)
	if want := block(t, string(text), "json"); string(manifest) != want {
		t.Errorf("the manifest is\n%s\nthe document says\n%s", manifest, want)
	}
	shard := vfstest.Read(t, m, d.stepPath(7)+"/shard-00000-of-00001.1-bcb721c3-5f2c91d0.ddpt")
	var want strings.Builder
	for line := range strings.Lines(block(t, string(text), "hex")) {
		bytes, _, _ := strings.Cut(line, "#")
		want.WriteString(strings.Join(strings.Fields(bytes), ""))
	}
	if got := hex.EncodeToString(shard); got != want.String() {
		t.Errorf("the shard is\n%s\nthe document says\n%s", got, want.String())
	}
	for _, said := range []string{fmt.Sprintf("%d bytes:\n\n```json", len(manifest)), fmt.Sprintf("%d bytes:\n\n```hex", len(shard))} {
		if !strings.Contains(string(text), said) {
			t.Errorf("the document does not say %q", said)
		}
	}
}

// block returns the fenced block of a language. The text must have exactly one.
func block(t *testing.T, text, language string) string {
	t.Helper()
	parts := strings.Split(text, "```"+language+"\n")
	if len(parts) != 2 {
		t.Fatalf("%d blocks of %s", len(parts)-1, language)
	}
	body, _, ok := strings.Cut(parts[1], "```")
	if !ok {
		t.Fatalf("block of %s without an end", language)
	}
	return body
}

// TestVersion1StaysReadable reads a checkpoint that the first program with version 1 wrote. It must stay readable forever and is never
// written again. The expected contents below were written by hand.
func TestVersion1StaysReadable(t *testing.T) {
	t.Parallel()
	d, err := Open(filepath.Join("testdata", "v1"), Options{})
	must(t, err)
	s, info, err := d.Latest(t.Context())
	must(t, err)
	want := &State{
		Step: 7, World: 4,
		Tensors: []Tensor{
			{Name: "ramp", DType: "float32", Shape: []int{4}, Data: []byte{ // 0, 0.5, -1, 2
				0, 0, 0, 0, 0, 0, 0, 0x3f, 0, 0, 0x80, 0xbf, 0, 0, 0, 0x40,
			}},
			{Name: "zeros", DType: "uint8", Shape: []int{10, 100}, Data: make([]byte, 1000)}, // one zstd chunk
			{Name: "empty", DType: "int64", Shape: []int{0, 3}},
			{Name: "count", DType: "int64", Data: []byte{0x34, 0x12, 0, 0, 0, 0, 0, 0}},
		},
		Values: map[string]json.RawMessage{
			"sampler.epoch": json.RawMessage("3"),
			"random.state":  json.RawMessage("[1,18446744073709551615]"),
			"note":          json.RawMessage(`"ü <&>"`),
		},
	}
	wantState(t, s, want)
	if info.Attempt != 2 || info.World != 4 || info.Created.Unix() != 1767323045 || info.Bytes != 180+806 {
		t.Errorf("described as %+v", info)
	}
}

var updateV2 = flag.Bool("update-v2", false, "write testdata/v2 and v2-zstd, once for ever, where they are not there")

// lcg is a generator that gives the same numbers forever and in any language (Knuth, TAOCP 3.3.4, line 26).
type lcg uint64

func (g *lcg) next() uint32 {
	*g = *g*6364136223846793005 + 1442695040888963407
	return uint32(*g >> 32)
}

// bell returns the sum of four uniform numbers: roughly normal with mean 0 and a standard deviation of 0.02, and exact in float32.
func (g *lcg) bell() float32 {
	sum := int32(0)
	for range 4 {
		sum += int32(g.next()>>20) - 2048
	}
	return float32(sum) / (1 << 17)
}

// goldenState has a tensor for each way in which numbers are stored. Step 2 differs a little from step 1.
func goldenState(step int64) *State {
	g, update := lcg(1), lcg(step)
	bells := func(n int, put func(b []byte, x float32) []byte) (b []byte) {
		for i := range n {
			x := g.bell()
			if step > 1 && i%3 == 0 {
				x += update.bell() / 1024
			}
			b = put(b, x)
		}
		return b
	}
	single := func(b []byte, x float32) []byte { return binary.LittleEndian.AppendUint32(b, math.Float32bits(x)) }
	half := func(b []byte, x float32) []byte {
		return binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(x)>>16))
	}
	double := func(b []byte, x float32) []byte {
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(x)/3))
	}
	cut := func(b []byte, x float32) []byte { return single(b, math.Float32frombits(math.Float32bits(x)&^0xffff)) }
	sparse := make([]byte, 600_000) // three chunks
	for i := range 400 {
		sparse[int(g.next())%len(sparse)] = byte(i) | 1
	}
	noise := make([]byte, 3000)
	for i := range noise {
		noise[i] = byte(g.next())
	}
	tensor := func(name, dtype string, data []byte, shape ...int) Tensor {
		return Tensor{Name: name, DType: dtype, Shape: append([]int{}, shape...), Data: data}
	}
	return &State{
		Step: step, World: 2, Metrics: map[string]float64{"eval_loss": 0.25},
		Tensors: []Tensor{
			tensor("single", "float32", bells(9000, single), 90, 100),
			tensor("half", "bfloat16", bells(9000, half), 9000),
			tensor("double", "float64", bells(1000, double), 10, 10, 10),
			tensor("half in single", "float32", bells(6000, cut), 6000),
			tensor("sparse", "uint8", sparse, len(sparse)),
			tensor("noise", "int16", noise, len(noise)/2),
			tensor("step", "int64", binary.LittleEndian.AppendUint64(nil, uint64(step))),
			tensor("empty", "float16", []byte{}, 0, 7),
		},
	}
}

// TestVersion2StaysReadable reads checkpoints that the first program with version 2 wrote: a full one of two ranks and a delta of it. They
// must stay readable forever.
func TestVersion2StaysReadable(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "v2")
	full, delta := goldenState(1), goldenState(2)
	if toBeMade(path) {
		writeGolden(t, path, full, delta)
	}
	d, err := Open(path, Options{})
	must(t, err)
	for _, want := range []*State{full, delta} {
		got, err := d.Load(t.Context(), want.Step)
		must(t, err)
		wantState(t, got, want)
		if got.Metrics["eval_loss"] != 0.25 {
			t.Errorf("step %d: metrics %v", want.Step, got.Metrics)
		}
		must(t, VerifyStep(t.Context(), d, want.Step))
	}
	wantRecord(t, path, manifest.Record{Run: "golden", Attempt: 2, ResumedStep: -1, Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
}

// toBeMade reports whether the flag asks for golden folders and this one does not exist.
func toBeMade(path string) bool {
	_, err := os.Stat(path)
	return *updateV2 && errors.Is(err, fs.ErrNotExist)
}

func writeGolden(t *testing.T, path string, full, delta *State) {
	d, err := Open(path, Options{Run: "golden", Attempt: 2})
	must(t, err)
	fix(d)
	must(t, d.Begin(t.Context(), nil))
	base, err := split(t, d, full, 2, nil, Commit{})
	must(t, err)
	c, err := split(t, d, delta, 2, full, Commit{Base: base})
	must(t, err)
	must(t, c.Close())
	must(t, base.Close())
}

// zstdState has the dtypes that goldenState lacks, with numbers that zstd can compress. Step 2 differs a little from step 1.
func zstdState(step int64) *State {
	g, update := lcg(2), lcg(step)
	tensor := func(name, dtype string, data []byte, shape ...int) Tensor {
		if step == 2 { // change one byte of a hundred
			for i := range data {
				if i%100 == 7 && dtype != "bool" {
					data[i] ^= byte(update.next()) & 3
				}
			}
		}
		return Tensor{Name: name, DType: dtype, Shape: append([]int{}, shape...), Data: data}
	}
	few := func(n int, values ...byte) []byte { // n random bytes, each one of values
		b := make([]byte, n)
		for i := range b {
			b[i] = values[g.next()%uint32(len(values))]
		}
		return b
	}
	var pairs []byte // float32 whose low halves are 0
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

// TestVersion2WithZstdStaysReadable is TestVersion2StaysReadable for the codec "zstd". The first attempt saved step 3, and then a second
// attempt resumed from step 2, so step 3 is superseded.
func TestVersion2WithZstdStaysReadable(t *testing.T) {
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
		must(t, VerifyStep(t.Context(), d, want.Step))
	}
	// These are all methods of the format without planes. Each tensor has pieces of two ranks, and the pieces of noise are not compressed.
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

// methodsIn counts the chunks of a folder's shards by method. It reads the header and the table as docs/format.md describes them.
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

// wantRecord compares the record of an attempt with what it should say.
func wantRecord(t *testing.T, path string, want manifest.Record) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path, manifest.RecordName(want.Attempt, runCRC(want.Run))))
	must(t, err)
	got, err := manifest.ParseRecord(data)
	if err != nil || got != want {
		t.Errorf("the record of attempt %d is %+v, error %v; want %+v", want.Attempt, got, err, want)
	}
}

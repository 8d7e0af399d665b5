package checkpoint

import (
	"encoding/binary"
	"errors"
	"flag"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
)

var updateV2 = flag.Bool("update-v2", false, "write testdata/v2 and v2-zstd, once for ever, where they are not there")

// lcg gives the same numbers for ever (Knuth, TAOCP 3.3.4, line 26), in any language.
type lcg uint64

func (g *lcg) next() uint32 {
	*g = *g*6364136223846793005 + 1442695040888963407
	return uint32(*g >> 32)
}

// bell is a number around 0, roughly normal with a deviation of 0.02, exact in float32: a sum of four uniform ones.
func (g *lcg) bell() float32 {
	sum := int32(0)
	for range 4 {
		sum += int32(g.next()>>20) - 2048
	}
	return float32(sum) / (1 << 17)
}

// goldenState has a tensor for each way in which numbers are stored. Step 2 differs from step 1 by a little.
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

// TestGoldenVersion2 reads checkpoints that were written once by the first program with version 2, a full one by two ranks and a
// delta of it, which must stay readable for ever.
func TestGoldenVersion2(t *testing.T) {
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
		must(t, d.Verify(t.Context(), want.Step, true))
	}
	wantRecord(t, path, manifest.Record{Run: "golden", Attempt: 2, ResumedStep: -1, Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
}

// toBeMade tells whether a golden folder is asked for and not there.
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

package golden

import (
	"embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ddpbatch/checkpoint/npy"
)

// files hold what PyTorch computed for testdata/ddp.py.
//
//go:embed testdata/*.json
var files embed.FS

// Tolerance is the permitted difference from PyTorch's values: some units in the last place of float32 numbers around 1, because sums are
// computed in another order.
const Tolerance = 1e-6

// Training is a training run of Linear(4, 8), ReLU, Linear(8, 3) with mean squared error, SGD with learning rate 0.1 and momentum 0.9, in
// order over the first 40 rows. In each step all ranks together take 8 rows.
type Training struct {
	X, Y        [][]float32
	Init, Final []Param // in the order of Names
	Steps       []Step
}

// Param is a parameter.
type Param struct {
	Shape []int
	Data  []float32
}

// Step is one of the five steps.
type Step struct {
	Losses []float64   `json:"loss_per_rank"`
	Grads  [][]float32 // mean gradients in the order of Names; only of the first two steps
}

// Loss returns the mean over ranks.
func (s Step) Loss() float64 {
	sum := 0.0
	for _, loss := range s.Losses {
		sum += loss
	}
	return sum / float64(len(s.Losses))
}

// Names returns the names of the parameters in PyTorch's order.
func Names() []string { return []string{"0.weight", "0.bias", "2.weight", "2.bias"} }

// Read returns the training of a world of 1 or 2 ranks.
func Read(t testing.TB, world int) Training {
	t.Helper()
	text, err := files.ReadFile(fmt.Sprintf("testdata/ddp_w%d.json", world))
	if err != nil {
		t.Fatal(err)
	}
	var g Training
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.X) != 48 || len(g.Y) != 48 || len(g.Steps) != 5 || len(g.Init) != 4 || len(g.Final) != 4 || len(g.Steps[1].Grads) != 4 {
		t.Fatalf("%d rows, %d steps and %d parameters, want 48, 5 and 4", len(g.X), len(g.Steps), len(g.Init))
	}
	return g
}

// Write writes the inputs of the training run to dir: x.npy, y.npy and init.safetensors.
func (g Training) Write(t testing.TB, dir string) {
	t.Helper()
	for name, rows := range map[string][][]float32{"x.npy": g.X, "y.npy": g.Y} {
		err := npy.WriteFile(t.Context(), filepath.Join(dir, name), "float32", []int{len(rows), len(rows[0])}, func(w io.Writer) error {
			return binary.Write(w, binary.LittleEndian, slices.Concat(rows...))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	header, data := map[string]any{}, []byte(nil)
	for i, name := range Names() {
		first := len(data)
		data, _ = binary.Append(data, binary.LittleEndian, g.Init[i].Data) // never fails for float32
		header[name] = map[string]any{"dtype": "F32", "shape": g.Init[i].Shape, "data_offsets": []int{first, len(data)}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	if err := os.WriteFile(filepath.Join(dir, "init.safetensors"), slices.Concat(file, text, data), 0o600); err != nil {
		t.Fatal(err)
	}
}

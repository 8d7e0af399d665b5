package rehearse

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/checkpoint/inspect"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// safetensors writes a file with a tensor of two numbers (https://github.com/huggingface/safetensors, "Format").
func safetensors(t *testing.T, run *rundir.Dir, name, note string, values ...float32) {
	t.Helper()
	header := fmt.Sprintf(`{"__metadata__":{"note":%q},"w":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}`, note,
		len(values), 4*len(values))
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	for _, v := range values {
		file = binary.LittleEndian.AppendUint32(file, math.Float32bits(v))
	}
	if err := os.WriteFile(filepath.Join(run.CheckpointsPath(), name), file, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Files whose bytes differ are equal if their contents are equal within the tolerance. The difference of the contents is reported in any
// case.
func TestFilesAreComparedByWhatTheyHold(t *testing.T) {
	nan := float32(math.NaN())
	for name, tc := range map[string]struct {
		a, b    []float32
		within  inspect.Tolerance
		differ  []string
		what    string
		advised bool
	}{
		"written in another way": {[]float32{1, 2}, []float32{1, 2}, inspect.Tolerance{}, nil,
			"1 file equal, 1 of them not byte for byte but in all that they hold: only how", false},
		"rounded": {[]float32{1, 2}, []float32{1, 2 + 0x1p-22}, inspect.Tolerance{},
			[]string{"file checkpoints/m.st: tensor w (float32): 1 of 2 elements differ, by 2.384e-07 at most"},
			"1 of 1 file; largest difference: absolute 2.4e-07 in w, relative 1.2e-07 in w", true},
		"within atol": {[]float32{1, 2}, []float32{1, 2 + 0x1p-22}, inspect.Tolerance{Abs: 1e-6}, nil,
			"within --rtol 0 --atol 1e-06; largest difference: absolute 2.4e-07 in w", false},
		"within rtol": {[]float32{1, nan}, []float32{1.5, nan}, inspect.Tolerance{Rel: 0.5}, nil,
			"within --rtol 0.5 --atol 0", false},
		"beyond atol": {[]float32{1, 2}, []float32{1, 2 + 0x1p-22}, inspect.Tolerance{Abs: 1e-7},
			[]string{"file checkpoints/m.st: tensor w (float32): 1 of 2 elements differ, by 2.384e-07 at most"},
			"largest difference", true},
		"not rounded": {[]float32{1, 2}, []float32{1, 3}, inspect.Tolerance{},
			[]string{"file checkpoints/m.st: tensor w (float32): 1 of 2 elements differ, by 1 at most"},
			"largest difference: absolute 1 in w", false},
		"NaN on one side": {[]float32{1, 2}, []float32{1, nan}, inspect.Tolerance{Abs: 10},
			[]string{"file checkpoints/m.st: tensor w (float32, 1 not finite): 1 of 2 elements differ, by - at most"}, "1 of 1 file",
			false},
		"another shape": {[]float32{1, 2}, []float32{1}, inspect.Tolerance{Abs: 10},
			[]string{"file checkpoints/m.st: tensor w ([2] and [1]): 0 of 0 elements differ, by - at most"}, "1 of 1 file", false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := fakeslurm.Run(t, ""), fakeslurm.Run(t, "")
			safetensors(t, a, "m.st", "a", tc.a...)
			safetensors(t, b, "m.st", "b", tc.b...)
			f, err := (&Rehearsal{Within: tc.within}).compareFiles(t.Context(), a, b)
			if err != nil || !slices.Equal(f.differ, tc.differ) || !strings.Contains(f.what, tc.what) {
				t.Errorf("%q, %q, %v", f.what, f.differ, err)
			}
			if advised := strings.HasSuffix(f.advice, "--atol 1e-06 allows them."); advised != tc.advised || !advised && f.advice != "" {
				t.Errorf("advised %q", f.advice)
			}
		})
	}
}

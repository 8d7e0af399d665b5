package inspect

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Compare refuses a file that was changed while it was read, since it is unknown which state was compared. An unchanged file equals itself.
func TestDiffRefusesAFileThatChanges(t *testing.T) {
	t.Parallel()
	const header = `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`
	path := filepath.Join(t.TempDir(), "a.safetensors")
	content := append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), "1234"...)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	var both [2]*Contents
	for i := range both {
		s, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		both[i] = s
	}
	if d, err := Compare(t.Context(), both[0], both[1], Tolerance{}); err != nil || !d.Same {
		t.Fatalf("%+v, %v", d, err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	_, err := Compare(t.Context(), both[0], both[1], Tolerance{})
	if err == nil || !strings.Contains(err.Error(), "it was changed while it was read") {
		t.Errorf("ended with %v", err)
	}
}

// A checkpoint is compared with a file of weights as its export would be, whichever program wrote the file, also from a
// DistributedDataParallel.
func TestFilesOfWeightsAreComparedWithTheModel(t *testing.T) {
	t.Parallel()
	contents := func(ours bool, values map[string]json.RawMessage, names ...string) *Contents {
		s := &Contents{ours: ours, values: values, check: func() error { return nil }}
		for _, name := range names {
			s.tensors = append(s.tensors, tensor{name, "uint8", []int{1}, 1, func(_ context.Context, _ int64, dst []byte) error {
				dst[0] = name[len(name)-1]
				return nil
			}})
		}
		return s
	}
	values := map[string]json.RawMessage{"lr": json.RawMessage("1")}
	for name, test := range map[string]struct {
		file *Contents
		same bool
	}{
		"safetensors":             {contents(false, nil, "a", "b"), true},
		"torch.save":              {contents(false, map[string]json.RawMessage{}, "b", "a"), true},
		"of a DDP":                {contents(false, map[string]json.RawMessage{}, "module.a", "module.b"), true},
		"a part of a DDP's names": {contents(false, map[string]json.RawMessage{}, "module.a", "b"), false},
		"of a whole state":        {contents(false, values, "model.a", "model.b", "optimizer.a"), true},
		"other names":             {contents(false, map[string]json.RawMessage{}, "a", "c"), false},
		"a model's own prefix":    {contents(false, nil, "model.a", "model.b"), true},
		"a model's own module":    {contents(false, nil, "module.a", "module.b"), true},
	} {
		for _, swap := range []bool{false, true} {
			ours := contents(true, values, "model.a", "model.b", "optimizer.a")
			if own, isOwn := strings.CutPrefix(name, "a model's own "); isOwn { // as after an import of the file
				own = map[string]string{"prefix": "model.", "module": "module."}[own]
				ours = contents(true, values, "model."+own+"a", "model."+own+"b", "optimizer.a")
			}
			file := contents(false, test.file.values)
			file.tensors = slices.Clone(test.file.tensors)
			a, b := ours, file
			if swap {
				a, b = b, a
			}
			if d, err := Compare(t.Context(), a, b, Tolerance{}); err != nil || d.Same != test.same {
				t.Errorf("%s: %+v, %v; want the same: %v", name, d, err, test.same)
			}
		}
	}
}

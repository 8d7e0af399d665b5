package torchfile

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/testkit/torch"
)

// saved is a program that saves what a training program saves. It prints what a reader must find, according to PyTorch itself: the type,
// shape and bytes of each tensor, in order.
const saved = `
import json, sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
optimizer = torch.optim.Adam(model.parameters())
model(torch.randn(4, 2)).sum().backward()
optimizer.step()
state = {
    'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'step': 3, 'negative': -5, 'long': 2**70, 'lr': 0.1, 'name': 'a\nb',
    'half': torch.ones(2).half(), 'bfloat16': torch.ones(2).bfloat16(), 'double': torch.ones(2).double(), 'bytes': torch.get_rng_state(),
    'turned': torch.arange(6.).view(2, 3).t(), 'thinned': torch.arange(10)[1::3], 'wide': torch.ones(1).expand(5), 'none': torch.empty(0, 3),
    'parameter': torch.nn.Parameter(torch.ones(1)), 'complex': torch.ones(2, dtype=torch.complex64), 'scalar': torch.tensor(7),
    'device': torch.device('cpu'), 'dtype': torch.float16, 'list': [True, None, (1, 2), {}], 5: 'a number',
}
torch.save(state, sys.argv[1], pickle_protocol=int(sys.argv[2]))
found = {}
def walk(path, v):
    if isinstance(v, torch.Tensor):
        v = v.detach().clone(memory_format=torch.contiguous_format)
        raw = bytes(v.flatten().view(torch.uint8).tolist()) if v.numel() and v.dim() else v.numpy().tobytes()
        found[path] = [str(v.dtype).split('.')[1], list(v.shape), raw.hex()]
    elif isinstance(v, dict):
        for k, x in v.items(): walk(f'{path}.{k}' if path else str(k), x)
    elif isinstance(v, (list, tuple)):
        for i, x in enumerate(v): walk(f'{path}.{i}', x)
walk('', state)
print(json.dumps(found))
`

func TestReadsWhatTorchSaves(t *testing.T) {
	for _, protocol := range []string{"2", "4"} {
		path := filepath.Join(t.TempDir(), "state.pt")
		var want map[string][3]any
		if err := json.Unmarshal([]byte(torch.Run(t, saved, path, protocol)), &want); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, x := range f.Tensors() {
			data := make([]byte, x.Bytes)
			if err := f.Read(x, 0, data); err != nil {
				t.Errorf("%s: %v", x.Name, err)
			}
			if x.value != nil {
				continue
			}
			w, found := want[x.Name]
			delete(want, x.Name)
			shape, _ := json.Marshal(x.Shape())
			shown, _ := json.Marshal(w[1])
			if !found || x.DType != w[0] || !bytes.Equal(shape, shown) || hex(data) != w[2] {
				t.Errorf("protocol %s: %s is %s %s %x; PyTorch has %v", protocol, x.Name, x.DType, shape, data, w)
			}
		}
		if len(want) > 0 {
			t.Errorf("protocol %s: not found: %v", protocol, want)
		}
		for path, value := range map[string]string{
			"step": "3", "negative": "-5", "long": "1180591620717411303424", "name": `"a\nb"`, "list.0": "true",
			"list.1": "null", "list.2.1": "2",
			"list.3": "{}", "5": `"a number"`, "device": `"torch.device"`, "device.args.0": `"cpu"`, "dtype": `"torch.float16"`,
			"optimizer.param_groups.0.amsgrad": "false", "optimizer.param_groups.0.params.1": "1",
		} {
			if got := string(f.Values()[path]); got != value {
				t.Errorf("protocol %s: %s is %s, want %s", protocol, path, got, value)
			}
		}
		if err := f.Unchanged(); err != nil {
			t.Error(err)
		}
	}
}

func hex(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

// archive writes a file of torch.save with these members.
func archive(t testing.TB, members map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.pt")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(out)
	for name, data := range members {
		m, err := w.CreateHeader(&zip.FileHeader{Name: "x/" + name, Method: zip.Store})
		if err == nil {
			_, err = m.Write([]byte(data))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// pickled returns a float32 tensor in a pickle. It gets the key of the tensor's storage, and offset, size and stride as opcodes.
func pickled(key, rest string) string {
	return "\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX" +
		string([]byte{byte(len(key)), 0, 0, 0}) + key + "X\x03\x00\x00\x00cpuK\x02tQ" + rest + "\x89}tR."
}

func TestBadFiles(t *testing.T) {
	const two = "K\x00K\x02\x85K\x01\x85" // offset 0, size (2,), stride (1,)
	good := map[string]string{"data.pkl": pickled("0", two), "data/0": "\x00\x00\x80\x3f\x00\x00\x00\x40"}
	f, err := Open(archive(t, good))
	if err != nil || len(f.Tensors()) != 1 || f.Tensors()[0].Bytes != 8 {
		t.Fatalf("%v", err)
	}
	f.Close()
	deep := "\x80\x02" + strings.Repeat("]", 1000) + strings.Repeat("a", 999) + "."
	doubled := "\x80\x02]q\x00" + strings.Repeat("0](h\x00h\x00eq\x00", 90) + "."
	for name, tc := range map[string]struct {
		members map[string]string
		says    string
	}{
		"no pickle":          {map[string]string{"data": "x"}, "no data.pkl"},
		"empty":              {map[string]string{"data.pkl": ""}, "the pickle is incomplete"},
		"a length that lies": {map[string]string{"data.pkl": "\x80\x02X\xff\xff\xff\x7fabc."}, "the pickle is incomplete"},
		"an unknown opcode":  {map[string]string{"data.pkl": "\x80\x02\xff."}, "opcode 0xff"},
		"an empty stack":     {map[string]string{"data.pkl": "\x80\x02."}, "from an empty stack"},
		"no mark":            {map[string]string{"data.pkl": "\x80\x02Nt."}, "lacks a mark"},
		"a list in itself":   {map[string]string{"data.pkl": "\x80\x02]q\x00h\x00a."}, "too deeply"},
		"deep":               {map[string]string{"data.pkl": deep}, "too deeply"},
		"a list of lists":    {map[string]string{"data.pkl": doubled}, "more than"},
		"no member":          {map[string]string{"data.pkl": pickled("1", two)}, "has no data"},
		"a short member":     {map[string]string{"data.pkl": pickled("0", two), "data/0": "1234567"}, "outside of its storage"},
		"beyond its storage": {map[string]string{"data.pkl": pickled("0", "K\x01K\x02\x85K\x01\x85"), "data/0": "12345678"},
			"outside of its storage"},
		"a stride beyond it": {map[string]string{"data.pkl": pickled("0", "K\x00K\x02\x85K\x02\x85"), "data/0": "12345678"},
			"outside of its storage"},
		"more than can be": {map[string]string{"data.pkl": pickled("0", "K\x00J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86K\x01K\x01\x86"),
			"data/0": "12345678"}, "it is too large"},
		"a negative dimension": {map[string]string{"data.pkl": pickled("0", "K\x00J\xff\xff\xff\xff\x85K\x01\x85"), "data/0": "12345678"},
			"shape is invalid"},
		"another byte order": {map[string]string{"data.pkl": pickled("0", two), "data/0": "12345678", "byteorder": "big"}, "byte order"},
	} {
		f, err := Open(archive(t, tc.members))
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
		if err == nil {
			f.Close()
		}
	}
	path := filepath.Join(t.TempDir(), "x.pt")
	if err := os.WriteFile(path, []byte("\x80\x02}q\x00."), 0o600); err != nil { // as written before PyTorch 1.6
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrNotTorch) {
		t.Errorf("an old file: %v", err)
	}
}

func FuzzPickle(f *testing.F) {
	f.Add([]byte(pickled("0", "K\x00K\x02\x85K\x01\x85")))
	f.Add([]byte("\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94K\x01\x8c\x01b\x94G?\xb9\x99\x99\x99\x99\x99\x9au."))
	f.Add([]byte("\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01X\x01\x00\x00\x00aN\x88\x89\x8a\x01\xffs}b."))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := Open(archive(t, map[string]string{"data.pkl": string(data), "data/0": "12345678"}))
		if err != nil {
			return
		}
		defer x.Close()
		for _, tensor := range x.Tensors() {
			if tensor.Bytes > 1<<16 {
				continue
			}
			if err := x.Read(tensor, 0, make([]byte, tensor.Bytes)); err != nil {
				t.Errorf("%s: %v", tensor.Name, err)
			}
		}
	})
}

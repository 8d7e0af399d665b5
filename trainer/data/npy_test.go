package data

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/testkit/torch"
)

// npyFile returns a .npy file of format version.0 with the given header and data.
func npyFile(version byte, header string, data []byte) []byte {
	b := []byte{0x93, 'N', 'U', 'M', 'P', 'Y', version, 0}
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	}
	return append(append(b, header...), data...)
}

func npyDictOf(descr, shape string) string {
	return fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape)
}

func loadPair(t *testing.T, inputs, targets []byte) (Dataset, error) {
	t.Helper()
	return LoadNPY(NPYConfig{writeFile(t, "x.npy", inputs), writeFile(t, "y.npy", targets)})
}

func TestLoadNPY(t *testing.T) {
	x := npyFile(1, npyDictOf("<f4", "(2, 3)"), bytesOf([]float32{1, 2, 3, 4, 5, 6}))
	set, err := loadPair(t, x, npyFile(2, npyDictOf("|u1", "(2,)"), []byte{7, 0}))
	if err != nil {
		t.Fatal(err)
	}
	got := all(set)
	if set.Spec() != (Spec{Inputs: 3, Classes: 8, Labels: 1}) || !slices.Equal(got.X, []float32{1, 2, 3, 4, 5, 6}) ||
		!slices.Equal(got.Labels, []int{7, 0}) {
		t.Errorf("%+v with %v, %v", set.Spec(), got.X, got.Labels)
	}

	// numpy no longer writes headers of this length, after which the floats are not aligned.
	odd := npyFile(3, `{"shape":(2,1) ,'descr':"<f4",'fortran_order': False}`, bytesOf([]float32{8, 9}))
	if set, err = loadPair(t, odd, odd); err != nil {
		t.Fatal(err)
	}
	if got := all(set); set.Spec() != (Spec{Inputs: 1, Outputs: 1}) || !slices.Equal(got.X, []float32{8, 9}) ||
		!slices.Equal(got.Y, got.X) {
		t.Errorf("%+v with %v, %v", set.Spec(), got.X, got.Y)
	}
}

// numpyArrays is a Python script that writes arrays of every type and shape with numpy.save, and prints each type's values as float32.
const numpyArrays = `
import numpy, json, sys
values = {}
for name in ["float32", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]:
    a = numpy.array([0, 1, 100, 3] * 6).astype(name)
    if name != "bool" and name[0] != "f":
        a[5] = numpy.iinfo(name).max
        a[6] = numpy.iinfo(name).min
    if name[0] == "f":
        a[5] = 0.1
        a[6] = -1e-40
    values[name] = [float(v) for v in a.astype("float32")]
    numpy.save(sys.argv[1] + "/" + name + ".npy", a.reshape(2, 3, 2, 2))
for rank, shape in enumerate([(24,), (4, 6), (6, 2, 2), (2, 3, 2, 2)]):
    numpy.save(sys.argv[1] + "/rank%d.npy" % (rank + 1), numpy.arange(24, dtype="f4").reshape(shape))
numpy.save(sys.argv[1] + "/two.npy", numpy.array([[0.5], [2]]))
for n in [24, 4, 6, 2]:
    numpy.save(sys.argv[1] + "/labels%d.npy" % n, numpy.arange(n))
print(json.dumps(values))
`

func TestLoadNPYReadsWhatNumpyWrites(t *testing.T) {
	dir := t.TempDir()
	var values map[string][]float64
	if err := json.Unmarshal([]byte(torch.Run(t, numpyArrays, dir)), &values); err != nil {
		t.Fatal(err)
	}
	for name, want := range values {
		set, err := LoadNPY(NPYConfig{Inputs: filepath.Join(dir, name+".npy"), Targets: filepath.Join(dir, "two.npy")})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := all(set)
		for i, v := range want {
			if got.X[i] != float32(v) {
				t.Errorf("%s: element %d is %v, numpy makes it %v", name, i, got.X[i], v)
			}
		}
		if !slices.Equal(got.Y, []float32{0.5, 2}) {
			t.Errorf("outputs %v, want 0.5 and 2", got.Y)
		}
	}
	for rank, want := range map[int]Spec{
		1: {Inputs: 1, Classes: 24, Labels: 1},
		2: {Inputs: 6, Classes: 4, Labels: 1},
		3: {Inputs: 4, Classes: 6, Labels: 1, Image: Image{1, 2, 2}},
		4: {Inputs: 12, Classes: 2, Labels: 1, Image: Image{3, 2, 2}},
	} {
		set, err := LoadNPY(NPYConfig{
			Inputs:  filepath.Join(dir, fmt.Sprintf("rank%d.npy", rank)),
			Targets: filepath.Join(dir, fmt.Sprintf("labels%d.npy", 24/want.Inputs)),
		})
		if err != nil || set.Spec() != want {
			t.Errorf("%d dimensions: %+v, error %v; want %+v", rank, set, err, want)
		}
	}
}

func TestLoadNPYRefusesBadFiles(t *testing.T) {
	floats := func(shape string, v ...float32) []byte { return npyFile(1, npyDictOf("<f4", shape), bytesOf(v)) }
	header := func(h string) []byte { return npyFile(1, h, make([]byte, 8)) }
	labels := npyFile(1, npyDictOf("<i4", "(2,)"), bytesOf([]int32{0, 1}))
	good := floats("(2,)", 1, 2)
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		inputs, targets []byte
		want            string
	}{
		"empty":             {nil, labels, "x.npy: not a .npy file"},
		"text":              {[]byte("1,2,3,4,5,6,7,8,9"), labels, "x.npy: not a .npy file"},
		"magic alone":       {good[:8], labels, "cut short in the header"},
		"header cut":        {good[:40], labels, "cut short in the header"},
		"version 9":         {npyFile(9, npyDictOf("<f4", "(2,)"), nil), labels, "version 9.0"},
		"a header of 4 GiB": {slices.Replace(npyFile(2, "", nil), 8, 12, 255, 255, 255, 255), labels, "at most 10000"},
		"no dictionary":     {header("[]"), labels, "no {"},
		"no shape":          {header("{'descr': '<f4', 'fortran_order': False}"), labels, "want descr, fortran_order and shape"},
		"twice":             {header("{'descr': '<f4', 'descr': '<f4'}"), labels, "each once"},
		"another key":       {header("{'descr': '<f4', 'x': 1}"), labels, `"x" has a value that is not understood`},
		"fields":            {header("{'descr': [('a', '<f4')]}"), labels, "several fields"},
		"an endless tuple":  {header(npyDictOf("<f4", "("+strings.Repeat("1,", 40)+")")), labels, `"shape" has`},
		"a negative size":   {header(npyDictOf("<f4", "(-2,)")), labels, `"shape" has`},
		"an enormous size":  {header(npyDictOf("<f4", "(99999999999999999999,)")), labels, `"shape" has`},
		"an overflow":       {header(npyDictOf("<f4", "(4611686018427387904, 4)")), labels, "impossible"},
		"zero times much":   {header(npyDictOf("<f4", "(0, 9223372036854775807, 9223372036854775807)")), labels, "no rows"},
		"no dimension":      {header(npyDictOf("<f4", "()")), labels, "no rows"},
		"5 dimensions":      {floats("(2, 1, 1, 1, 1)", 1, 2), labels, "x.npy: inputs of the shape"},
		"big-endian":        {header(npyDictOf(">f4", "(2,)")), labels, `big-endian; save a.astype("<f4")`},
		"complex":           {header(npyDictOf("<c8", "(1,)")), labels, "not supported"},
		"objects":           {header(npyDictOf("|O", "(1,)")), labels, "not supported"},
		"by columns":        {header("{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}"), labels, "ascontiguousarray"},
		"data cut":          {good[:len(good)-1], labels, "7 bytes of data"},
		"too long":          {append(slices.Clone(good), 0), labels, "9 bytes of data"},
		"NaN":               {floats("(2, 2)", 1, 2, 3, nan), labels, "x.npy: NaN in row 1, column 1"},
		"too large": {
			npyFile(1, npyDictOf("<f8", "(2,)"), binary.LittleEndian.AppendUint64(make([]byte, 8), math.Float64bits(1e300))),
			labels, "1e+300 in row 1"},
		"infinite outputs":  {good, floats("(2,)", 1, float32(math.Inf(-1))), "y.npy: -Inf in row 1"},
		"outputs of images": {good, floats("(2, 1, 1)", 1, 1), "y.npy: outputs of the shape"},
		"no boolean":        {good, npyFile(1, npyDictOf("|b1", "(2,)"), []byte{1, 2}), "y.npy: element 1 is 2, but a boolean is 0 or 1"},
		"another count":     {floats("(3,)", 1, 2, 3), labels, "do not belong together"},
		"a label too large": {good, npyFile(1, npyDictOf("<i4", "(2,)"), bytesOf([]int32{0, maxClasses})),
			"y.npy: label 1048576 of row 1 is out of range, want 0 to 1048575"},
		"a negative label": {good, npyFile(1, npyDictOf("|i1", "(2,)"), []byte{0, 255}), "y.npy: label -1 of row 1"},
		"an enormous label": {good, npyFile(1, npyDictOf("<u8", "(2,)"), bytesOf([]int32{0, 0, -1, -1})),
			"label 18446744073709551615 of row 1"},
		"several labels": {good, npyFile(1, npyDictOf("|u1", "(2, 2)"), []byte{1, 2, 3, 4}), "y.npy: classes of the shape [2 2]"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := loadPair(t, c.inputs, c.targets); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			_, err := CheckNPY(NPYConfig{writeFile(t, "x.npy", c.inputs), writeFile(t, "y.npy", c.targets)})
			value := strings.Contains(c.want, "in row") || strings.Contains(c.want, "of row")
			if value != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("CheckNPY: %v, want an error with %q, unless it is about a value", err, c.want)
			}
		})
	}
}

// A row must be small enough that a batch can hold many, so a row of too many values is refused.
func TestNPYRefusesWideRows(t *testing.T) {
	for _, descr := range []string{"|u1", "<f4"} {
		kind, err := npyKindOf(descr)
		if err != nil {
			t.Fatal(err)
		}
		a := &npy{kind: kind, shape: []int{1, 2, maxInputs/2 + 1}, data: make([]byte, kind.size*(maxInputs+2))}
		const want = "rows of the shape [2 8388609] have more than 16777216 values"
		if err := a.checkInputs(); err == nil || err.Error() != want {
			t.Errorf("inputs: error %v, want %s", err, want)
		}
		a.shape = []int{1, maxInputs + 2}
		if err := a.checkOutputs(); err == nil || !strings.Contains(err.Error(), "have more than") {
			t.Errorf("outputs: error %v", err)
		}
	}
}

// One large label in a small file must not lead to a model of gigabytes, so it is refused. As many classes as rows are always allowed.
func TestFileDoesNotChooseAHugeModel(t *testing.T) {
	load := func(rows int, largest int32) map[string]error {
		labels := make([]int32, rows)
		labels[rows-1] = largest
		lines := strings.Repeat("1,0\n", rows-1) + fmt.Sprintf("1,%d\n", largest)
		_, csv := LoadCSV(t.Context(), nil, CSVConfig{Path: writeFile(t, "y.csv", []byte(lines)), Header: "no"})
		shape := fmt.Sprintf("(%d,)", rows)
		x := npyFile(1, npyDictOf("|u1", shape), make([]byte, rows))
		_, npy := loadPair(t, x, npyFile(1, npyDictOf("<i4", shape), bytesOf(labels)))
		return map[string]error{"csv": csv, "npy": npy}
	}
	for name, c := range map[string]struct {
		rows    int
		largest int32
		want    string // empty: it is read
	}{
		"a million of 4 rows": {4, 1048575, "the largest label of 4 rows is 1048575"},
		"65537 of 4 rows":     {4, 65536, "the largest label of 4 rows is 65536"},
		"65536 of 4 rows":     {4, 65535, ""},
		"as many as rows":     {70000, 69999, ""},
		"one more than rows":  {70000, 70000, "the largest label of 70000 rows is 70000"},
	} {
		for kind, err := range load(c.rows, c.largest) {
			if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && !strings.Contains(got, "y."+kind+": "+c.want) {
				t.Errorf("%s, %s: error %v, want %q", name, kind, err, c.want)
			}
		}
	}
}

func FuzzNPY(f *testing.F) {
	f.Add(npyFile(1, npyDictOf("<f4", "(2, 3)"), make([]byte, 24)))
	f.Add(npyFile(2, npyDictOf("|b1", "(2,)"), make([]byte, 2)))
	f.Add(npyFile(3, `{"shape":() ,'descr':"<i8",'fortran_order': False}`, nil))
	f.Fuzz(func(t *testing.T, file []byte) {
		a, err := parseNPY(file)
		if err != nil {
			return
		}
		n := 1
		for _, d := range a.shape {
			n *= d
		}
		if n == 0 || n*a.kind.size != len(a.data) || a.rows()*a.columns() != n {
			t.Fatalf("shape %v of %s with %d bytes", a.shape, a.kind.name, len(a.data))
		}
		set := &table{rows: a.rows()}
		if set.setInputs(a) == nil {
			all(set)
		}
		if a.kind.float || set.setLabels(a) != nil {
			return
		}
		for i, label := range set.labels {
			if label < 0 || int(label) >= set.spec.Classes {
				t.Errorf("label %d of row %d, of %d classes", label, i, set.spec.Classes)
			}
		}
	})
}

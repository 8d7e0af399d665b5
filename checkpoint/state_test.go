package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"

	"pgregory.net/rapid"
)

// TestSavedStateLoadsBack saves random states and loads them again, in memory and on disk, with both codecs.
func TestSavedStateLoadsBack(t *testing.T) { // without the race detector
	t.Parallel()
	ctx := context.Background()
	systems := map[string]func() (vfs.FS, string){
		"mem": func() (vfs.FS, string) { return vfstest.New(t), testPath },
		"os":  func() (vfs.FS, string) { return nil, filepath.Join(t.TempDir(), "deep", "checkpoints") },
	}
	for name, system := range systems {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			property := func(r *rapid.T) {
				fsys, path := system()
				codec := rapid.SampledFrom([]string{"", "auto", "zstd", "none"}).Draw(r, "codec")
				d, err := Open(path, Options{FS: fsys, Codec: codec, Run: "r", Attempt: 1})
				if err != nil {
					r.Fatal(err)
				}
				want := drawState(r)
				info, err := d.Save(ctx, want)
				if err != nil {
					r.Fatal(err)
				}
				if err := VerifyStep(ctx, d, want.Step); err != nil {
					r.Fatal(err)
				}
				got, latest, err := d.Latest(ctx)
				if err != nil {
					r.Fatal(err)
				}
				if !reflect.DeepEqual(latest, info) {
					r.Fatalf("Latest describes %+v, Save %+v", latest, info)
				}
				if err := sameState(got, want); err != nil {
					r.Fatal(err)
				}
			}
			thin.Property(t, func() { rapid.Check(t, property) }, rapid.MakeFuzz(property))
		})
	}
}

func drawState(r *rapid.T) *State {
	s := &State{
		Step:   rapid.Int64Range(0, maxStep).Draw(r, "step"),
		World:  rapid.IntRange(1, manifest.MaxWorld).Draw(r, "world"),
		Values: map[string]json.RawMessage{},
	}
	dtypes := []string{"bool", "int8", "uint8", "int16", "uint16", "float16", "bfloat16", "int32", "uint32", "float32",
		"int64", "uint64", "float64"}
	for i := range rapid.IntRange(0, 5).Draw(r, "tensors") {
		t := Tensor{
			Name:  fmt.Sprintf("%s.%d", rapid.StringMatching(`[A-Za-zäß语"\\ /]{0,12}`).Draw(r, "name"), i),
			DType: rapid.SampledFrom(dtypes).Draw(r, "dtype"),
			Shape: rapid.SliceOfN(rapid.IntRange(0, 12), 0, 4).Draw(r, "shape"),
		}
		if rapid.IntRange(0, 9).Draw(r, "large") == 0 { // several chunks, of which the last may be short
			t.Shape = []int{rapid.IntRange(chunk.MaxBytes-1, 3*chunk.MaxBytes+1).Draw(r, "length")}
		}
		size, err := manifest.ByteSize(t.DType, t.Shape)
		if err != nil {
			r.Fatal(err)
		}
		t.Data = make([]byte, size)
		if rapid.Bool().Draw(r, "noise") {
			fillNoise(t.Data, rapid.Uint64().Draw(r, "seed"))
		}
		s.Tensors = append(s.Tensors, t)
	}
	for i := range rapid.IntRange(0, 4).Draw(r, "values") {
		key := fmt.Sprintf("%s_%d", rapid.StringMatching(`[a-z0-9_.]{0,60}`).Draw(r, "key"), i)
		s.Values[key] = json.RawMessage(rapid.SampledFrom([]string{
			"0", "-1.5e300", "18446744073709551615", `"<&>\u2028 ü"`, "null", "[]", `{"A": [1, {"a": true}], "a": ""}`, ` [ 1 , 2 ] `,
		}).Draw(r, "value"))
	}
	return s
}

func fillNoise(b []byte, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}

// TestShardBytesAreDeterministic saves one state in several folders, each time after a different number of other saves by the same Dir. The
// bytes of the shard are always the same.
func TestShardBytesAreDeterministic(t *testing.T) {
	t.Parallel()
	s := testState(7, 0)
	noise := make([]byte, 3*chunk.MaxBytes+5)
	fillNoise(noise[:chunk.MaxBytes], 1)
	s.Tensors = append(s.Tensors, Tensor{Name: "mixed", DType: "uint8", Shape: []int{len(noise)}, Data: noise})
	var want []byte
	for warmUp := range int64(3) {
		m := vfstest.New(t)
		d := openDir(t, Options{FS: m})
		for step := range warmUp {
			save(t, d, testState(step, 1))
		}
		save(t, d, s)
		got := vfstest.Read(t, m, find(t, m, d.stepPath(7), "shard-"))
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("after %d other saves the shard's bytes differ", warmUp)
		}
	}
	if max := chunk.MaxBytes + 4096; len(want) > max {
		t.Errorf("the shard takes %d bytes: the zeros in it did not shrink", len(want))
	}
}

// Noise takes its own size on disk and the frame around the chunks, but not more.
func TestNoiseCostsOnlyTheFrame(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 16*chunk.MaxBytes)
	fillNoise(noise, 2)
	d := openDir(t, Options{FS: vfstest.New(t)})
	info := save(t, d, &State{Step: 1, World: 1, Tensors: []Tensor{{Name: "n", DType: "uint8", Shape: []int{len(noise)}, Data: noise}}})
	if over := info.Bytes - int64(len(noise)); over*1000 > int64(len(noise)) {
		t.Errorf("%d bytes of noise take %d more: above 0.1 %%", len(noise), over)
	}
}

// TestFloat32Tensor checks the bytes against IEEE 754: 1 is 3f800000, -2 is c0000000.
func TestFloat32Tensor(t *testing.T) {
	t.Parallel()
	v := []float32{1, -2, float32(math.Copysign(0, -1)), float32(math.Inf(1))}
	tensor := Float32Tensor("w", []int{2, 2}, v)
	want := []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0, 0x80, 0, 0, 0x80, 0x7f}
	if !bytes.Equal(tensor.Data, want) {
		t.Errorf("bytes % x, want % x", tensor.Data, want)
	}
	got := make([]float32, 4)
	must(t, tensor.Float32s(got))
	for i := range v {
		if math.Float32bits(got[i]) != math.Float32bits(v[i]) {
			t.Errorf("element %d is %v, want %v", i, got[i], v[i])
		}
	}
	if err := tensor.Float32s(got[:3]); err == nil {
		t.Error("a shorter slice: no error")
	}
	if err := (Tensor{Name: "n", DType: "int32", Shape: []int{4}, Data: want}).Float32s(got); err == nil {
		t.Error("another dtype: no error")
	}
	if scalar := Float32Tensor("s", nil, []float32{1}); len(scalar.Data) != 4 {
		t.Errorf("a scalar has %d bytes", len(scalar.Data))
	}
	defer func() {
		if recover() == nil {
			t.Error("a shape that does not fit: no panic")
		}
	}()
	Float32Tensor("w", []int{3}, v)
}

// TestConvertToKnowsEveryFloat16 compares every float16 with the definition of its value.
func TestConvertToKnowsEveryFloat16(t *testing.T) {
	data := make([]byte, 0, 2<<16)
	for h := range 1 << 16 {
		data = binary.LittleEndian.AppendUint16(data, uint16(h))
	}
	got := make([]float32, 1<<16)
	if err := (Tensor{Name: "h", DType: "float16", Shape: []int{1 << 16}, Data: data}).ConvertTo(got); err != nil {
		t.Fatal(err)
	}
	for h, v := range got {
		exponent, fraction := h>>10&31, float64(h&1023)
		want := math.Ldexp(1+fraction/1024, exponent-15)
		switch {
		case exponent == 0:
			want = math.Ldexp(fraction, -24)
		case exponent == 31 && fraction == 0:
			want = math.Inf(1)
		case exponent == 31:
			want = math.NaN()
		}
		if h>>15 == 1 {
			want = -want
		}
		if float64(v) != want && !(math.IsNaN(want) && v != v) || math.Signbit(float64(v)) != (h>>15 == 1) {
			t.Fatalf("%#04x is %v, want %v", h, v, want)
		}
	}
}

func TestConvertTo(t *testing.T) {
	one := make([]float32, 1)
	double := binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.Pi))
	if err := (Tensor{Name: "d", DType: "float64", Data: double}).ConvertTo(one); err != nil || one[0] != math.Pi {
		t.Errorf("float64 gives %v, error %v", one[0], err)
	}
	brain := binary.LittleEndian.AppendUint16(nil, 0xc000)
	if err := (Tensor{Name: "b", DType: "bfloat16", Data: brain}).ConvertTo(one); err != nil || one[0] != -2 {
		t.Errorf("bfloat16 gives %v, error %v", one[0], err)
	}
	if err := (Tensor{Name: "i", DType: "int32", Data: make([]byte, 4)}).ConvertTo(one); err == nil {
		t.Error("int32 is taken for floating-point numbers")
	}
	if err := (Tensor{Name: "s", DType: "float16", Data: make([]byte, 1)}).ConvertTo(one); err == nil {
		t.Error("half a number is taken")
	}
}

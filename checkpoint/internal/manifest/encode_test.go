package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawManifest draws any manifest that can be written: its tensors are cut at random elements, and the pieces are in random shards and in a
// random order there.
func drawManifest(r *rapid.T) *Manifest {
	n := rapid.IntRange(1, 5).Draw(r, "shards")
	m := &Manifest{
		Version: Version,
		Run:     rapid.StringN(0, 20, MaxName).Draw(r, "run"),
		Attempt: rapid.IntRange(0, MaxAttempt).Draw(r, "attempt"),
		Step:    rapid.Int64Range(0, MaxStep).Draw(r, "step"),
		World:   rapid.IntRange(1, MaxWorld).Draw(r, "world"),
		Created: time.Unix(rapid.Int64Range(0, 250_000_000_000).Draw(r, "created"), rapid.Int64Range(0, 999_999_999).Draw(r, "ns")).UTC(),
		Program: "p <&>",
		Tensors: []Tensor{},
		Values: map[string]json.RawMessage{
			"v": json.RawMessage(rapid.SampledFrom([]string{"0", `"<&>\u2028 ü"`, "null", `{"A":[{}]}`}).Draw(r, "value"))},
		Metrics: rapid.MapOfN(rapid.StringMatching(`[a-z0-9_.]{1,64}`), rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64),
			0, 3).Draw(r, "metrics"),
	}
	tag := Tag{Attempt: m.Attempt, Run: 1, Nonce: 2}
	for i := range n {
		m.Shards = append(m.Shards, Shard{File: tag.ShardName(i, n), Size: MinShardBytes, CRC: Checksum(rapid.Uint32().Draw(r, "crc"))})
	}
	if rapid.Bool().Draw(r, "delta") {
		step := rapid.Int64Range(0, m.Step).Draw(r, "base")
		m.Base = &Base{Step: step, Folder: FreshFolder(step, 1, 2), CRC: 3}
	}
	var at [][2]int // the tensor and the index of every piece
	for i := range rapid.IntRange(0, 5).Draw(r, "tensors") {
		t := Tensor{
			Name:   fmt.Sprintf("%s.%d", rapid.StringMatching(`[A-Za-zäß语"\\ /]{0,12}`).Draw(r, "name"), i),
			DType:  rapid.SampledFrom([]string{"bool", "float8_e4m3fn", "bfloat16", "uint32", "float64", "complex64"}).Draw(r, "dtype"),
			Shape:  rapid.SliceOfN(rapid.IntRange(0, 12), 0, 4).Draw(r, "shape"),
			Pieces: []Piece{},
		}
		elem, _ := ElemSize(t.DType)
		size, err := ByteSize(t.DType, t.Shape)
		if err != nil {
			r.Fatal(err)
		}
		for start := int64(0); start < size; {
			length := rapid.Int64Range(1, (size-start)/int64(elem)).Draw(r, "elements") * int64(elem)
			at = append(at, [2]int{i, len(t.Pieces)})
			t.Pieces = append(t.Pieces, Piece{Shard: rapid.IntRange(0, n-1).Draw(r, "shard"), Start: start, Length: length})
			start += length
		}
		m.Tensors = append(m.Tensors, t)
	}
	for _, i := range rapid.Permutation(at).Draw(r, "order") {
		p := &m.Tensors[i[0]].Pieces[i[1]]
		p.Offset = m.Shards[p.Shard].Raw
		m.Shards[p.Shard].Raw += p.Length
	}
	return m
}

// Parse returns the manifest that Encode wrote, and the pieces of every shard fill it without gaps.
func TestManifestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		m := drawManifest(r)
		data, err := m.Encode()
		if err != nil {
			r.Fatal(err)
		}
		got, err := Parse(data)
		if err != nil {
			r.Fatal(err)
		}
		if !reflect.DeepEqual(got, m) {
			r.Fatalf("read as\n%+v\nnot\n%+v", got, m)
		}
		seed := rapid.Uint64().Draw(r, "seed")
		for _, tensor := range m.Tensors { // the order in which a writer lists pieces does not matter
			rand.New(rand.NewPCG(seed, 0)).Shuffle(len(tensor.Pieces), func(i, k int) {
				tensor.Pieces[i], tensor.Pieces[k] = tensor.Pieces[k], tensor.Pieces[i]
			})
		}
		if again, err := m.Encode(); err != nil || !bytes.Equal(again, data) {
			r.Fatalf("shuffled pieces give\n%s\nnot\n%s (%v)", again, data, err)
		}
		for i, refs := range got.ByShard() {
			var sum int64
			for _, ref := range refs {
				if ref.Offset != sum {
					r.Fatalf("shard %d: a piece at %d, not %d", i, ref.Offset, sum)
				}
				sum += ref.Length
			}
			if sum != got.Shards[i].Raw {
				r.Fatalf("shard %d: %d bytes of pieces, %d raw", i, sum, got.Shards[i].Raw)
			}
		}
	})
}

// TestManifestTextIsAsDocumented checks the text that people and other programs see. The expected bytes follow from docs/format.md.
func TestManifestTextIsAsDocumented(t *testing.T) {
	t.Parallel()
	tag := Tag{Attempt: 1, Run: 2, Nonce: 3}
	m := &Manifest{
		Run: "r", Attempt: 1, Step: 7, World: 2, Created: time.Unix(1767323045, 0).UTC(), Program: "<p>",
		Base:   &Base{Step: 5, Folder: StepFolder(5), CRC: 0xab},
		Values: map[string]json.RawMessage{"b": json.RawMessage(`{"x": 1}`), "a": json.RawMessage("null")},
		Tensors: []Tensor{
			{Name: "w", DType: "float32", Shape: []int{2}, Pieces: []Piece{{Start: 4, Offset: 4, Length: 4}, {Length: 4}}},
			{Name: "e", DType: "bool", Shape: []int{0}},
			{Name: "n", DType: "uint8", Pieces: []Piece{{Offset: 8, Length: 1}}},
		},
		Shards: []Shard{{File: tag.ShardName(0, 1), Size: 144, Raw: 9, CRC: 0x12}},
	}
	data, err := m.Encode()
	must(t, err)
	want := sealed(`{
  "format": "ddpbatch checkpoint",
  "version": 2,
  "run": "r",
  "attempt": 1,
  "step": 7,
  "world": 2,
  "created": "2026-01-02T03:04:05Z",
  "program": "<p>",
  "base": {"step":5,"folder":"step-000000000005","crc32c":"000000ab"},
  "values": {
    "a": null,
    "b": {"x":1}
  },
  "metrics": {},
  "tensors": [
    {"name":"w","dtype":"float32","shape":[2],"pieces":[[0,0,0,4],[0,4,4,4]]},
    {"name":"e","dtype":"bool","shape":[0],"pieces":[]},
    {"name":"n","dtype":"uint8","shape":[],"pieces":[[0,8,0,1]]}
  ],
  "shards": [
    {"file":"shard-00000-of-00001.1-00000002-00000003.ddpt","size":144,"raw":9,"crc32c":"00000012"}
  ]`)
	if !bytes.Equal(data, want) {
		t.Errorf("written as\n%s\nnot\n%s", data, want)
	}
}

// Encode refuses a manifest that Parse could not read, or would read as another one.
func TestEncodeRefusesWhatCannotBeReadBack(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*Manifest)
		want   string
	}{
		{"version 1", func(m *Manifest) { m.Version = 1 }, "version 1"},
		{"run", func(m *Manifest) { m.Run = "\xff" }, "UTF-8"},
		{"tensor name", func(m *Manifest) { m.Tensors[0].Name = "\xff" }, "UTF-8"},
		{"NaN", func(m *Manifest) { m.Metrics["n"] = math.NaN() }, "NaN"},
		{"infinity", func(m *Manifest) { m.Metrics["n"] = math.Inf(-1) }, "Inf"},
		{"value", func(m *Manifest) { m.Values["x"] = json.RawMessage("{") }, "JSON"},
		{"no value", func(m *Manifest) { m.Values["x"] = json.RawMessage{} }, "JSON"},
		{"doubled key in a value", func(m *Manifest) { m.Values["x"] = json.RawMessage(`{"a":1,"a":1}`) }, "twice"},
		{"key", func(m *Manifest) { m.Metrics["a b"] = 1 }, "a b"},
		{"year", func(m *Manifest) { m.Created = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "year"},
		{"pieces", func(m *Manifest) { m.Tensors[0].Pieces[1].Start = 16 }, "ends at 12"},
		{"shard", func(m *Manifest) { m.Shards[0].Raw++ }, "raw bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, err := Parse(sealed(good2))
			must(t, err)
			test.change(m)
			if _, err := m.Encode(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

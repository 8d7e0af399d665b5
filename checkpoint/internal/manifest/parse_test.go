package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// good1 and good2 are the JSON of manifests before the checksum, written by hand.
const good1 = `{
  "format": "ddpbatch checkpoint",
  "version": 1,
  "run": "r",
  "attempt": 2,
  "step": 7,
  "world": 4,
  "created": "2026-01-02T03:04:05Z",
  "program": "p",
  "values": {"lr": 0.5},
  "tensors": [
    {"name": "a", "dtype": "float32", "shape": [2, 3], "shard": 0, "offset": 0, "length": 24},
    {"name": "e", "dtype": "float32", "shape": [0], "shard": 0, "offset": 24, "length": 0},
    {"name": "b", "dtype": "int64", "shape": [], "shard": 1, "offset": 0, "length": 8},
    {"name": "c", "dtype": "uint8", "shape": [5], "shard": 0, "offset": 24, "length": 5}
  ],
  "shards": [
    {"file": "shard-00000-of-00002.2-00000000-0000000a.ddpt", "size": 173, "raw": 29, "crc32c": "01234567"},
    {"file": "shard-00001-of-00002.2-00000000-0000000b.ddpt", "size": 120, "raw": 8, "crc32c": "89abcdef"}
  ]`

const good2 = `{
  "format": "ddpbatch checkpoint",
  "version": 2,
  "run": "r",
  "attempt": 2,
  "step": 7,
  "world": 4,
  "created": "2026-01-02T03:04:05Z",
  "program": "p",
  "base": {"step": 5, "folder": "step-000000000005.2-0000beef", "crc32c": "00c0ffee"},
  "values": {"lr": 0.5},
  "metrics": {"eval.loss": -1.5e-3, "n": 2},
  "tensors": [
    {"name": "a", "dtype": "float32", "shape": [2, 3], "pieces": [[1, 8, 0, 12], [0, 5, 12, 12]]},
    {"name": "e", "dtype": "float32", "shape": [0, 9], "pieces": []},
    {"name": "b", "dtype": "complex64", "shape": [], "pieces": [[1, 0, 0, 8]]},
    {"name": "c", "dtype": "float8_e5m2", "shape": [5], "pieces": [[0, 0, 0, 5]]}
  ],
  "shards": [
    {"file": "shard-00000-of-00002.2-00000000-0000000a.ddpt", "size": 161, "raw": 17, "crc32c": "01234567"},
    {"file": "shard-00001-of-00002.2-00000000-0000000b.ddpt", "size": 148, "raw": 20, "crc32c": "89abcdef"}
  ]`

func TestVersion2IsRead(t *testing.T) {
	t.Parallel()
	m, err := Parse(sealed(good2))
	must(t, err)
	if m.Version != 2 || m.Step != 7 || m.World != 4 || m.Attempt != 2 || m.Run != "r" || m.Program != "p" || !m.Created.Equal(time.Unix(1767323045, 0)) {
		t.Errorf("read as %+v", m)
	}
	if want := (Base{Step: 5, Folder: "step-000000000005.2-0000beef", CRC: 0x00c0ffee}); m.Base == nil || *m.Base != want {
		t.Errorf("base %+v, want %+v", m.Base, want)
	}
	if want := map[string]float64{"eval.loss": -0.0015, "n": 2}; !reflect.DeepEqual(m.Metrics, want) {
		t.Errorf("metrics %v", m.Metrics)
	}
	want := []Tensor{
		{Name: "a", DType: "float32", Shape: []int{2, 3}, Pieces: []Piece{{Shard: 1, Offset: 8, Length: 12}, {Offset: 5, Start: 12, Length: 12}}},
		{Name: "e", DType: "float32", Shape: []int{0, 9}, Pieces: []Piece{}},
		{Name: "b", DType: "complex64", Shape: []int{}, Pieces: []Piece{{Shard: 1, Length: 8}}},
		{Name: "c", DType: "float8_e5m2", Shape: []int{5}, Pieces: []Piece{{Length: 5}}},
	}
	for i, w := range want {
		g := m.Tensors[i]
		if g.Name != w.Name || g.DType != w.DType || len(g.Shape) != len(w.Shape) || len(g.Pieces) != len(w.Pieces) {
			t.Fatalf("tensor %d is %+v", i, g)
		}
		for k := range w.Pieces {
			if g.Pieces[k] != w.Pieces[k] {
				t.Errorf("tensor %q: piece %d is %+v, want %+v", w.Name, k, g.Pieces[k], w.Pieces[k])
			}
		}
	}
	if s := (Shard{File: "shard-00001-of-00002.2-00000000-0000000b.ddpt", Size: 148, Raw: 20, CRC: 0x89abcdef}); m.Shards[1] != s {
		t.Errorf("shard 1 is %+v", m.Shards[1])
	}
	refs := []Ref{{Tensor: 3, Piece: Piece{Length: 5}}, {Tensor: 0, Piece: Piece{Offset: 5, Start: 12, Length: 12}}}
	if got := m.ByShard()[0]; !reflect.DeepEqual(got, refs) {
		t.Errorf("shard 0 holds %+v", got)
	}
}

// TestVersion1IsRead: a tensor becomes one piece, also an empty one, which the shard's header counts.
func TestVersion1IsRead(t *testing.T) {
	t.Parallel()
	m, err := Parse(sealed(good1))
	must(t, err)
	if m.Version != 1 || m.Step != 7 || m.Base != nil || len(m.Metrics) != 0 || string(m.Values["lr"]) != "0.5" || len(m.Tensors) != 4 {
		t.Fatalf("read as %+v", m)
	}
	want := [][]Ref{
		{{0, Piece{Length: 24}}, {1, Piece{Offset: 24}}, {3, Piece{Offset: 24, Length: 5}}},
		{{2, Piece{Shard: 1, Length: 8}}},
	}
	if got := m.ByShard(); !reflect.DeepEqual(got, want) {
		t.Errorf("shards hold %+v, want %+v", got, want)
	}
}

// TestGoldenVersion1 reads a manifest that was written once by the first program.
func TestGoldenVersion1(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "v1", "step-000000000007", Name))
	must(t, err)
	m, err := Parse(data)
	must(t, err)
	if m.Version != 1 || m.Run != "golden" || m.Attempt != 2 || m.Step != 7 || m.World != 4 || string(m.Values["note"]) != `"ü <&>"` {
		t.Errorf("read as %+v", m)
	}
	want := []Ref{
		{0, Piece{Length: 16}}, {1, Piece{Offset: 16, Length: 1000}}, {2, Piece{Offset: 1016}}, {3, Piece{Offset: 1016, Length: 8}},
	}
	if got := m.ByShard()[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("its shard holds %+v, want %+v", got, want)
	}
}

// TestUnknownFields: within a version they are passed over, in the manifest and in its records.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	for _, body := range []string{good1, good2} {
		body = changed(t, body, `"run": "r"`, `"later": {"x": [1]}, "run": "r"`)
		body = changed(t, body, `"raw": `, `"sha256": "", "raw": `)
		body = changed(t, body, `"dtype": `, `"hint": {"a": null}, "dtype": `)
		m, err := Parse(sealed(body))
		must(t, err)
		if m.Step != 7 || len(m.Tensors) != 4 || len(m.Shards) != 2 {
			t.Errorf("read as %+v", m)
		}
	}
}

// TestErrorsQuote: what an error shows of a manifest does nothing to a terminal, C1 control characters and changes of direction included.
func TestErrorsQuote(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{"format": `"ddpbatch checkpoint"`, "version": "2"} {
		_, err := Parse(sealed(changed(t, good2, `"`+key+`": `+value, `"`+key+"\": \"x\u009b2J\u202e\"")))
		if err == nil || !strings.Contains(err.Error(), key+` is "\"x\u009b2J\u202e\""`) {
			t.Errorf("%s: %q", key, err)
		}
	}
}

// TestNewerVersion: it is told apart from damage whatever else it holds, and says both versions.
func TestNewerVersion(t *testing.T) {
	t.Parallel()
	body := changed(t, good2, `"version": 2`, `"version": 12`)
	body = changed(t, body, `"world": 4`, `"world": ["not what version 2 means"]`)
	_, err := Parse(sealed(body))
	newer, ok := errors.AsType[*Newer](err)
	if !ok || newer.Version != 12 || !strings.Contains(err.Error(), "version 12") || !strings.Contains(err.Error(), "up to 2") {
		t.Errorf("error %v", err)
	}
	// Its keys are its own matter, and its null, and how much there is of what.
	for _, add := range []string{`"Notes": {"Author": "x", "": 1}, `, `"base2": null, `, `"x": [` + strings.Repeat("1,", MaxTensors+MaxShards) + `1], `} {
		_, err := Parse(sealed(changed(t, body, `"run": "r"`, add+`"run": "r"`)))
		if newer, ok := errors.AsType[*Newer](err); !ok || newer.Version != 12 {
			t.Errorf("with %.20s: error %v", add, err)
		}
	}
	// What only looks like its version is not.
	_, err = Parse(sealed(changed(t, good2, `"version": 2`, `"version": 2, "Version": 12`)))
	if err == nil || errors.As(err, &newer) {
		t.Errorf("version in another case: error %v", err)
	}
	data := sealed(body)
	data[30] ^= 1
	if _, err := Parse(data); err == nil || errors.As(err, &newer) {
		t.Errorf("damaged: error %v", err)
	}
}

func TestManifestBitFlips(t *testing.T) {
	t.Parallel()
	for _, body := range []string{good1, good2} {
		flipEveryBit(t, sealed(body), func(data []byte) error { _, err := Parse(data); return err })
	}
}

func TestManifestCutShort(t *testing.T) {
	t.Parallel()
	data := sealed(good2)
	for n := range len(data) {
		if _, err := Parse(data[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are accepted", n, len(data))
		}
	}
	if _, err := Parse(append(data, '\n')); err == nil {
		t.Error("one byte more is accepted")
	}
}

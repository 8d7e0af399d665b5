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

// good1 and good2 are manifests written by hand, up to the checksum.
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
	if m.Version != 2 || m.Step != 7 || m.World != 4 || m.Attempt != 2 || m.Run != "r" || m.Program != "p" ||
		!m.Created.Equal(time.Unix(1767323045, 0)) {
		t.Errorf("read as %+v", m)
	}
	if want := (Base{Step: 5, Folder: "step-000000000005.2-0000beef", CRC: 0x00c0ffee}); m.Base == nil || *m.Base != want {
		t.Errorf("base %+v, want %+v", m.Base, want)
	}
	if want := map[string]float64{"eval.loss": -0.0015, "n": 2}; !reflect.DeepEqual(m.Metrics, want) {
		t.Errorf("metrics %v", m.Metrics)
	}
	want := []Tensor{
		{Name: "a", DType: "float32", Shape: []int{2, 3},
			Pieces: []Piece{{Shard: 1, Offset: 8, Length: 12}, {Offset: 5, Start: 12, Length: 12}}},
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

// Every tensor of version 1 becomes one piece, even an empty one, since the shard's header counts that.
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

// TestVersion1StaysReadable reads a manifest that the first program wrote.
func TestVersion1StaysReadable(t *testing.T) {
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

// Unknown fields in a manifest and in the objects inside it are ignored if the version is known.
func TestUnknownFieldsArePassedOver(t *testing.T) {
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

// Errors quote the text of a manifest so that it cannot control a terminal, not even with C1 control characters or changes of direction.
func TestErrorsQuoteControlCharacters(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{"format": `"ddpbatch checkpoint"`, "version": "2"} {
		_, err := Parse(sealed(changed(t, good2, `"`+key+`": `+value, `"`+key+"\": \"x\u009b2J\u202e\"")))
		if err == nil || !strings.Contains(err.Error(), key+` is "\"x\u009b2J\u202e\""`) {
			t.Errorf("%s: %q", key, err)
		}
	}
}

// A newer version is never taken for damage, whatever else the manifest contains, and the error names both versions.
func TestNewerVersionIsNotDamage(t *testing.T) {
	t.Parallel()
	body := changed(t, good2, `"version": 2`, `"version": 12`)
	body = changed(t, body, `"world": 4`, `"world": ["not what version 2 means"]`)
	_, err := Parse(sealed(body))
	newer, ok := errors.AsType[*Newer](err)
	if !ok || newer.Version != 12 || !strings.Contains(err.Error(), "version 12") || !strings.Contains(err.Error(), "up to 2") {
		t.Errorf("error %v", err)
	}
	// A newer version may have any keys, null, and any number of entries.
	for _, add := range []string{`"Notes": {"Author": "x", "": 1}, `, `"base2": null, `,
		`"x": [` + strings.Repeat("1,", MaxTensors+MaxShards) + `1], `} {
		_, err := Parse(sealed(changed(t, body, `"run": "r"`, add+`"run": "r"`)))
		if newer, ok := errors.AsType[*Newer](err); !ok || newer.Version != 12 {
			t.Errorf("with %.20s: error %v", add, err)
		}
	}
	// A key that differs from "version" in case is not the version.
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

func TestEveryManifestBitFlipIsFound(t *testing.T) {
	t.Parallel()
	for _, body := range []string{good1, good2} {
		flipEveryBit(t, sealed(body), func(data []byte) error { _, err := Parse(data); return err })
	}
}

func TestManifestCutShortIsRefused(t *testing.T) {
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

type refusal struct{ name, old, new, want string }

// refusedAlways are changes after which a manifest of either version is refused.
var refusedAlways = []refusal{
	{"another format", "ddpbatch checkpoint", "safetensors", "format"},
	{"negative step", `"step": 7`, `"step": -7`, "step"},
	{"step too large", `"step": 7`, `"step": 1000000000000`, "step"},
	{"fraction", `"step": 7`, `"step": 7.5`, "step"},
	{"no world", `"world": 4`, `"world": 0`, "world"},
	{"world too large", `"world": 4`, `"world": 9999999`, "world"},
	{"attempt", `"attempt": 2`, `"attempt": -2`, "attempt"},
	{"attempt too large", `"attempt": 2`, `"attempt": 1000000000`, "attempt"},
	{"doubled key", `"step": 7`, `"step": 7, "step": 8`, "twice"},
	{"doubled key by escape", `"step": 7`, `"step": 7, "st\u0065p": 8`, "twice"},
	{"doubled key in a tensor", `"dtype": "int64"`, `"dtype": "int64", "dtype": "int8"`, "twice"},
	{"doubled key in a value", `"lr": 0.5`, `"lr": {"A": 1, "A": 2}`, "twice"},
	{"doubled value", `"lr": 0.5`, `"lr": 0.5, "lr": 0.5`, "twice"},
	{"key in another case", `"step": 7`, `"step": 7, "Step": 8`, "Step"},
	{"key that folds to another", `"world": 4`, `"world": 4, "ſtep": 8`, "ſtep"},
	{"key of a value", `"lr"`, `"LR"`, "LR"},
	{"not UTF-8", `"run": "r"`, "\"run\": \"\xff\"", "UTF-8"},
	{"two of a name", `"name": "b"`, `"name": "a"`, "twice"},
	{"control character", `"name": "b"`, `"name": "b\n"`, "control"},
	{"no name", `"name": "b"`, `"name": ""`, "name"},
	{"unknown dtype", `"float32"`, `"fp4"`, "fp4"},
	{"negative shape", `[2, 3]`, `[-2, -3]`, "negative"},
	{"shape overflows", `[2, 3]`, `[4611686018427387904, 4]`, "larger"},
	{"shape beyond 64 bits", `[2, 3]`, `[18446744073709551616]`, "shape"},
	{"shape of null", `[2, 3]`, `[2, null]`, "shape"},
	{"null shape", `[2, 3]`, `null`, "shape"},
	{"no shape", `"shape": [2, 3], `, ``, "shape"},
	{"33 dimensions", `[2, 3]`, `[2, 3` + strings.Repeat(", 1", 31) + `]`, "at most 32"},
	{"size too small", `"size": 1`, `"size": 95, "x": 1`, "95 bytes"},
	{"size too large", `"size": 1`, `"size": 9223372036854775807, "x": 1`, "shard 0"},
	{"path out of the folder", `shard-00001-of-00002`, `../../../etc/shard-00001-of-00002`, "file name"},
	{"shard with another number", `shard-00001-of-00002`, `shard-00000-of-00002`, "file name"},
	{"temporary file as shard", `0000000b.ddpt"`, `0000000b.ddpt.tmp"`, "file name"},
	{"checksum in capitals", `89abcdef`, `89ABCDEF`, "checksum"},
	{"checksum too short", `89abcdef`, `89abcde`, "checksum"},
	{"two objects", `"run": "r"`, `"run": "r"}, {"x": 1`, "after top-level value"},
	{"deep", `"lr": 0.5`, `"lr": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100), "deeper"},
	{"no version", `"version"`, `"other"`, `"version" is missing`},
	{"no format", `"format"`, `"other"`, `"format" is missing`},
	{"no run", `"run"`, `"other"`, `"run" is missing`},
	{"no attempt", `"attempt"`, `"other"`, `"attempt" is missing`},
	{"no step", `"step"`, `"other"`, `"step" is missing`},
	{"no world", `"world"`, `"other"`, `"world" is missing`},
	{"no time", `"created"`, `"other"`, `"created" is missing`},
	{"no program", `"program"`, `"other"`, `"program" is missing`},
	{"no values", `"values"`, `"others"`, `"values" is missing`},
	{"no tensors", `"tensors"`, `"others"`, `"tensors" is missing`},
	{"no shards", `"shards"`, `"others"`, `"shards" is missing`},
	{"null run", `"run": "r"`, `"run": null`, `"run" is null`},
	{"null step", `"step": 7`, `"step": null`, `"step" is null`},
	{"null values", `{"lr": 0.5}`, `null`, `"values" is null`},
	{"null among the shards", `"shards": [`, `"shards": [null, `, ""},
	{"null among the tensors", `"tensors": [`, `"tensors": [null, `, ""},
	{"no raw length", `"raw"`, `"x"`, "raw or crc32c is missing"},
	{"null raw length", `"raw": `, `"raw": null, "x": `, "raw or crc32c is missing"},
	{"no checksum of a shard", `"crc32c": "01234567"`, `"x": 1`, "raw or crc32c is missing"},
	{"no size", `"size"`, `"x"`, "has 0 bytes"},
	{"no file", `"file"`, `"x"`, "file name"},
	{"no dtype", `"dtype"`, `"x"`, "dtype"},
	{"long name of the run", `"run": "r"`, `"run": "` + strings.Repeat("r", MaxName+1) + `"`, "257 bytes"},
	{"fraction of a version", `"version": `, `"version": 0.5, "x": `, "0.5"},
	{"version beyond 63 bits", `"version": `, `"version": 9223372036854775808, "x": `, "not an integer"},
	{"no object", `{`, `[{`, ""},
}

func TestBadVersion1IsRefused(t *testing.T) {
	t.Parallel()
	refuse(t, good1, append([]refusal{
		{"version 0", `"version": 1`, `"version": 0`, "version"},
		{"negative version", `"version": 1`, `"version": -1`, "version"},
		{"version not a number", `"version": 1`, `"version": "1"`, "version"},
		{"length too large", `"length": 24`, `"length": 25`, "ends at 25"},
		{"length too small", `"length": 24`, `"length": 20`, "needs 24"},
		{"negative length", `"length": 24`, `"length": -1`, "-1"},
		{"hole", `24, "length": 5`, `25, "length": 5`, "begins at 25"},
		{"overlap", `24, "length": 5`, `20, "length": 5`, "begins at 20"},
		{"negative offset", `24, "length": 5`, `-24, "length": 5`, "begins at -24"},
		{"empty one elsewhere", `24, "length": 0`, `0, "length": 0`, "begins at 0"},
		{"empty one behind", `24, "length": 0`, `29, "length": 0`, "ends at 29"},
		{"no such shard", `"shard": 1`, `"shard": 2`, "shard 2"},
		{"negative shard", `"shard": 1`, `"shard": -1`, "shard -1"},
		{"no shard", `"shard": 0, `, ``, "missing"},
		{"null offset", `"offset": 0`, `"offset": null`, "missing"},
		{"no length", `, "length": 0`, ``, "missing"},
		{"raw too small", `"raw": 29`, `"raw": 24`, "ends beyond"},
		{"raw too large", `"raw": 29`, `"raw": 30`, "30 raw bytes"},
		{"not an object", good1, `[1`, ""},
	}, refusedAlways...))
}

func TestBadVersion2IsRefused(t *testing.T) {
	t.Parallel()
	few := strings.Repeat("[0,0,0,1],", 40)
	refuse(t, strings.ReplaceAll(good2, "complex64", "int64"), append([]refusal{
		{"gap in a tensor", `[0, 5, 12, 12]`, `[0, 5, 16, 12]`, "ends at 12"},
		{"overlap in a tensor", `[0, 5, 12, 12]`, `[0, 5, 8, 12]`, "ends at 12"},
		{"tensor not covered", `, [0, 5, 12, 12]`, ``, "have 12"},
		{"piece too long", `[0, 5, 12, 12]`, `[0, 5, 12, 16]`, "have more"},
		{"length overflows", `[0, 5, 12, 12]`, `[0, 5, 12, 9223372036854775807]`, "have more"},
		{"within an element", `[[1, 8, 0, 12], [0, 5, 12, 12]]`, `[[1, 8, 0, 10], [0, 5, 10, 14]]`, "within an element"},
		{"first not at 0", `[1, 8, 0, 12]`, `[1, 8, -4, 12]`, "begins at byte -4"},
		{"pieces in another order", `[1, 8, 0, 12], [0, 5, 12, 12]`, `[0, 5, 12, 12], [1, 8, 0, 12]`, "begins at byte 12"},
		{"empty piece", `[0, 5, 12, 12]`, `[0, 5, 12, 0], [0, 5, 12, 12]`, "0 bytes"},
		{"piece of an empty tensor", `"pieces": []`, `"pieces": [[0, 0, 0, 0]]`, "0 bytes"},
		{"negative piece", `[0, 5, 12, 12]`, `[0, 5, 12, -12]`, "-12 bytes"},
		{"gap in a shard", `[0, 5, 12, 12]`, `[0, 6, 12, 12]`, "begins at 6"},
		{"overlap in a shard", `[0, 5, 12, 12]`, `[0, 4, 12, 12]`, "begins at 4"},
		{"negative offset", `[0, 5, 12, 12]`, `[0, -5, 12, 12]`, "begins at -5"},
		{"offset overflows", `[0, 5, 12, 12]`, `[0, 9223372036854775807, 12, 12]`, "begins at 92"},
		{"no such shard", `[0, 5, 12, 12]`, `[2, 5, 12, 12]`, "shard 2"},
		{"negative shard", `[0, 5, 12, 12]`, `[-1, 5, 12, 12]`, "shard -1"},
		{"shard beyond 32 bits", `[0, 5, 12, 12]`, `[4294967296, 5, 12, 12]`, "shard 4294967296"},
		{"raw too small", `"raw": 17`, `"raw": 16`, "ends beyond"},
		{"raw too large", `"raw": 17`, `"raw": 18`, "18 raw bytes"},
		{"three numbers", `[0, 5, 12, 12]`, `[0, 5, 12]`, "3 numbers"},
		{"five numbers", `[0, 5, 12, 12]`, `[0, 5, 12, 12, 0]`, "5 numbers"},
		{"null in a piece", `[0, 5, 12, 12]`, `[null, 5, 12, 12]`, "piece"},
		{"fraction in a piece", `[0, 5, 12, 12]`, `[0, 5, 12, 12.0]`, "piece"},
		{"list in a piece", `[0, 5, 12, 12]`, `[[0, 5, 12, 12]]`, "piece"},
		{"null for a piece", `[0, 5, 12, 12]`, `null`, "piece"},
		{"base of a later step", `{"step": 5, "folder": "step-000000000005`, `{"step": 8, "folder": "step-000000000008`, "after"},
		{"base of another step", `{"step": 5`, `{"step": 4`, "base"},
		{"base out of the folder", `"folder": "`, `"folder": "../`, "base"},
		{"broken base", `0000beef"`, `0000beef.broken"`, "base"},
		{"base without a folder", `"folder"`, `"x"`, "base"},
		{"base without a step", `"step": 5, `, ``, "missing"},
		{"base without a checksum", `, "crc32c": "00c0ffee"`, ``, "missing"},
		{"null base", `"base": {`, `"base": null, "x": {`, `"base" is null`},
		{"no metrics", `"metrics"`, `"other"`, `"metrics" is missing`},
		{"no pieces", `, "pieces": []`, ``, "pieces is missing"},
		{"null pieces", `"pieces": []`, `"pieces": null`, "pieces is missing"},
		{"metric not a number", `"n": 2`, `"n": "2"`, "metrics"},
		{"infinite metric", `"n": 2`, `"n": 1e999`, "1e999"},
		{"null metric", `"n": 2`, `"n": null`, "null"},
		{"key of a metric", `"n": 2`, `"N": 2`, "N"},
		{"long key of a metric", `"n": 2`, `"` + strings.Repeat("n", 65) + `": 2`, "64"},
		{"object in a metric", `"n": 2`, `"n": {"A": 2}`, "A"},
		{"version 1 of a later tensor", `"version": 2`, `"version": 1`, ""},
		{"many pieces of nothing", `"pieces": []`, `"pieces": [` + few[:len(few)-1] + `]`, "have more"},
	}, refusedAlways...))
}

func refuse(t *testing.T, good string, tests []refusal) {
	if _, err := Parse(sealed(good)); err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(sealed(changed(t, good, test.old, test.new)))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if _, newer := err.(*Newer); newer {
				t.Errorf("taken for a newer format: %v", err)
			}
		})
	}
}

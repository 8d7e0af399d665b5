package checkpoint

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
)

// goodManifest is the JSON of a manifest before its checksum, written by hand.
const goodManifest = `{
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
    {"name": "b", "dtype": "int64", "shape": [], "shard": 1, "offset": 0, "length": 8},
    {"name": "c", "dtype": "uint8", "shape": [5], "shard": 0, "offset": 24, "length": 5}
  ],
  "shards": [
    {"file": "shard-00000-of-00002.2-00000000-0000000a.ddpt", "size": 173, "raw": 29, "crc32c": "01234567"},
    {"file": "shard-00001-of-00002.2-00000000-0000000b.ddpt", "size": 120, "raw": 8, "crc32c": "89abcdef"}
  ]`

// sealed adds the right checksum.
func sealed(body string) []byte {
	sum := crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(nil, "%s,\n  \"crc32c\": \"%08x\"\n}\n", body, sum)
}

func TestManifestIsRead(t *testing.T) {
	t.Parallel()
	// An unknown field, in the manifest and in a record, is passed over within a version.
	body := strings.NewReplacer(`"run": "r"`, `"later": {"x": [1]}, "run": "r"`, `"size": 173`, `"size": 173, "sha256": ""`).Replace(goodManifest)
	for _, text := range []string{goodManifest, body} {
		m, err := parseManifest(sealed(text))
		must(t, err)
		if m.Step != 7 || m.World != 4 || m.Attempt != 2 || len(m.Tensors) != 3 || m.Tensors[2].Offset != 24 || m.Shards[1].CRC != 0x89abcdef || string(m.Values["lr"]) != "0.5" {
			t.Errorf("read as %+v", m)
		}
	}
}

func TestManifestIsRefused(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, old, new, want string }{
		{"another format", "ddpbatch checkpoint", "safetensors", "format"},
		{"version 0", `"version": 1`, `"version": 0`, "version"},
		{"version not a number", `"version": 1`, `"version": "1"`, "version"},
		{"negative step", `"step": 7`, `"step": -7`, "step"},
		{"fraction", `"step": 7`, `"step": 7.5`, "step"},
		{"no world", `"world": 4`, `"world": 0`, "world"},
		{"world too large", `"world": 4`, `"world": 9999999`, "world"},
		{"attempt", `"attempt": 2`, `"attempt": -2`, "attempt"},
		{"doubled key", `"step": 7`, `"step": 7, "step": 8`, "twice"},
		{"doubled key by escape", `"step": 7`, `"step": 7, "st\u0065p": 8`, "twice"},
		{"doubled key in a tensor", `"dtype": "uint8"`, `"dtype": "uint8", "dtype": "int8"`, "twice"},
		{"doubled key in a value", `"lr": 0.5`, `"lr": {"A": 1, "A": 2}`, "twice"},
		{"doubled value", `"lr": 0.5`, `"lr": 0.5, "lr": 0.5`, "twice"},
		{"key in another case", `"step": 7`, `"step": 7, "Step": 8`, "Step"},
		{"key that folds to another", `"world": 4`, `"world": 4, "ſtep": 8`, "ſtep"},
		{"key of a value", `"lr"`, `"LR"`, "LR"},
		{"not UTF-8", `"run": "r"`, "\"run\": \"\xff\"", "UTF-8"},
		{"two of a name", `"name": "b"`, `"name": "a"`, "twice"},
		{"unknown dtype", `"dtype": "uint8"`, `"dtype": "fp4"`, "fp4"},
		{"negative shape", `[2, 3]`, `[-2, -3]`, "negative"},
		{"shape overflows", `[2, 3]`, `[4611686018427387904, 4]`, "larger"},
		{"length", `"length": 24`, `"length": 25`, "needs 24"},
		{"hole", `"offset": 24`, `"offset": 25`, "begins at 25"},
		{"overlap", `"offset": 24`, `"offset": 20`, "begins at 20"},
		{"negative offset", `"offset": 24`, `"offset": -24`, "begins"},
		{"no such shard", `"shard": 1`, `"shard": 2`, "shard 2"},
		{"negative shard", `"shard": 1`, `"shard": -1`, "shard -1"},
		{"raw too small", `"raw": 29`, `"raw": 24`, "ends behind"},
		{"raw too large", `"raw": 29`, `"raw": 30`, "30 raw bytes"},
		{"size too small", `"size": 173`, `"size": 95`, "95 bytes"},
		{"size too large", `"size": 173`, `"size": 9223372036854775807`, "shard 0"},
		{"path out of the folder", `shard-00001-of-00002`, `../../../etc/shard-00001-of-00002`, "file name"},
		{"shard with another number", `shard-00001-of-00002`, `shard-00000-of-00002`, "file name"},
		{"temporary file as shard", `0000000b.ddpt"`, `0000000b.ddpt.tmp"`, "file name"},
		{"checksum in capitals", `89abcdef`, `89ABCDEF`, "checksum"},
		{"checksum too short", `89abcdef`, `89abcde`, "checksum"},
		{"no shards", goodManifest[strings.Index(goodManifest, `"shards"`):], `"shards": []`, "0 shards"},
		{"not an object", goodManifest, `[1`, ""},
		{"two objects", `"run": "r"`, `"run": "r"}, {"x": 1`, "follows"},
		{"deep", `"lr": 0.5`, `"lr": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100), "deeper"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			body := strings.Replace(goodManifest, test.old, test.new, 1)
			if body == goodManifest {
				t.Fatal("the test changes nothing")
			}
			_, err := parseManifest(sealed(body))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if _, newer := errors.AsType[newerVersion](err); newer {
				t.Errorf("taken for a newer format: %v", err)
			}
		})
	}
}

// TestNewerFormat: the manifest of a newer program is neither read, nor called corrupt, nor
// passed over, nor removed.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	m := newMem(t)
	d := openDir(t, Options{FS: m, KeepLast: 2})
	save(t, d, testState(1, 0))
	save(t, d, testState(2, 0))
	path := d.stepPath(2) + "/" + manifestName
	body, _, _ := strings.Cut(string(readFile(t, m, path)), ",\n  \"crc32c\"")
	body = strings.Replace(body, `"version": 1`, `"version": 12`, 1)
	body = strings.Replace(body, `"world": 4`, `"world": ["not what version 1 means"]`, 1)
	putFile(t, m, path, sealed(body))

	_, _, err := d.Latest(t.Context())
	wantErr(t, "Latest", err, ErrFormatTooNew)
	if errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "version 12") || !strings.Contains(err.Error(), "up to 1") {
		t.Errorf("error %v does not say the versions", err)
	}
	wantErr(t, "Verify", d.Verify(t.Context(), 2), ErrFormatTooNew)
	wantList(t, d, "1 committed, 2 newer")
	for step := int64(3); step < 6; step++ {
		save(t, d, testState(step, 0))
	}
	wantList(t, d, "2 newer, 4 committed, 5 committed")
}

// TestNewerShard: likewise for a shard under a manifest of this version.
func TestNewerShard(t *testing.T) {
	t.Parallel()
	m := newMem(t)
	d := openDir(t, Options{FS: m})
	save(t, d, testState(1, 0))
	path := find(t, m, d.stepPath(1), "shard-")
	data := readFile(t, m, path)
	data[8] = 2
	reseal(data)
	putFile(t, m, path, data)
	wantErr(t, "Verify", d.Verify(t.Context(), 1), ErrFormatTooNew)
}

func TestOwnNames(t *testing.T) {
	t.Parallel()
	const run = 0x0badcafe
	own := tag{attempt: 12, run: run, nonce: 3}
	tests := []struct {
		name    string
		attempt int // -1: not ours
	}{
		{own.shardName(0, 1), 12},
		{own.shardName(99999, 99999) + tmpSuffix, 12},
		{own.manifestTmp(), 12},
		{"shard-00000-of-00001.12-0badcafe-00000003.ddpt", 12},
		{"MANIFEST.12-0badcafe-00000003.json.tmp", 12},
		{tag{attempt: 12, run: 1, nonce: 3}.shardName(0, 1), -1},
		{manifestName, -1},
		{deletingName, -1},
		{"MANIFEST.12-0badcafe-00000003.json", -1},
		{"shard-0-of-1.12-0badcafe-00000003.ddpt", -1},
		{"shard-00000-of-00001.12-0BADCAFE-00000003.ddpt", -1},
		{"shard-00000-of-00001.12-0badcafe-00000003.ddpt.bak", -1},
		{"x-shard-00000-of-00001.12-0badcafe-00000003.ddpt", -1},
		{"shard-00000-of-00001.9999999999-0badcafe-00000003.ddpt", -1},
		{"shard-00000-of-00001.12-0badcafe-00000003.ddpt\n", -1},
	}
	for _, test := range tests {
		attempt, ok := ownAttempt(test.name, run)
		if !ok {
			attempt = -1
		}
		if attempt != test.attempt {
			t.Errorf("%q: attempt %d, want %d", test.name, attempt, test.attempt)
		}
	}
	for name, want := range map[string]int64{"step-000000000012": 12, "step-12": -1, "step-0000000000012": -1, "step-00000000001x": -1, "step-000000000012.broken": -1, "step--00000000012": -1} {
		step, ok := parseStepName(name)
		if !ok {
			step = -1
		}
		if step != want {
			t.Errorf("%q: step %d, want %d", name, step, want)
		}
	}
}

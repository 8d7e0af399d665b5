package manifest

import (
	"fmt"
	"strings"
	"testing"
)

// A hostile manifest of 1 KiB costs at most 1 MiB, and one that is too large is refused before it is decoded.
func TestHostileManifestsAreCheap(t *testing.T) { // not parallel: it counts what the process allocates
	head := `{"format":"ddpbatch checkpoint","version":2,`
	list := func(item string, bytes int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", bytes/(len(item)+1)), ",") + "]"
	}
	for _, body := range []string{
		`"tensors":` + list("{}", 900),
		`"tensors":[{"shape":` + list("1", 900) + `}]`,
		`"tensors":[{"shape":[1],"pieces":` + list("[]", 900) + `}]`,
		`"tensors":[{"shape":[1],"pieces":[` + list("1", 900) + `]}]`,
		`"values":` + strings.Repeat(`{"a":`, 190) + "1" + strings.Repeat("}", 190),
		`"x":` + strings.Repeat("[", 1000),
		`"run":"` + strings.Repeat(`\u0000`, 160) + `"`,
		`"tensors":[{"name":"a","dtype":"uint8","shape":[562949953421312],"pieces":[[0,0,0,562949953421312]]}]`,
	} {
		var err error
		if cost := allocated(func() { _, err = Parse(sealed(head + body)) }); err == nil || cost > 1<<20 {
			t.Errorf("%.30s...: error %v, cost %d bytes", body, err, cost)
		}
	}
	// A manifest with more keys than any good one has is refused before it is decoded.
	var keys strings.Builder
	for i := range 4*MaxValues + 1 {
		fmt.Fprintf(&keys, `"%x":1,`, i)
	}
	_, err := Parse(sealed(head + `"metrics":{` + strings.TrimSuffix(keys.String(), ",") + `}`))
	if err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("many keys: error %v", err)
	}
	if _, err := Parse(make([]byte, MaxBytes+1)); err == nil || !strings.Contains(err.Error(), fmt.Sprint(MaxBytes)) {
		t.Errorf("too long: error %v", err)
	}
}

// scan counts what decoding would allocate, and does not count what stays raw text.
func TestScanCountsWhatWouldBeAllocated(t *testing.T) {
	t.Parallel()
	h, err := scan([]byte(`{"values": {"a": [[], {"B": 1}], "b": 2}, "metrics": {"c": 3}, "tensors": [{"pieces": [[], ` +
		`[1]]}, 1, []], "shards": [{}]}`))
	must(t, err)
	if want := (tally{entries: 4, keys: 3, lists: 6}); h.count != want {
		t.Errorf("counted %+v, want %+v", h.count, want)
	}
	must(t, h.check())
	for _, few := range []tally{{}, {entries: MaxTensors + MaxShards, keys: 4 * MaxValues, lists: 4*MaxTensors + MaxPieces}} {
		must(t, few.check())
	}
	for _, many := range []tally{{entries: MaxTensors + MaxShards + 1}, {keys: 4*MaxValues + 1}, {lists: 4*MaxTensors + MaxPieces + 1}} {
		if err := many.check(); err == nil || !strings.Contains(err.Error(), "too many") {
			t.Errorf("%+v: error %v", many, err)
		}
	}
}

// TestErrorsQuoteShortly puts a long text in every place that an error quotes. The error must stay short.
func TestErrorsQuoteShortly(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\x7f", 1<<16)
	number := strings.Repeat("7", 1<<16)
	for _, test := range []refusal{
		{"format", `"ddpbatch checkpoint"`, `"` + long + `"`, ""},
		{"version", `"version": 2`, `"version": ` + number, ""},
		{"key", `"world"`, `"` + long + `"`, ""},
		{"doubled key", `"world"`, `"` + long + `": 1, "` + long + `"`, ""},
		{"number", `"world": 4`, `"world": ` + number, ""},
		{"time", `2026-01-02`, long, ""},
		{"name", `"name": "b"`, `"name": "` + long + `"`, ""},
		{"dtype", `"float32"`, `"` + long + `"`, ""},
		{"shape", `[2, 3]`, `[2, ` + number + `]`, ""},
		{"text in a shape", `[2, 3]`, `[2, "` + long + `"]`, ""},
		{"piece", `[0, 5, 12, 12]`, `[0, 5, 12, ` + number + `]`, ""},
		{"file", `"file": "`, `"file": "` + long, ""},
		{"checksum", `89abcdef`, long, ""},
		{"base", `"folder": "`, `"folder": "` + long, ""},
		{"run", `"run": "r"`, `"run": "` + long + `"`, ""},
		{"metric", `"n": 2`, `"n": ` + number, ""},
	} {
		_, err := Parse(sealed(changed(t, good2, test.old, test.new)))
		if err == nil || len(err.Error()) > 600 { // 80 bytes quoted as \x7f each, or 240 bytes of an encoding/json error with such bytes
			t.Errorf("%s: an error of %d bytes", test.name, len(fmt.Sprint(err)))
		}
	}
	record := strings.Replace(goodRecord, "step-", strings.Repeat("x", 1<<15), 1)
	if _, err := ParseRecord(sealed(record)); err == nil || len(err.Error()) > 300 {
		t.Errorf("record: an error of %d bytes", len(fmt.Sprint(err)))
	}
}

// A large hostile manifest costs no more than 20 times its size in memory.
func TestLargeHostileManifestsAreCheap(t *testing.T) { // not parallel: it counts what the process allocates
	const size = 1 << 20 // a 64th of the allowed size; the cost is proportional to the size
	list := func(item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", size/(len(item)+1)), ",") + "]"
	}
	for _, body := range []string{
		`"x":` + list("1"),
		`"x":` + list("[]"),
		`"tensors":` + list("{}"),
		`"values":{"a":` + list("1") + `}`,
		`"values":{"a":` + list(`{"a":1,"b":1}`) + `}`,
		`"values":{"a":` + list(`"\u0041"`) + `}`,
		`"values":{"a":` + list(`{"\u0041":1}`) + `}`,
		`"step":` + strings.Repeat("1", size),
	} {
		data := sealed(`{"format":"ddpbatch checkpoint","version":2,` + body)
		var err error
		if cost := allocated(func() { _, err = Parse(data) }); err == nil || cost > 20*size { // most of it is freed during the parse
			t.Errorf("%.30s...: error %v, cost %d times its size", body, err, cost/size)
		}
	}
}

// A manifest with one entry more than a limit allows is refused.
func TestTooManyOfAKindAreRefused(t *testing.T) {
	t.Parallel()
	for name, add := range map[string]func(*Manifest){
		"65537 values":  func(m *Manifest) { fill(m.Values, MaxValues+1) },
		"65537 metrics": func(m *Manifest) { fill(m.Metrics, MaxValues+1) },
		"tensors":       func(m *Manifest) { m.Tensors = make([]Tensor, MaxTensors+1) },
		"shards":        func(m *Manifest) { m.Shards = make([]Shard, MaxShards+1) },
		"pieces":        func(m *Manifest) { m.Tensors[3].Pieces = make([]Piece, MaxPieces+1) },
	} {
		m, err := Parse(sealed(good2))
		must(t, err)
		add(m)
		if err := m.check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// fill gives a map n keys.
func fill[V any](m map[string]V, n int) {
	clear(m)
	for i := range n {
		var zero V
		m[fmt.Sprint(i)] = zero
	}
}

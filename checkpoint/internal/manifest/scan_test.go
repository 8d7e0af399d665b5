package manifest

import (
	"fmt"
	"strings"
	"testing"
)

// TestHostileManifestsAreCheap: 1 KiB costs less than 1 MiB, and the largest a bounded multiple.
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
	// More than any good manifest has is refused before it is decoded.
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

// TestScanCountsWhatWouldBeAllocated: what would be allocated is counted, what passes as raw text is not.
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

// TestErrorsQuoteShortly: text of any length, in every place from which an error quotes.
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
		if err == nil || len(err.Error()) > 600 { // 80 bytes as \x7f, or 240 of encoding/json's with those
			t.Errorf("%s: an error of %d bytes", test.name, len(fmt.Sprint(err)))
		}
	}
	record := strings.Replace(goodRecord, "step-", strings.Repeat("x", 1<<15), 1)
	if _, err := ParseRecord(sealed(record)); err == nil || len(err.Error()) > 300 {
		t.Errorf("record: an error of %d bytes", len(fmt.Sprint(err)))
	}
}

// TestLargeHostileManifestsAreCheap: none takes long, or much more memory than itself.
func TestLargeHostileManifestsAreCheap(t *testing.T) { // not parallel: it counts what the process allocates
	const size = 1 << 20 // a 64th of what is allowed: the cost is in proportion
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
		if cost := allocated(func() { _, err = Parse(data) }); err == nil || cost > 20*size { // freed as it goes, most of it
			t.Errorf("%.30s...: error %v, cost %d times its size", body, err, cost/size)
		}
	}
}

// TestTooManyOfAKindAreRefused: one more of what has a limit than the limit.
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

package manifest

import (
	"bytes"
	"encoding/json"
	"testing"
)

// cheap fails if parsing a hostile text allocates more than a file of 1 KiB may cost (issue D).
func cheap(t *testing.T, text []byte, parse func()) {
	t.Helper()
	const limit = 64 << 20
	if cost := allocated(parse); cost > limit {
		t.Fatalf("%d bytes cost %d bytes of allocations", len(text), cost)
	}
}

// FuzzManifest checks that no manifest makes the parser panic or allocate much, and that what it accepts survives a round trip.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(good1))
	f.Add([]byte(good2))
	f.Add([]byte(`{"format":"ddpbatch checkpoint","version":3`))
	f.Add([]byte(`{"format":"ddpbatch checkpoint","version":2,"values":{"a":{"A":1,"\u0041":[ ]}},"tensors":null`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var m *Manifest
		var unsealed, err error
		cheap(t, body, func() {
			_, unsealed = Parse(body)
			m, err = Parse(sealed(string(body)))
		})
		if unsealed == nil && !bytes.HasSuffix(body, []byte(tailEnd)) {
			t.Fatal("accepted without a checksum")
		}
		if err != nil {
			return
		}
		if m.Version == 1 { // encode it as a program of today would have saved it
			m.Version = 0
			for i, tensor := range m.Tensors {
				if tensor.Pieces[0].Length == 0 {
					m.Tensors[i].Pieces = nil
				}
			}
		}
		data, err := m.Encode()
		if err != nil {
			t.Skip("a time that JSON cannot hold")
		}
		again, err := Parse(data)
		if err != nil {
			t.Fatalf("written again, it is refused: %v\n%s", err, data)
		}
		if twice, err := again.Encode(); err != nil || !bytes.Equal(twice, data) {
			t.Fatalf("written twice, it is\n%s\nnot\n%s (%v)", twice, data, err)
		}
	})
}

// FuzzScan checks that the first pass finds the same fields as encoding/json in every object that it accepts.
func FuzzScan(f *testing.F) {
	f.Add([]byte(good2 + "}"))
	f.Add([]byte(" { \"a\" : [ ] , \"\\u0061b\\\"\" : [ 1e5 , \"]}\\\\\", { } ],\"c\":null }\t"))
	f.Add([]byte(`{"":true,"\ud800":{"x":-0.1},"values":{"A":{"B":[[]]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := scan(data)
		if err != nil {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		if len(h.fields) != len(want) {
			t.Fatalf("fields %q, want %q", h.fields, want)
		}
		for name, text := range want {
			if h.fields[name] != string(text) {
				t.Errorf("field %q is %q, want %q", name, h.fields[name], text)
			}
		}
	})
}

// FuzzRecord is FuzzManifest for records.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(goodRecord))
	f.Add([]byte(`{"format":"ddpbatch attempt","version":2,"attempt":1,"resumed_step":-1,"resumed_folder":""`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var r Record
		var err error
		cheap(t, body, func() { r, err = ParseRecord(sealed(string(body))) })
		if err != nil {
			return
		}
		data, err := r.Encode()
		if err != nil {
			t.Skip("a time that JSON cannot hold")
		}
		again, err := ParseRecord(data)
		if err != nil {
			t.Fatalf("written again, it is refused: %v\n%s", err, data)
		}
		if twice, err := again.Encode(); err != nil || !bytes.Equal(twice, data) {
			t.Fatalf("written twice, it is\n%s\nnot\n%s (%v)", twice, data, err)
		}
	})
}

// FuzzNames checks that a name that can be parsed is exactly the name that would be written for its meaning.
func FuzzNames(f *testing.F) {
	tag := Tag{Attempt: 12, Run: testRun, Nonce: 3}
	for _, name := range []string{
		tag.ShardName(0, 1), tag.ShardName(65535, 65536) + TmpSuffix, tag.ManifestTmp(), tag.RecordTmp(), tag.ProbeName(),
		RecordName(3, 0xa), GateName(3, 0xa), StepFolder(7), FreshFolder(7, 1, 2), BrokenFolderAgain(FreshFolder(7, 1, 2), 3),
		PinName("best"), Name, DeletingName,
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if s, ok := parseShardName(name); ok {
			again := s.Tag.ShardName(s.Shard, s.Shards)
			if s.Tmp {
				again += TmpSuffix
			}
			wantName(t, again, name)
		} else if tag, ok := ParseTag(name); ok && name != tag.ManifestTmp() && name != tag.RecordTmp() && name != tag.ProbeName() {
			t.Errorf("%q has the tag %v, but no function of Tag gives it", name, tag)
		}
		if folder, ok := ParseFolder(name); ok {
			wantName(t, folder.String(), name)
		}
		if attempt, run, ok := ParseRecordName(name); ok {
			wantName(t, RecordName(attempt, run), name)
		}
		if attempt, run, ok := ParseGateName(name); ok {
			wantName(t, GateName(attempt, run), name)
		}
		if label, ok := ParsePin(name); ok {
			wantName(t, PinName(label), name)
		}
	})
}

func wantName(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%q is read as what is written %q", want, got)
	}
}

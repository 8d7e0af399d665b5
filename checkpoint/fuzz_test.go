package checkpoint

import (
	"bytes"
	"testing"
)

// FuzzManifest: no manifest makes the parser panic, and what it accepts survives a round trip.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(goodManifest))
	f.Add([]byte(`{"format":"ddpbatch checkpoint","version":2`))
	f.Add([]byte(`{"values":{"a":{"A":1}},"tensors":null`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := parseManifest(body); err == nil && !bytes.HasSuffix(body, []byte(tailEnd)) {
			t.Fatal("accepted without a checksum")
		}
		m, err := parseManifest(sealed(string(body)))
		if err != nil {
			return
		}
		data, err := m.encode()
		if err != nil {
			t.Skip("a time that JSON cannot hold")
		}
		again, err := parseManifest(data)
		if err != nil {
			t.Fatalf("written again, it is refused: %v\n%s", err, data)
		}
		if twice, err := again.encode(); err != nil || !bytes.Equal(twice, data) {
			t.Fatalf("written twice, it is\n%s\nnot\n%s (%v)", twice, data, err)
		}
	})
}

// FuzzShard: no shard file, its checksums made right, makes the reader panic or read beyond what
// its own chunk table has room for.
func FuzzShard(f *testing.F) {
	m := newMem(f)
	d := openDir(f, Options{FS: m})
	s := testState(1, 0)
	save(f, d, s)
	f.Add(readFile(f, m, find(f, m, d.stepPath(1), "shard-")))
	f.Add([]byte(shardMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		for range 2 {
			d := plantShard(t, newMem(t), data, testRecords, testRaw)
			state, err := d.Load(t.Context(), 1)
			if err == nil && len(state.Tensors) != len(s.Tensors) {
				t.Fatalf("%d tensors", len(state.Tensors))
			}
			data = bytes.Clone(data)
			reseal(data)
		}
	})
}

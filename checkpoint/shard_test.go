package checkpoint

import (
	"encoding/binary"
	"strings"
	"testing"
)

// The records of testState's tensors, by hand: 30 x 10 x 4, 2000, 0 and 8 bytes.
const (
	testRaw     = 3208
	testRecords = `{"name":"layer.weight","dtype":"float32","shape":[30,10],"shard":0,"offset":0,"length":1200},
		{"name":"zeros","dtype":"uint8","shape":[2000],"shard":0,"offset":1200,"length":2000},
		{"name":"empty","dtype":"int64","shape":[0,3],"shard":0,"offset":3200,"length":0},
		{"name":"scalar","dtype":"int64","shape":[],"shard":0,"offset":3200,"length":8}`
)

// TestShardIsRefused changes one thing in a shard, and makes every checksum right again, the
// manifest's too: only what the bytes mean can give it away.
func TestShardIsRefused(t *testing.T) {
	t.Parallel()
	le := binary.LittleEndian
	m := newMem(t)
	d := openDir(t, Options{FS: m})
	save(t, d, testState(1, 0))
	good := readFile(t, m, find(t, m, d.stepPath(1), "shard-"))
	table := len(good) - trailerBytes - 3*entryBytes
	tests := []struct {
		name   string
		change func(b []byte)
		want   string
	}{
		{"nothing", func([]byte) {}, ""},
		{"magic", func(b []byte) { b[0] = 'P' }, "not a shard"},
		{"version 0", func(b []byte) { b[8] = 0 }, "version is 0"},
		{"header's length", func(b []byte) { b[12] = 128 }, "constant"},
		{"step", func(b []byte) { b[16] = 2 }, "manifest asks"},
		{"shard", func(b []byte) { b[24] = 1 }, "manifest asks"},
		{"shards", func(b []byte) { b[28] = 2 }, "manifest asks"},
		{"tensors", func(b []byte) { b[32] = 3 }, "manifest asks"},
		{"chunks", func(b []byte) { le.PutUint32(b[36:], 1<<31) }, "manifest asks"},
		{"raw bytes", func(b []byte) { le.PutUint64(b[40:], 1<<60) }, "manifest asks"},
		{"chunk size", func(b []byte) { b[50] = 8 }, "constant"},
		{"reserved", func(b []byte) { b[59] = 1 }, "constant"},
		{"end", func(b []byte) { b[len(b)-1] = 0 }, "not the end"},
		{"table's offset", func(b []byte) { le.PutUint64(b[len(b)-32:], 64) }, "does not fit"},
		{"table's offset overflows", func(b []byte) { le.PutUint64(b[len(b)-32:], 1<<63) }, "does not fit"},
		{"table's length", func(b []byte) { le.PutUint64(b[len(b)-24:], 32) }, "does not fit"},
		{"table's length overflows", func(b []byte) { le.PutUint64(b[len(b)-24:], 1<<63) }, "does not fit"},
		{"stored bytes, fewer", func(b []byte) { le.PutUint32(b[table+16:], le.Uint32(b[table+16:])-1) }, "1 bytes less"},
		{"stored bytes, more", func(b []byte) { le.PutUint32(b[table+16:], le.Uint32(b[table+16:])+1) }, "-1 bytes less"},
		{"stored bytes, none", func(b []byte) { le.PutUint32(b[table+16:], 0) }, `tensor "zeros"`},
		{"stored bytes, more than raw", func(b []byte) { le.PutUint32(b[table+16:], 2000) }, `tensor "zeros"`},
		{"raw bytes of a chunk", func(b []byte) { le.PutUint32(b[table+16+4:], 2001) }, `tensor "zeros"`},
		{"codec", func(b []byte) { b[table+16+12] = 2 }, `tensor "zeros"`},
		{"compressed called raw", func(b []byte) { b[table+16+12] = chunkRaw }, `tensor "zeros"`},
		{"reserved in the table", func(b []byte) { b[table+16+15] = 1 }, `tensor "zeros"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			data := append([]byte(nil), good...)
			test.change(data)
			reseal(data)
			err := plantShard(t, newMem(t), data, testRecords, testRaw).Verify(t.Context(), 1)
			if test.want == "" {
				must(t, err)
				return
			}
			wantErr(t, "Verify", err, ErrCorrupt)
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

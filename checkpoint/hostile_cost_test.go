package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
)

const hostileCost = 64 << 20

// hostile is a small checkpoint. Tests act as an adversary who changes its files at will and corrects their checksums.
type hostile struct {
	fs                      *vfstest.Mem
	dir                     *checkpoint.Dir
	manifest, shard, record string // paths
	good                    map[string][]byte
	waited                  time.Duration // how long dir would have waited
}

func newHostile(t *testing.T, codec string) *hostile {
	h := &hostile{fs: vfstest.New(t), good: map[string][]byte{}}
	h.dir = hardOpen(t, checkpoint.Options{FS: h.fs, Codec: codec, Run: "hostile", Attempt: 1, Workers: 1})
	h.dir.CountWaits(&h.waited)
	need(t, h.dir.Begin(t.Context(), nil))
	half := make([]byte, 2*150)
	for i := range half {
		half[i] = byte(i * i >> 3 & 15)
	}
	_, err := h.dir.Save(t.Context(), &checkpoint.State{
		Step: 1, World: 1,
		Tensors: []checkpoint.Tensor{
			{Name: "a", DType: "uint8", Shape: []int{400}, Data: make([]byte, 400)},
			{Name: "b", DType: "bfloat16", Shape: []int{150}, Data: half},
		},
		Values:  map[string]json.RawMessage{"k": json.RawMessage(`[1,{"x":2}]`)},
		Metrics: map[string]float64{"loss": 0.5},
	})
	need(t, err)
	for _, path := range hardFiles(t, h.fs, hardPath) {
		switch base := filepath.Base(path); {
		case strings.HasPrefix(base, "MANIFEST"):
			h.manifest = path
		case strings.HasPrefix(base, "shard-"):
			h.shard = path
		case strings.HasPrefix(base, "attempt-"):
			h.record = path
		default:
			continue
		}
		h.good[path] = vfstest.Read(t, h.fs, path)
		if len(h.good[path]) > 1100 {
			t.Fatalf("%s has %d bytes, want about a KiB", path, len(h.good[path]))
		}
	}
	return h
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crcOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// sealText corrects the checksum at the end of a manifest or a record, if it still has one.
func sealText(data []byte) []byte {
	const tail = ",\n  \"crc32c\": \"00000000\"\n}\n"
	if len(data) < len(tail) {
		return data
	}
	body := bytes.Clone(data[:len(data)-len(tail)])
	return append(body, strings.Replace(tail, "00000000", fmt.Sprintf("%08x", crcOf(body)), 1)...)
}

// sealShard corrects the checksums of a shard as far as its table makes sense.
func sealShard(data []byte) {
	if len(data) < headerBytes+trailerBytes {
		return
	}
	le, size := binary.LittleEndian, uint64(len(data))
	trailer := data[size-trailerBytes:]
	if at, length := le.Uint64(trailer), le.Uint64(trailer[8:]); at <= size && length <= size-at {
		table := data[at : at+length]
		position := uint64(headerBytes)
		for e := 0; e+entryBytes <= len(table); e += entryBytes {
			stored := uint64(le.Uint32(table[e:]))
			if position+stored > size {
				break
			}
			le.PutUint32(table[e+8:], crcOf(data[position:position+stored]))
			position += stored
		}
		le.PutUint32(trailer[16:], crcOf(table))
	}
	le.PutUint32(data[60:], crcOf(data[:60]))
	le.PutUint32(trailer[20:], crcOf(trailer[:20]))
}

var shardSums = regexp.MustCompile(`"size":\s*\d+,\s*"raw":\s*(\d+),\s*"crc32c":\s*"[0-9a-f]{8}"`)

// plant writes the changed files, and the good version of every other file. It adapts the manifest to a changed shard.
func (h *hostile) plant(t *testing.T, changed map[string][]byte) {
	for path, good := range h.good {
		if data, ok := changed[path]; ok {
			good = data
		}
		if path == h.manifest {
			if shard, ok := changed[h.shard]; ok {
				good = sealText(
					shardSums.ReplaceAll(good, fmt.Appendf(nil, `"size":%d,"raw":$1,"crc32c":"%08x"`, len(shard), crcOf(shard))))
			}
		}
		vfstest.Put(t, h.fs, path, good)
	}
}

var extremes = []uint64{0, 1, 0x7f, 0xff, 1 << 15, 1<<31 - 1, 1 << 31, math.MaxUint32, 1 << 49, 1 << 62, math.MaxInt64, math.MaxUint64}

// mutate returns a copy of data with one to three random changes.
func mutate(rng *rand.Rand, data []byte) []byte {
	out := bytes.Clone(data)
	for range 1 + rng.IntN(3) {
		at := rng.IntN(len(out))
		extreme := extremes[rng.IntN(len(extremes))]
		switch rng.IntN(6) {
		case 0:
			out[at] = byte(rng.Uint32())
		case 1:
			if at += at % 4; at+4 <= len(out) {
				binary.LittleEndian.PutUint32(out[at:], uint32(extreme))
			}
		case 2:
			if at+8 <= len(out) {
				binary.LittleEndian.PutUint64(out[at:], extreme)
			}
		case 3: // repeat some bytes
			end := min(len(out), at+1+rng.IntN(64))
			out = append(out[:end:end], append(bytes.Repeat(out[at:end], 1+rng.IntN(4)), out[end:]...)...)
		case 4: // remove some bytes
			end := min(len(out), at+rng.IntN(16))
			out = append(out[:at:at], out[end:]...)
		case 5:
			out[at] ^= 1 << rng.IntN(8)
		}
	}
	return out
}

var numbers = regexp.MustCompile(`\d+`)

// mutateText replaces a number, or changes bytes as mutate does.
func mutateText(rng *rand.Rand, data []byte) []byte {
	found := numbers.FindAllIndex(data, -1)
	if rng.IntN(3) == 0 || len(found) == 0 {
		return mutate(rng, data)
	}
	at := found[rng.IntN(len(found))]
	number := fmt.Sprint(extremes[rng.IntN(len(extremes))])
	if rng.IntN(4) == 0 {
		number = "-" + number
	}
	return append(append(bytes.Clone(data[:at[0]]), number...), data[at[1]:]...)
}

// TestHostileFilesAreCheap changes files of about 1 KiB at random, and corrects every checksum. Reading them must not panic, take more than
// 5 seconds, or allocate more than 64 MiB on the heap.
func TestHostileFilesAreCheap(t *testing.T) { // not parallel: it counts what the process allocates; without the race detector
	const seed = 31
	rounds := 3000 / thin.Step(10)
	rng := rand.New(rand.NewPCG(seed, 0))
	loaded := 0
	for _, codec := range []string{"auto", "zstd", "none"} {
		h := newHostile(t, codec)
		for round := range rounds {
			changed := map[string][]byte{}
			switch rng.IntN(4) {
			case 0:
				changed[h.manifest] = sealText(mutateText(rng, h.good[h.manifest]))
			case 1:
				changed[h.record] = sealText(mutateText(rng, h.good[h.record]))
			default:
				shard := mutate(rng, h.good[h.shard])
				sealShard(shard)
				changed[h.shard] = shard
			}
			h.plant(t, changed)
			var err error
			h.waited = 0
			start := cpuTime(t)
			cost := heapCost(func() { err = h.readAll() })
			if took := cpuTime(t) - start + h.waited; cost > hostileCost || took > 5*time.Second {
				t.Fatalf("seed %d, codec %s, round %d: %d bytes and %v for reading %q", seed, codec, round, cost, took, changed)
			}
			if err == nil {
				loaded++
			}
		}
		h.plant(t, nil)
		need(t, h.readAll())
	}
	if loaded == 0 || loaded > 2*rounds {
		t.Errorf("%d of %d changed checkpoints could be loaded: the changes do not test anything", loaded, 3*rounds)
	}
}

func (h *hostile) readAll() error {
	ctx := context.Background()
	if _, err := h.dir.List(ctx); err != nil {
		return err
	}
	if _, _, err := h.dir.Latest(ctx); err != nil {
		return err
	}
	return checkpoint.VerifyStep(ctx, h.dir, 1)
}

// cpuTime returns the processor time of this process so far, which does not depend on how busy the machine is.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	need(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// heapCost returns how many bytes a function allocates on the heap, including those that are freed again.
func heapCost(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestHostileTextIsCheap reads manifests and records of 1 KiB that consist almost only of JSON structure.
func TestHostileTextIsCheap(t *testing.T) { // not parallel: as above; without the race detector
	h := newHostile(t, "none")
	head := string(h.good[h.manifest][:bytes.IndexByte(h.good[h.manifest], ',')])
	for name, body := range map[string]string{
		"depth":      head + `,"values":{"k":` + strings.Repeat("[", 500) + strings.Repeat("]", 400) + `}`,
		"empty maps": head + `,"tensors":[` + strings.TrimSuffix(strings.Repeat("{},", 300), ",") + `]`,
		"pieces": head + `,"tensors":[{"name":"a","dtype":"uint8","shape":[1],"pieces":[` +
			strings.TrimSuffix(strings.Repeat("[0,0,0,1],", 90), ",") + `]}]`,
		"shape": head + `,"tensors":[{"name":"a","dtype":"uint8","shape":[` + strings.TrimSuffix(strings.Repeat("1,", 480), ",") +
			`]}]`,
		"numbers":  head + `,"step":` + strings.Repeat("9", 900),
		"exponent": head + `,"metrics":{"loss":1e999999999}`,
		"escapes":  head + `,"run":"` + strings.Repeat(`\ud800`, 150) + `"`,
		"keys":     head + `,"values":{` + strings.TrimSuffix(strings.Repeat(`"a":1,`, 150), ",") + `}`,
		"shards":   head + `,"shards":[` + strings.TrimSuffix(strings.Repeat(`{"file":""},`, 80), ",") + `]`,
	} {
		text := fmt.Appendf(nil, "%s,\n  \"crc32c\": \"%08x\"\n}\n", body, crcOf([]byte(body)))
		for _, path := range []string{h.manifest, h.record} {
			h.plant(t, map[string][]byte{path: text})
			var err error
			if cost := heapCost(func() { err = h.readAll() }); cost > hostileCost/16 {
				t.Errorf("%s in %s cost %d bytes", name, filepath.Base(path), cost)
			}
			if path == h.manifest && !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, checkpoint.ErrNone) {
				t.Errorf("%s in the manifest: %v, want that it is corrupt", name, err)
			}
		}
	}
}

// TestHostileSafetensorsAreCheap reads small safetensors files that were changed at random.
func TestHostileSafetensorsAreCheap(t *testing.T) { // not parallel: as above; without the race detector
	path := filepath.Join(t.TempDir(), "a.safetensors")
	tensors := []checkpoint.Tensor{
		{Name: "a", DType: "uint8", Shape: []int{40}, Data: make([]byte, 40)},
		{Name: "b", DType: "bfloat16", Shape: []int{3, 5}, Data: make([]byte, 30)},
		{Name: "c", DType: "float32", Shape: []int{}, Data: make([]byte, 4)},
	}
	need(t, safetensors.Write(path, tensors, nil))
	good, err := os.ReadFile(path)
	need(t, err)
	rng := rand.New(rand.NewPCG(37, 0))
	for round := range 2000 / thin.Step(10) {
		data := mutateText(rng, good)
		if rng.IntN(2) == 0 { // the length of the header, which is read first
			binary.LittleEndian.PutUint64(data, extremes[rng.IntN(len(extremes))])
		}
		need(t, os.WriteFile(path, data, 0o644))
		if cost := heapCost(func() { _, _, err = safetensors.ReadFile(path) }); cost > hostileCost {
			t.Fatalf("round %d: %d bytes for reading %q", round, cost, data)
		}
	}
}

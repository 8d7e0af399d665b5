package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
)

// damaged is a folder with two good checkpoints, of steps 1 and 2. Tests damage the second one.
type damaged struct {
	fs              *vfstest.Mem
	dir             *Dir
	manifest, shard string
	log             bytes.Buffer
}

func newDamaged(t *testing.T, codec string, second *State) *damaged {
	d := &damaged{fs: vfstest.New(t)}
	d.dir = openDir(t, Options{FS: d.fs, Codec: codec, Log: logTo(&d.log)})
	save(t, d.dir, testState(1, 0))
	save(t, d.dir, second)
	d.manifest = filepath.Join(d.dir.stepPath(2), manifest.Name)
	d.shard = find(t, d.fs, d.dir.stepPath(2), "shard-")
	return d
}

// wantFallback replaces a file of step 2 with data. It wants Verify to report that step 2 is corrupt and to name the file, and Latest to
// fall back to step 1 and log the reason.
func (d *damaged) wantFallback(t *testing.T, what, path string, data []byte) *CorruptError {
	t.Helper()
	vfstest.Put(t, d.fs, path, data)
	err := VerifyStep(context.Background(), d.dir, 2)
	bad, ok := errors.AsType[*CorruptError](err)
	if !ok || !errors.Is(err, ErrCorrupt) || bad.Path != path || strings.Count(err.Error(), "checkpoint of step 2:") != 1 {
		t.Fatalf("%s: Verify says %v, want that %s is corrupt", what, err, path)
	}
	d.log.Reset()
	s, info, err := d.dir.Latest(context.Background())
	if err != nil || info.Step != 1 {
		t.Fatalf("%s: Latest gives step %d, %v", what, info.Step, err)
	}
	wantState(t, s, testState(1, 0))
	for _, word := range []string{"level=WARN", "step-000000000002", filepath.Base(path), bad.Tensor} {
		if !strings.Contains(d.log.String(), word) {
			t.Fatalf("%s: the log does not say %q: %s", what, word, &d.log)
		}
	}
	if strings.Contains(d.log.String(), `=""`) {
		t.Fatalf("%s: the log has empty fields: %s", what, &d.log)
	}
	return bad
}

func flip(data []byte, bit int) []byte {
	out := bytes.Clone(data)
	out[bit/8] ^= 1 << (bit % 8)
	return out
}

// TestFlippedBitOfTheManifestFallsBack and the tests below flip only some of the bits. TestEveryFlippedBitOfAManifestIsFound and
// TestEveryFlippedBitOfAFrameIsFound flip all bits, but check less.
func TestFlippedBitOfTheManifestFallsBack(t *testing.T) { // without the race detector
	t.Parallel()
	d := newDamaged(t, "none", testState(2, 0))
	good := vfstest.Read(t, d.fs, d.manifest)
	for bit := 0; bit < 8*len(good); bit += 7 * thin.Step(3) {
		d.wantFallback(t, fmt.Sprintf("bit %d of the manifest", bit), d.manifest, flip(good, bit))
	}
	vfstest.Put(t, d.fs, d.manifest, good)
	must(t, VerifyStep(context.Background(), d.dir, 2))
}

func TestFlippedBitOfTheFrameFallsBack(t *testing.T) { // without the race detector
	t.Parallel()
	d := newDamaged(t, "none", testState(2, 0))
	good := vfstest.Read(t, d.fs, d.shard)
	const chunks = 3 // of testState: weights, zeros and the scalar
	tail := len(good) - trailerBytes - chunks*entryBytes
	for bit := 0; bit < 8*len(good); bit += 3 {
		if at := bit / 8; at >= headerBytes && at < tail {
			continue // TestFlippedBitOfDataNamesItsTensor covers the chunks
		}
		d.wantFallback(t, "a bit of header, table or trailer", d.shard, flip(good, bit))
	}
}

// The error about a flipped bit of data names the tensor and the chunk.
func TestFlippedBitOfDataNamesItsTensor(t *testing.T) { // without the race detector
	t.Parallel()
	s := &State{Step: 2, World: 1, Tensors: []Tensor{
		{Name: "first", DType: "uint8", Shape: []int{chunk.MaxBytes + 1000}, Data: make([]byte, chunk.MaxBytes+1000)},
		{Name: "second", DType: "uint8", Shape: []int{5000}, Data: make([]byte, 5000)},
	}}
	fillNoise(s.Tensors[0].Data, 1) // stored without compression
	for i := range s.Tensors[1].Data {
		s.Tensors[1].Data[i] = byte(i * i % 7) // stored compressed
	}
	d := newDamaged(t, "auto", s)
	good := vfstest.Read(t, d.fs, d.shard)
	tail := len(good) - trailerBytes - 3*entryBytes
	const seed = 5
	flips := 300 / thin.Step(5)
	t.Logf("seed %d, %d flips in %d bytes", seed, flips, tail-headerBytes)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range flips {
		at := headerBytes + rng.IntN(tail-headerBytes)
		if i%4 == 0 { // in the small tensor
			at = headerBytes + chunk.MaxBytes + 1000 + rng.IntN(tail-headerBytes-chunk.MaxBytes-1000)
		}
		tensor, which := "first", "chunk 1 of 2"
		switch {
		case at >= headerBytes+chunk.MaxBytes+1000:
			tensor, which = "second", "chunk 1 of 1"
		case at >= headerBytes+chunk.MaxBytes:
			which = "chunk 2 of 2"
		}
		bad := d.wantFallback(t, "a bit of the data", d.shard, flip(good, 8*at+rng.IntN(8)))
		if bad.Tensor != tensor || !strings.Contains(bad.Detail, which) {
			t.Fatalf("byte %d: %v; want %s of tensor %q", at, bad, which, tensor)
		}
	}
}

func TestTruncationAtEveryLengthFallsBack(t *testing.T) {
	t.Parallel()
	d := newDamaged(t, "none", testState(2, 0))
	for _, path := range []string{d.manifest, d.shard} {
		good := vfstest.Read(t, d.fs, path)
		for n := range len(good) {
			if data := path == d.shard && n > headerBytes && n < len(good)-200; data && n%31 != 0 {
				continue // inside the chunks, some of the lengths are enough
			}
			d.wantFallback(t, "cut short", path, good[:n])
		}
		d.wantFallback(t, "a byte more", path, append(bytes.Clone(good), '\n'))
		vfstest.Put(t, d.fs, path, good)
	}
}

func TestMissingShardFallsBack(t *testing.T) {
	t.Parallel()
	d := newDamaged(t, "none", testState(2, 0))
	must(t, d.fs.Remove(d.shard))
	err := VerifyStep(context.Background(), d.dir, 2)
	if bad, ok := errors.AsType[*CorruptError](err); !ok || bad.Path != d.shard || !strings.Contains(bad.Detail, "missing") {
		t.Fatalf("error %v, want that the shard is missing", err)
	}
	_, info, err := d.dir.Latest(context.Background())
	must(t, err)
	if info.Step != 1 {
		t.Errorf("Latest gives step %d", info.Step)
	}
}

// TestSwappedFilesFallBack puts files that are whole in the wrong places.
func TestSwappedFilesFallBack(t *testing.T) {
	t.Parallel()
	d := newDamaged(t, "none", testState(2, 0))
	otherShard := vfstest.Read(t, d.fs, find(t, d.fs, d.dir.stepPath(1), "shard-"))
	goodShard := vfstest.Read(t, d.fs, d.shard)
	d.wantFallback(t, "shard of another step", d.shard, otherShard)

	// The step, the sizes and the tensors are the same, but the values differ. Only the checksum in the manifest shows that.
	d = newDamaged(t, "none", testState(2, 1))
	if bad := d.wantFallback(t, "shard of another save", d.shard, goodShard); !strings.Contains(bad.Detail, "file's checksum") {
		t.Errorf("found by %q", bad.Detail)
	}
	d.wantFallback(t, "manifest of another step", d.manifest, vfstest.Read(t, d.fs, filepath.Join(d.dir.stepPath(1), manifest.Name)))
}

func TestAllCorruptIsErrCorrupt(t *testing.T) {
	t.Parallel()
	d := newDamaged(t, "none", testState(2, 0))
	for _, step := range []int64{1, 2} {
		path := find(t, d.fs, d.dir.stepPath(step), "shard-")
		vfstest.Put(t, d.fs, path, flip(vfstest.Read(t, d.fs, path), 8*100))
	}
	before := tree(t, d.fs)
	_, _, err := d.dir.Latest(context.Background())
	wantErr(t, "Latest", err, ErrCorrupt)
	if errors.Is(err, ErrNone) {
		t.Error("all corrupt is taken for none")
	}
	if bad, ok := errors.AsType[*CorruptError](err); !ok || bad.Path != d.shard {
		t.Errorf("error %v does not name the newest shard", err)
	}
	if after := tree(t, d.fs); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("Latest changed the folder from\n%v to\n%v", before, after)
	}
}

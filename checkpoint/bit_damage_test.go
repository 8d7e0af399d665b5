package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
)

// victim is a folder with checkpoints of steps 10 (full), 20 (full, 2 shards) and 30 (a delta of 20). Step 10 stays good, whatever a test
// damages in steps 20 and 30.
type victim struct {
	fs   *vfstest.Mem
	dir  *checkpoint.Dir
	base string // the folder of step 20
	last string // the folder of step 30

	detected int
}

func newVictim(t *testing.T, codec string) *victim {
	v := &victim{fs: vfstest.New(t)}
	v.dir = hardOpen(t, checkpoint.Options{FS: v.fs, Codec: codec, Run: "victim", Attempt: 1})
	ctx := t.Context()
	need(t, v.dir.Begin(ctx, nil))
	_, err := v.dir.Save(ctx, hardState(10, 0))
	need(t, err)
	need(t, draftSave(v.dir, hardState(20, 0), 2, nil, nil))
	base, err := v.dir.Find(ctx, 20)
	need(t, err)
	need(t, draftSave(v.dir, v.near(), 2, base, hardState(20, 0)))
	v.base = filepath.Join(hardPath, base.Folder())
	need(t, base.Close())
	last, err := v.dir.FindLatest(ctx)
	need(t, err)
	if last.Step() != 30 || last.Info().BaseStep != 20 {
		t.Fatalf("the latest is step %d with base %d, want 30 with 20", last.Step(), last.Info().BaseStep)
	}
	v.last = filepath.Join(hardPath, last.Folder())
	need(t, last.Close())
	s, err := v.dir.Load(ctx, 30)
	need(t, err)
	need(t, hardSame(s, v.near()))
	return v
}

// near returns the state of step 30. It is close to step 20, and in some places equal to it, so that deltas save space.
func (v *victim) near() *checkpoint.State {
	s := hardState(20, 0)
	s.Step = 30
	for _, tensor := range s.Tensors {
		for i := 0; i < len(tensor.Data)/2; i += 16 {
			tensor.Data[i]++
		}
	}
	return s
}

// files returns the paths of a checkpoint's files whose names contain part.
func (v *victim) files(t *testing.T, folder, part string) (paths []string) {
	for _, path := range hardFiles(t, v.fs, folder) {
		if strings.Contains(filepath.Base(path), part) {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		t.Fatalf("no file with %q in %s: %v", part, folder, hardFiles(t, v.fs, folder))
	}
	return paths
}

// wantDetected replaces a file with data, and wants Find to report that step 30 is corrupt. On one call of 32 it also wants FindLatest to
// fall back to step left; it does not do so on every call because FindLatest reads all that is there.
func (v *victim) wantDetected(t *testing.T, what, path string, data []byte, left int64) {
	t.Helper()
	vfstest.Put(t, v.fs, path, data)
	if _, err := v.dir.Find(context.Background(), 30); !errors.Is(err, checkpoint.ErrCorrupt) {
		t.Fatalf("%s: Find of step 30 says %v, want that it is corrupt", what, err)
	}
	if v.detected++; v.detected%32 != 1 {
		return
	}
	c, err := v.dir.FindLatest(context.Background())
	if err != nil {
		t.Fatalf("%s: FindLatest: %v, want step %d", what, err, left)
	}
	defer c.Close()
	if c.Step() != left {
		t.Fatalf("%s: FindLatest gives step %d, want %d", what, c.Step(), left)
	}
}

func flipped(data []byte, bit int) []byte {
	out := bytes.Clone(data)
	out[bit/8] ^= 1 << (bit % 8)
	return out
}

// TestEveryFlippedBitOfAManifestIsFound flips every bit of the manifest of a delta and of its base.
func TestEveryFlippedBitOfAManifestIsFound(t *testing.T) { // without the race detector
	t.Parallel()
	v := newVictim(t, "auto")
	for folder, left := range map[string]int64{v.last: 20, v.base: 10} {
		path := v.files(t, folder, "MANIFEST")[0]
		good := vfstest.Read(t, v.fs, path)
		for bit := 0; bit < 8*len(good); bit += thin.Step(13) {
			v.wantDetected(t, fmt.Sprintf("bit %d of %s", bit, path), path, flipped(good, bit), left)
		}
		for n := 0; n < len(good); n += thin.Step(13) {
			v.wantDetected(t, fmt.Sprintf("%s cut to %d", path, n), path, good[:n], left)
		}
		vfstest.Put(t, v.fs, path, good)
	}
	need(t, checkpoint.VerifyStep(t.Context(), v.dir, 30))
}

// headerBytes, entryBytes and trailerBytes are the lengths that docs/format.md gives.
const (
	headerBytes  = 64
	entryBytes   = 16
	trailerBytes = 32
)

// TestEveryFlippedBitOfAFrameIsFound flips every bit of the header, the table and the trailer of every shard, and cuts the shard short at
// every byte of them. Find must detect the damage without reading data.
func TestEveryFlippedBitOfAFrameIsFound(t *testing.T) { // without the race detector
	t.Parallel()
	v := newVictim(t, "auto")
	for folder, left := range map[string]int64{v.last: 20, v.base: 10} {
		for _, path := range v.files(t, folder, "shard-") {
			good := vfstest.Read(t, v.fs, path)
			chunks := 0 // one for each piece, since all pieces are short
			for _, tensor := range hardState(20, 0).Tensors {
				if len(tensor.Data) > 8 || len(tensor.Data) > 0 && strings.Contains(path, "shard-00001") {
					chunks++ // only the last writer has the scalar
				}
			}
			tail := len(good) - trailerBytes - chunks*entryBytes
			for at := range good {
				if at >= headerBytes && at < tail {
					continue // data
				}
				for bit := at % thin.Step(8); bit < 8; bit += thin.Step(8) {
					v.wantDetected(t, fmt.Sprintf("bit %d of byte %d of %d of %s", bit, at, len(good), path), path,
						flipped(good, 8*at+bit), left)
				}
				if at%thin.Step(5) == 0 {
					v.wantDetected(t, fmt.Sprintf("%s cut to %d", path, at), path, good[:at], left)
				}
			}
			v.wantDetected(t, path+" with a byte more", path, append(bytes.Clone(good), 0), left)
			vfstest.Put(t, v.fs, path, good)
		}
	}
	need(t, checkpoint.VerifyStep(t.Context(), v.dir, 30))
}

// TestFlippedBitsOfDataAreFound flips 10,000 random bits in the data of a delta and of its base, one at a time. Loading the delta need not
// detect damage to base chunks that it does not build on, but must return the right bytes then.
func TestFlippedBitsOfDataAreFound(t *testing.T) { // without the race detector
	t.Parallel()
	const seed = 17
	flips := 10_000 / thin.Step(10)
	rng := rand.New(rand.NewPCG(seed, 0))
	codecs := []string{"auto", "zstd", "none"}
	for i, codec := range codecs {
		v := newVictim(t, codec)
		shards := append(v.files(t, v.last, "shard-"), v.files(t, v.base, "shard-")...)
		for n := flips * i / len(codecs); n < flips*(i+1)/len(codecs); n++ {
			path := shards[n%len(shards)]
			good := vfstest.Read(t, v.fs, path)
			bit := 8*headerBytes + rng.IntN(8*(len(good)-headerBytes))
			vfstest.Put(t, v.fs, path, flipped(good, bit))
			step := int64(30)
			if filepath.Dir(path) == v.base {
				step = 20
			}
			err := checkpoint.VerifyStep(t.Context(), v.dir, step)
			if !errors.Is(err, checkpoint.ErrCorrupt) {
				t.Fatalf("seed %d, codec %s, bit %d of %s: Verify says %v", seed, codecs[i], bit, path, err)
			}
			if rng.IntN(16) > 0 {
				vfstest.Put(t, v.fs, path, good)
				continue
			}
			if s, err := v.dir.Load(t.Context(), 30); err == nil {
				need(t, hardSame(s, v.near()))
			} else if !errors.Is(err, checkpoint.ErrCorrupt) {
				t.Fatalf("seed %d, codec %s, bit %d of %s: Load says %v", seed, codecs[i], bit, path, err)
			}
			vfstest.Put(t, v.fs, path, good)
		}
		need(t, checkpoint.VerifyStep(t.Context(), v.dir, 30))
	}
}

// TestSwappedFilesAreFound replaces files with whole files from other places.
func TestSwappedFilesAreFound(t *testing.T) { // without the race detector
	t.Parallel()
	v := newVictim(t, "none")
	shards := v.files(t, v.last, "shard-")
	first, second := vfstest.Read(t, v.fs, shards[0]), vfstest.Read(t, v.fs, shards[1])
	v.wantDetected(t, "shard 1 in the place of shard 0", shards[0], second, 20)
	vfstest.Put(t, v.fs, shards[0], first)
	old := vfstest.Read(t, v.fs, v.files(t, v.base, "shard-00000")[0])
	v.wantDetected(t, "the base's shard in the place of the delta's", shards[0], old, 20)
	vfstest.Put(t, v.fs, shards[0], first)
	path := v.files(t, v.last, "MANIFEST")[0]
	v.wantDetected(t, "the base's manifest in the place of the delta's", path, vfstest.Read(t, v.fs, v.files(t, v.base, "MANIFEST")[0]), 20)
}

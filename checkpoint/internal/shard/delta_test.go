package shard

import (
	"bytes"
	"strings"
	"testing"
)

// deltaOf is a shard whose chunks are differences from a base that differs in few bytes, and the base's.
func deltaOf(t *testing.T) (delta, base []Source, deltaFile, baseFile []byte) {
	t.Helper()
	base = []Source{source("w", float32s, weights(1, 3*chunkBytes)), source("v", float32s, weights(2, 400))}
	for _, s := range base {
		s.Base, s.Data = s.Data, bytes.Clone(s.Data)
		for i := 0; i < len(s.Data); i += 40 {
			s.Data[i]++
		}
		delta = append(delta, s)
	}
	baseFile, _ = write(t, base, WriteOptions{})
	deltaFile, _ = write(t, delta, WriteOptions{})
	return delta, base, deltaFile, baseFile
}

func TestDelta(t *testing.T) {
	t.Parallel()
	delta, base, deltaFile, baseFile := deltaOf(t)
	if len(deltaFile) > len(baseFile)/2 {
		t.Errorf("the differences take %d bytes, the base %d", len(deltaFile), len(baseFile))
	}
	r, b := open(t, deltaFile, delta), open(t, baseFile, base)
	if !r.IsDelta() || b.IsDelta() {
		t.Error("IsDelta is wrong")
	}
	damage := wantDamage(t, "no base", r.Verify(t.Context(), 1))
	if !strings.Contains(damage.Detail, "there is none") {
		t.Errorf("no base: %v", damage)
	}
	must(t, r.SetBase(b))
	must(t, r.Verify(t.Context(), 2))
	wantData(t, r, delta, 2)
	got := make([]byte, 100)
	must(t, r.Read(t.Context(), 0, chunkBytes-50, got, 1))
	if !bytes.Equal(got, delta[0].Data[chunkBytes-50:][:100]) {
		t.Error("a range over two chunks is read as other bytes")
	}
}

func TestBaseIsRefused(t *testing.T) {
	t.Parallel()
	delta, base, deltaFile, baseFile := deltaOf(t)
	r := open(t, deltaFile, delta)
	wantDamage(t, "a base that is a difference", r.SetBase(open(t, deltaFile, delta)))
	wantDamage(t, "fewer pieces", r.SetBase(open(t, mustFile(t, base[:1]), base[:1])))
	other := []Source{base[0], source("other", float32s, base[1].Data)}
	if damage := wantDamage(t, "another piece", r.SetBase(open(t, mustFile(t, other), other))); damage.Name != "v" {
		t.Errorf("another piece: %v", damage)
	}
	b := open(t, baseFile, base)
	baseFile[headerBytes+9] ^= 4
	must(t, r.SetBase(b))
	damage := wantDamage(t, "a base with a flipped bit", r.Verify(t.Context(), 1))
	if !strings.HasPrefix(damage.Detail, "in the base, chunk 1 of 3: its checksum") {
		t.Errorf("a base with a flipped bit: %v", damage)
	}
}

// TestBaseInMemoryWasAnother: the bytes that were XORed with are not those of the base's file, as after a bit flipped in
// the memory of a host. Every stored byte is as it was written, and still nobody gets other data.
func TestBaseInMemoryWasAnother(t *testing.T) {
	t.Parallel()
	delta, base, _, baseFile := deltaOf(t)
	memory := bytes.Clone(delta[0].Base)
	memory[chunkBytes+12345] ^= 0x40
	delta[0].Base = memory
	r := open(t, mustFile(t, delta), delta)
	must(t, r.SetBase(open(t, baseFile, base)))
	for what, err := range map[string]error{
		"Verify": r.Verify(t.Context(), 2),
		"Read":   r.Read(t.Context(), 0, 0, make([]byte, delta[0].Length), 1),
	} {
		damage := wantDamage(t, what, err)
		if damage.Name != "w" || !strings.HasPrefix(damage.Detail, "chunk 2 of 3") || !strings.HasSuffix(damage.Detail, "the base is another one or damaged") {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, r.Read(t.Context(), 0, 0, make([]byte, chunkBytes), 1))
}

func mustFile(t *testing.T, sources []Source) []byte {
	t.Helper()
	file, _ := write(t, sources, WriteOptions{})
	return file
}

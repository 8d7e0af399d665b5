package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
)

// sealed adds the right checksum.
func sealed(body string) []byte {
	sum := crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(nil, "%s,\n  \"crc32c\": \"%08x\"\n}\n", body, sum)
}

// TestNewerFormat: the manifest of a newer program is neither read, nor called corrupt, nor
// passed over, nor removed.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m, Keep: Policy{Last: 2}})
	save(t, d, testState(1, 0))
	save(t, d, testState(2, 0))
	path := d.stepPath(2) + "/" + manifest.Name
	body, _, _ := strings.Cut(string(vfstest.Read(t, m, path)), ",\n  \"crc32c\"")
	body = strings.Replace(body, `"version": 2`, `"version": 12`, 1)
	body = strings.Replace(body, `"world": 4`, `"world": ["not what version 2 means"]`, 1)
	vfstest.Put(t, m, path, sealed(body))

	_, _, err := d.Latest(t.Context())
	wantErr(t, "Latest", err, ErrFormatTooNew)
	if errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "version 12") || !strings.Contains(err.Error(), "up to 2") {
		t.Errorf("error %v does not say the versions", err)
	}
	wantErr(t, "Verify", d.Verify(t.Context(), 2, true), ErrFormatTooNew)
	wantList(t, d, "1 committed, 2 newer")
	for step := int64(3); step < 6; step++ {
		save(t, d, testState(step, 0))
	}
	wantList(t, d, "1 committed, 2 newer, 4 committed, 5 committed") // step 1 may be the base of step 2
}

// TestNewerShard: likewise for a shard under a manifest of this version.
func TestNewerShard(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m})
	save(t, d, testState(1, 0))
	path := find(t, m, d.stepPath(1), "shard-")
	data := vfstest.Read(t, m, path)
	data[8] = 3
	binary.LittleEndian.PutUint32(data[60:], crc32.Checksum(data[:60], crc32.MakeTable(crc32.Castagnoli)))
	vfstest.Put(t, m, path, data)
	wantErr(t, "Verify", d.Verify(t.Context(), 1, true), ErrFormatTooNew)
}

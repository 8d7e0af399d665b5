package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

const (
	maxManifestBytes = 64 << 20
	maxShards        = 1 << 16
	maxShardBytes    = math.MaxInt64 / maxShards // so that sums do not overflow
	maxJSONDepth     = 64
)

// readManifest reads and checks the manifest of a step.
func (d *Dir) readManifest(path string, step int64) (*manifest, int64, error) {
	f, err := d.fs.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if info.Size() > maxManifestBytes {
		return nil, 0, corrupt(path, "it is %d bytes long, at most %d are allowed", info.Size(), maxManifestBytes)
	}
	data := make([]byte, info.Size())
	if _, err := f.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	m, err := parseManifest(data)
	if err != nil {
		return nil, 0, judge(path, err)
	}
	if m.Step != step {
		return nil, 0, corrupt(path, "it is the manifest of step %d", m.Step)
	}
	return m, info.Size(), nil
}

// parseManifest checks first the checksum, then the version, then all the rest, so that damage
// is never taken for a newer format, which is a newerVersion.
func parseManifest(data []byte) (*manifest, error) {
	if err := checkTail(data); err != nil {
		return nil, err
	}
	if err := checkKeys(data); err != nil {
		return nil, err
	}
	var head struct {
		Format  string `json:"format"`
		Version int64  `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	switch {
	case head.Format != formatName:
		return nil, fmt.Errorf("format is %q, not %q", head.Format, formatName)
	case head.Version > formatVersion:
		return nil, newerVersion(head.Version)
	case head.Version < 1:
		return nil, fmt.Errorf("version is %d", head.Version)
	}
	m := &manifest{}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// checkTail compares the manifest's checksum.
func checkTail(data []byte) error {
	if len(data) < tailBytes {
		return fmt.Errorf("it is cut short: %d bytes", len(data))
	}
	body, tail := data[:len(data)-tailBytes], data[len(data)-tailBytes:]
	digits := tail[len(tailStart) : len(tailStart)+8]
	var want checksum
	if !bytes.HasPrefix(tail, []byte(tailStart)) || !bytes.HasSuffix(tail, []byte(tailEnd)) || want.UnmarshalText(digits) != nil {
		return errors.New("it does not end in its checksum: cut short or changed")
	}
	if got := checksum(crc32.Checksum(body, castagnoli)); got != want {
		return fmt.Errorf("its checksum is %v, it says %v", got, want)
	}
	return nil
}

// check holds the fields against their limits and against each other.
func (m *manifest) check() error {
	switch {
	case m.Step < 0 || m.Step > maxStep:
		return fmt.Errorf("step is %d", m.Step)
	case m.World < 1 || m.World > maxWorld:
		return fmt.Errorf("world is %d", m.World)
	case m.Attempt < 0 || m.Attempt > maxAttempt:
		return fmt.Errorf("attempt is %d", m.Attempt)
	case len(m.Tensors) > maxTensors:
		return fmt.Errorf("%d tensors, at most %d are allowed", len(m.Tensors), maxTensors)
	case len(m.Shards) < 1 || len(m.Shards) > maxShards:
		return fmt.Errorf("%d shards, 1 to %d are allowed", len(m.Shards), maxShards)
	}
	for key := range m.Values {
		if !validKey(key) {
			return fmt.Errorf("key %q of a value is not [a-z0-9_.]{1,64}", key)
		}
	}
	for i, s := range m.Shards {
		if !isShardName(s.File, i, len(m.Shards)) {
			return fmt.Errorf("shard %d has the file name %q", i, s.File)
		}
		if s.Size < headerBytes+trailerBytes || s.Raw < 0 || s.Raw > maxRawBytes || s.Size > maxShardBytes {
			return fmt.Errorf("shard %d has %d bytes, %d raw", i, s.Size, s.Raw)
		}
	}
	return m.checkTensors()
}

func (m *manifest) checkTensors() error {
	seen := make(map[string]bool, len(m.Tensors))
	filled := make([]int64, len(m.Shards))
	for _, t := range m.Tensors {
		if err := checkTensorName(t.Name); err != nil {
			return err
		}
		if seen[t.Name] {
			return fmt.Errorf("tensor %q is there twice", t.Name)
		}
		seen[t.Name] = true
		size, err := byteSize(t.DType, t.Shape)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if t.Length != size {
			return fmt.Errorf("tensor %q: shape %v of %s needs %d bytes, not %d", t.Name, t.Shape, t.DType, size, t.Length)
		}
		if t.Shard < 0 || t.Shard >= len(m.Shards) {
			return fmt.Errorf("tensor %q is in shard %d of %d", t.Name, t.Shard, len(m.Shards))
		}
		if t.Offset != filled[t.Shard] {
			return fmt.Errorf("tensor %q begins at %d of shard %d, the one before ends at %d", t.Name, t.Offset, t.Shard, filled[t.Shard])
		}
		if filled[t.Shard] += size; filled[t.Shard] > m.Shards[t.Shard].Raw {
			return fmt.Errorf("tensor %q ends behind shard %d", t.Name, t.Shard)
		}
	}
	for i, s := range m.Shards {
		if filled[i] != s.Raw {
			return fmt.Errorf("shard %d holds %d raw bytes, its tensors %d", i, s.Raw, filled[i])
		}
	}
	return nil
}

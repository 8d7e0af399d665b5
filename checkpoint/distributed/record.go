package distributed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/replace"
	"ddpbatch/internal/vfs"
)

// record says what a shard on a node's own disk belongs to. It is all that any attempt needs to commit it, once all shards are
// found. A shard without a record is ignored.
type record struct {
	Run     string               `json:"run"`
	Path    string               `json:"path"` // of the shared folder
	Attempt int                  `json:"attempt"`
	Step    int64                `json:"step"`
	Shard   int                  `json:"shard"`
	Shards  int                  `json:"shards"`
	Info    checkpoint.ShardInfo `json:"info"`

	// Only in rank 0's record.
	World int   `json:"world,omitempty"`
	Plan  plan  `json:"plan,omitempty"`
	Meta  *Meta `json:"meta,omitempty"`
}

// A plan takes more bytes in a record than in a manifest, but less than twice as many. A record without a plan is small.
const (
	maxRecord      = 2 * manifest.MaxBytes
	maxSmallRecord = 64 << 10
)

// limit returns the maximum length of a shard's record.
func limit(shard int) int64 {
	if shard == 0 {
		return maxRecord
	}
	return maxSmallRecord
}

// errDamaged marks a record that was cut short by a crash, or is damaged otherwise. Its shard is ignored.
var errDamaged = errors.New("damaged record")

// write writes the record to the disk: JSON, and a line with its CRC-32C.
func (r record) write(ctx context.Context, fsys vfs.FS, path string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	text = fmt.Appendf(text, "\n%s\n", manifest.CRC(text))
	if most := limit(r.Shard); int64(len(text)) > most {
		return fmt.Errorf("the record has %d bytes, at most %d are allowed", len(text), most)
	}
	return replace.File(ctx, fsys, path, replace.Bytes(text))
}

// readRecord reads the record of the shard of that number. It returns errDamaged if the bytes are not those of write; any other error is
// the disk's.
func readRecord(fsys vfs.FS, path string, shard int) (r record, err error) {
	most := limit(shard)
	data, size, err := vfs.ReadFile(fsys, path, most)
	if err != nil {
		return r, err
	}
	if size > most {
		return r, fmt.Errorf("%w: %s is %d bytes long, at most %d are allowed", errDamaged, path, size, most)
	}
	text, sum, ok := bytes.Cut(data, []byte("\n"))
	if !ok || string(sum) != manifest.CRC(text).String()+"\n" {
		return r, fmt.Errorf("%w: %s", errDamaged, path)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%w: %s: %w", errDamaged, path, err)
	}
	if r.Shards < 1 || r.Shards > manifest.MaxShards || r.Shard != shard || shard >= r.Shards ||
		(shard == 0) != (r.Meta != nil && r.World > 0) {
		return r, fmt.Errorf("%w: %s: shard %d of %d", errDamaged, path, r.Shard, r.Shards)
	}
	return r, nil
}

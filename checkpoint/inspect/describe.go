package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"ddpbatch/checkpoint"
)

// Description is everything known about a checkpoint (ddpbatch ckpt show); its JSON names are a contract.
type Description struct {
	Step     int64                      `json:"step"`
	World    int                        `json:"world"`
	Path     string                     `json:"path"`
	Run      string                     `json:"run"`
	Attempt  int                        `json:"attempt"`
	Created  time.Time                  `json:"created"`
	Version  int                        `json:"version"`
	Program  string                     `json:"program"`
	BaseStep int64                      `json:"base_step"`
	Bytes    int64                      `json:"bytes"`
	RawBytes int64                      `json:"raw_bytes"`
	Pinned   []string                   `json:"pinned"`
	Tensors  []DescribedTensor          `json:"tensors"`
	Values   map[string]json.RawMessage `json:"values"`
	Metrics  map[string]float64         `json:"metrics"`
	Shards   []DescribedShard           `json:"shards"`
}

// DescribedTensor describes a tensor of a checkpoint.
type DescribedTensor struct {
	Name   string           `json:"name"`
	DType  string           `json:"dtype"`
	Shape  []int            `json:"shape"`
	Bytes  int64            `json:"bytes"`
	Stored int64            `json:"stored"`
	Delta  int64            `json:"delta"`
	Codecs map[string]int64 `json:"codecs"`
}

// DescribedShard describes a shard of a checkpoint.
type DescribedShard struct {
	File string `json:"file"`
	Size int64  `json:"size"`
	Raw  int64  `json:"raw"`
	CRC  string `json:"crc32c"`
}

// Describe collects what is known about a checkpoint of dir without reading its data.
func Describe(ctx context.Context, dir *checkpoint.Dir, c *checkpoint.Checkpoint) (*Description, error) {
	infos, err := dir.List(ctx)
	if err != nil {
		return nil, err
	}
	pins := []string{} // pins are not part of the checkpoint itself
	for _, info := range infos {
		if filepath.Base(info.Path) == c.Folder() {
			pins = append(pins, info.Pinned...)
		}
	}
	info := c.Info()
	s := &Description{
		Step: c.Step(), World: c.World(), Path: info.Path, Run: info.Run, Attempt: info.Attempt, Created: info.Created,
		BaseStep: info.BaseStep,
		Bytes:    info.Bytes, RawBytes: info.RawBytes, Pinned: pins, Values: c.Values(), Metrics: c.Metrics(),
	}
	// Fields that only a reader of manifests needs come from the manifest itself (docs/format.md).
	if err := json.Unmarshal(c.Manifest(), &struct {
		Version *int              `json:"version"`
		Program *string           `json:"program"`
		Shards  *[]DescribedShard `json:"shards"`
	}{&s.Version, &s.Program, &s.Shards}); err != nil {
		return nil, fmt.Errorf("read the manifest of %s: %w", info.Path, err)
	}
	storage, err := c.Storage(ctx)
	if err != nil {
		return nil, err
	}
	s.Tensors = []DescribedTensor{}
	for i, t := range c.Tensors() {
		on := storage[i]
		s.Tensors = append(s.Tensors, DescribedTensor{t.Name, t.DType, t.Shape, t.Bytes, on.Stored, on.Delta, on.Codecs})
	}
	if s.Values == nil {
		s.Values = map[string]json.RawMessage{}
	}
	if s.Metrics == nil {
		s.Metrics = map[string]float64{}
	}
	return s, nil
}

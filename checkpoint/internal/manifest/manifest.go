package manifest

import (
	"encoding/json"
	"time"
)

// Manifest is the content of MANIFEST.json, less its own checksum. One that Parse returned is
// consistent in itself: every index, length and sum has been checked.
type Manifest struct {
	Version int64 // of the format; Encode takes 0 for the newest
	Run     string
	Attempt int // that saved; 0 to MaxAttempt
	Step    int64
	World   int // ranks that trained
	Created time.Time
	Program string                     // what wrote it; for people
	Base    *Base                      // nil: a full checkpoint
	Values  map[string]json.RawMessage // small facts; keys are [a-z0-9_.]{1,64}
	Metrics map[string]float64         // finite; keys likewise. Empty in version 1
	Tensors []Tensor
	Shards  []Shard // entry i describes shard i
}

// Base names the full checkpoint with whose bytes the chunks of a delta are XORed.
type Base struct {
	Step   int64    `json:"step"`
	Folder string   `json:"folder"` // its name below checkpoints/
	CRC    Checksum `json:"crc32c"` // of all bytes of its MANIFEST.json
}

// Tensor says what a tensor is, and where its bytes are.
type Tensor struct {
	Name   string
	DType  string
	Shape  []int   // empty: a scalar; a dimension may be 0
	Pieces []Piece // by Start; they cover the tensor without gap or overlap
}

// Piece says where a part of a tensor is: Length bytes from Start of the tensor are the bytes
// from Offset of the raw (not yet compressed) data of a shard. Start is a multiple of the
// element size. No piece is empty, except in version 1, where a tensor without bytes has one:
// the header of its shard counts it.
type Piece struct {
	Shard                 int
	Offset, Start, Length int64
}

// Shard is what a shard file must be.
type Shard struct {
	File string   `json:"file"`
	Size int64    `json:"size"`   // of the whole file
	Raw  int64    `json:"raw"`    // bytes of its pieces before compression
	CRC  Checksum `json:"crc32c"` // of the whole file
}

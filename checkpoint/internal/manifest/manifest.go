package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"ddpbatch/checkpoint/internal/chunk"
)

const _ int = 1 << 40 // an int has 64 bits: sizes from files are ints

// Manifest is the content of MANIFEST.json, without its own checksum. A Manifest that Parse returned is
// consistent in itself: every index, length and sum has been checked.
type Manifest struct {
	Version int64 // of the format; Encode takes 0 for the newest
	Run     string
	Attempt int // the attempt that saved; 0 to MaxAttempt
	Step    int64
	World   int // ranks that trained
	Created time.Time
	Program string                     // the program that wrote it; for people
	Base    *Base                      // nil for a full checkpoint
	Values  map[string]json.RawMessage // small facts; keys match [a-z0-9_.]{1,64}
	Metrics map[string]float64         // finite; keys have the same form. Empty in version 1
	Tensors []Tensor
	Shards  []Shard // entry i describes shard i
}

// Base names the full checkpoint with whose bytes the chunks of a delta are XORed.
type Base struct {
	Step   int64    `json:"step"`
	Folder string   `json:"folder"` // its name below checkpoints/
	CRC    Checksum `json:"crc32c"` // of all bytes of its MANIFEST.json
}

// Tensor describes a tensor and says where its bytes are.
type Tensor struct {
	Name   string
	DType  string
	Shape  []int   // empty: a scalar; a dimension may be 0
	Pieces []Piece // in the order of Start; they cover the tensor without gap or overlap
}

// Piece says where a part of a tensor is: Length bytes from Start of the tensor are the bytes
// from Offset of the raw (not yet compressed) data of a shard. Start is a multiple of the
// element size. A piece is never empty, except in version 1, in which a tensor without bytes has one
// that is counted in the header of its shard.
type Piece struct {
	Shard                 int
	Offset, Start, Length int64
}

// Shard describes a shard file.
type Shard struct {
	File string   `json:"file"`
	Size int64    `json:"size"`   // of the whole file
	Raw  int64    `json:"raw"`    // bytes of its pieces before compression
	CRC  Checksum `json:"crc32c"` // of the whole file
}

const (
	// Version is the newest version of the format that this package reads, and the one it writes.
	Version = 2

	MaxBytes       = 64 << 20 // of a manifest
	MaxRecordBytes = 64 << 10 // of a lineage record

	MaxStep    = 999_999_999_999 // what a folder's name holds
	MaxAttempt = 999_999_999     // what a file's name holds
	MaxWorld   = 1 << 20
	MaxTensors = 1 << 20
	MaxPieces  = 1 << 20 // of all tensors together
	MaxShards  = 1 << 16
	MaxValues  = 1 << 16 // and as many metrics
	MaxName    = 256     // bytes of the name of a tensor or a run
	MaxDims    = 32      // of a tensor

	// MaxRawBytes, of a tensor and of a shard, keeps the number of a shard's chunks in 32 bits.
	MaxRawBytes = 1 << 49
	// MaxShardBytes, of a shard file, keeps the sum over all shards in an int64.
	MaxShardBytes = math.MaxInt64 / MaxShards
	// MinShardBytes is a shard's header and trailer.
	MinShardBytes = 96

	maxDepth = 64      // of nested JSON, in every version
	maxKeys  = 1 << 20 // of one object, in every version
)

// Newer is the error for a file that is whole but of a later version of the format. The file may be
// good.
type Newer struct{ Version int64 }

func (e *Newer) Error() string {
	return fmt.Sprintf(
		"it has version %d, this program reads up to %d; use the ddpbatch that wrote it, or a later one", e.Version, Version)
}

// dtypes are the element types that a tensor may have, under PyTorch's names.
var dtypes = map[string]struct {
	size   int // bytes of an element
	layout chunk.Layout
}{
	"bool": {1, chunk.Layout{Width: 1}}, "int8": {1, chunk.Layout{Width: 1}}, "uint8": {1, chunk.Layout{Width: 1}},
	"int16": {2, chunk.Layout{Width: 2}}, "uint16": {2, chunk.Layout{Width: 2}},
	"int32": {4, chunk.Layout{Width: 4}}, "uint32": {4, chunk.Layout{Width: 4}},
	"int64": {8, chunk.Layout{Width: 8}}, "uint64": {8, chunk.Layout{Width: 8}},
	// One byte has one plane, and turning its bits only renames the symbols.
	"float8_e4m3fn": {1, chunk.Layout{Width: 1}}, "float8_e5m2": {1, chunk.Layout{Width: 1}},
	"float16": {2, chunk.Layout{Width: 2, Float: true}}, "bfloat16": {2, chunk.Layout{Width: 2, Float: true}},
	"float32": {4, chunk.Layout{Width: 4, Float: true}}, "float64": {8, chunk.Layout{Width: 8, Float: true}},
	"complex64": {8, chunk.Layout{Width: 4, Float: true}}, // pairs of float32
}

// ElemSize returns the size of one element in bytes, and false for an unknown dtype.
func ElemSize(dtype string) (int, bool) {
	t, ok := dtypes[dtype]
	return t.size, ok
}

// Layout returns how chunks of a dtype are split into planes, and false for an unknown dtype. The width divides the element
// size.
func Layout(dtype string) (chunk.Layout, bool) {
	t, ok := dtypes[dtype]
	return t.layout, ok
}

// ByteSize returns how many bytes a tensor takes, at most MaxRawBytes.
func ByteSize(dtype string, shape []int) (int64, error) {
	elem, ok := ElemSize(dtype)
	if !ok {
		return 0, fmt.Errorf("dtype %s is unknown", quote(dtype))
	}
	if len(shape) > MaxDims {
		return 0, fmt.Errorf("it has %d dimensions, at most %d are allowed", len(shape), MaxDims)
	}
	size, empty := int64(elem), false
	for _, dim := range shape {
		switch {
		case dim < 0:
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		case dim == 0:
			empty = true
		case size > MaxRawBytes/int64(dim):
			size = MaxRawBytes + 1 // too large, unless a later dimension is 0
		default:
			size *= int64(dim)
		}
	}
	if empty {
		return 0, nil
	}
	if size > MaxRawBytes {
		return 0, fmt.Errorf("shape %v of %s is larger than %d bytes", shape, dtype, int64(MaxRawBytes))
	}
	return size, nil
}

// Ref is a piece of the tensor Tensors[Tensor].
type Ref struct {
	Tensor int
	Piece
}

// ByShard returns the pieces of every shard by offset, which is their order in
// the file. Every piece of m must name an existing shard, as in any manifest from Parse.
func (m *Manifest) ByShard() [][]Ref {
	shards := make([][]Ref, len(m.Shards))
	for t, tensor := range m.Tensors {
		for _, p := range tensor.Pieces {
			shards[p.Shard] = append(shards[p.Shard], Ref{Tensor: t, Piece: p})
		}
	}
	for _, refs := range shards {
		// Stable: in version 1 an empty piece stands at the offset of the next.
		slices.SortStableFunc(refs, func(a, b Ref) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	return shards
}

// check compares the fields with their limits and with each other.
func (m *Manifest) check() error {
	switch {
	case len(m.Run) > MaxName:
		return fmt.Errorf("run has a name of %d bytes, at most %d are allowed", len(m.Run), MaxName)
	case m.Step < 0 || m.Step > MaxStep:
		return fmt.Errorf("step is %d", m.Step)
	case m.World < 1 || m.World > MaxWorld:
		return fmt.Errorf("world is %d", m.World)
	case m.Attempt < 0 || m.Attempt > MaxAttempt:
		return fmt.Errorf("attempt is %d", m.Attempt)
	case len(m.Tensors) > MaxTensors:
		return fmt.Errorf("it has %d tensors, at most %d are allowed", len(m.Tensors), MaxTensors)
	case len(m.Values) > MaxValues || len(m.Metrics) > MaxValues:
		return fmt.Errorf("it has %d values and %d metrics, at most %d of each are allowed", len(m.Values), len(m.Metrics), MaxValues)
	case len(m.Shards) < 1 || len(m.Shards) > MaxShards:
		return fmt.Errorf("it has %d shards, 1 to %d are allowed", len(m.Shards), MaxShards)
	}
	if m.Base != nil {
		if err := m.Base.check(m.Step); err != nil {
			return err
		}
	}
	for i, s := range m.Shards {
		if !isShardName(s.File, i, len(m.Shards)) {
			return fmt.Errorf("shard %d has the file name %s", i, quote(s.File))
		}
		if s.Size < MinShardBytes || s.Raw < 0 || s.Raw > MaxRawBytes || s.Size > MaxShardBytes {
			return fmt.Errorf("shard %d has %d bytes, %d raw", i, s.Size, s.Raw)
		}
	}
	if err := m.checkTensors(); err != nil {
		return err
	}
	return m.checkShards()
}

// check compares a base with the step of the delta.
func (b *Base) check(step int64) error {
	f, ok := ParseFolder(b.Folder)
	if !ok || f.Broken || f.Step != b.Step {
		return fmt.Errorf("the base is step %d in the folder %s", b.Step, quote(b.Folder))
	}
	if b.Step > step {
		return fmt.Errorf("the base is of step %d, after step %d", b.Step, step)
	}
	return nil
}

// checkTensors checks every tensor, and its pieces against the tensor.
func (m *Manifest) checkTensors() error {
	seen := make(map[string]bool, len(m.Tensors))
	pieces := 0
	for _, t := range m.Tensors {
		if err := CheckTensorName(t.Name); err != nil {
			return err
		}
		if seen[t.Name] {
			return fmt.Errorf("tensor %s is listed twice", quote(t.Name))
		}
		seen[t.Name] = true
		if pieces += len(t.Pieces); pieces > MaxPieces {
			return fmt.Errorf("it has more than %d pieces", MaxPieces)
		}
		if err := m.checkTensor(t); err != nil {
			return fmt.Errorf("tensor %s: %w", quote(t.Name), err)
		}
	}
	return nil
}

func (m *Manifest) checkTensor(t Tensor) error {
	size, err := ByteSize(t.DType, t.Shape)
	if err != nil {
		return err
	}
	if t.Shape == nil {
		return errors.New("it has no shape") // the shape of a scalar is empty, not missing
	}
	elem, _ := ElemSize(t.DType)
	var end int64
	for _, p := range t.Pieces {
		switch {
		case p.Shard < 0 || p.Shard >= len(m.Shards):
			return fmt.Errorf("it is in shard %d of %d", p.Shard, len(m.Shards))
		case p.Start != end:
			return fmt.Errorf("a piece begins at byte %d, but the one before it ends at %d", p.Start, end)
		case p.Start%int64(elem) != 0:
			return fmt.Errorf("a piece begins at byte %d, within an element of %s", p.Start, t.DType)
		case p.Length < 0 || p.Length == 0 && m.Version != 1:
			return fmt.Errorf("a piece has %d bytes", p.Length)
		case p.Length > size-end:
			return fmt.Errorf("shape %v of %s needs %d bytes, but its pieces have more", t.Shape, t.DType, size)
		}
		end += p.Length
	}
	if end != size {
		return fmt.Errorf("shape %v of %s needs %d bytes, but its pieces have %d", t.Shape, t.DType, size, end)
	}
	return nil
}

// checkShards checks that the pieces of every shard fill it.
func (m *Manifest) checkShards() error {
	for i, refs := range m.ByShard() {
		var end int64
		for _, r := range refs {
			if r.Offset != end {
				return fmt.Errorf("tensor %s begins at %d of shard %d, but the piece before it ends at %d",
					quote(m.Tensors[r.Tensor].Name), r.Offset, i, end)
			}
			if r.Length > m.Shards[i].Raw-end {
				return fmt.Errorf("tensor %s ends beyond the end of shard %d", quote(m.Tensors[r.Tensor].Name), i)
			}
			end += r.Length
		}
		if end != m.Shards[i].Raw {
			return fmt.Errorf("shard %d holds %d raw bytes, but its tensors have %d", i, m.Shards[i].Raw, end)
		}
	}
	return nil
}

// CheckTensorName refuses a name that is not 1 to MaxName bytes of UTF-8 without control
// characters.
func CheckTensorName(name string) error {
	if len(name) == 0 || len(name) > MaxName || !utf8.ValidString(name) {
		return fmt.Errorf("tensor name %s is not 1 to %d bytes of UTF-8", quote(name), MaxName)
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f {
			return fmt.Errorf("tensor name %s has a control character", quote(name))
		}
	}
	return nil
}

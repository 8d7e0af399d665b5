package manifest

import "math"

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

package tensorboard

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"time"

	"ddpbatch/internal/crc32c"
)

// Protobuf's wire types, and with them the keys of the fields that are written: number<<3 | type.
const (
	varint = 0
	fixed8 = 1
	bytes  = 2
	fixed4 = 5

	eventWallTime    = 1<<3 | fixed8
	eventStep        = 2<<3 | varint
	eventFileVersion = 3<<3 | bytes
	eventSummary     = 5<<3 | bytes
	summaryValue     = 1<<3 | bytes
	valueTag         = 1<<3 | bytes
	valueSimple      = 2<<3 | fixed4
)

// versionEvent is the first of every file.
func versionEvent(at time.Time) []byte {
	return appendText(appendTime(nil, at), eventFileVersion, "brain.Event:2")
}

// scalarsEvent holds numbers of one step, sorted by name.
func scalarsEvent(step int64, at time.Time, values map[string]float64) []byte {
	var summary []byte
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := append(appendText(nil, valueTag, name), valueSimple)
		value = binary.LittleEndian.AppendUint32(value, math.Float32bits(float32(values[name])))
		summary = appendText(summary, summaryValue, string(value))
	}
	event := append(appendTime(nil, at), eventStep)
	event = binary.AppendUvarint(event, uint64(step))
	return appendText(event, eventSummary, string(summary))
}

func appendTime(event []byte, at time.Time) []byte {
	seconds := float64(at.UnixMicro()) / 1e6
	return binary.LittleEndian.AppendUint64(append(event, eventWallTime), math.Float64bits(seconds))
}

func appendText(to []byte, key byte, text string) []byte {
	to = binary.AppendUvarint(append(to, key), uint64(len(text)))
	return append(to, text...)
}

// record frames data as a TFRecord.
func record(data []byte) []byte {
	r := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	r = binary.LittleEndian.AppendUint32(r, masked(r))
	r = append(r, data...)
	return binary.LittleEndian.AppendUint32(r, masked(data))
}

// masked is the checksum of data, rotated and shifted: one of bytes that hold a checksum themselves would be a weak one.
func masked(data []byte) uint32 {
	sum := crc32c.Checksum(data)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

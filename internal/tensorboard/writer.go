package tensorboard

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/crc32c"
)

// Writer appends events to one file. It must be used by one goroutine at a time.
type Writer struct{ file *os.File }

// Create creates a new file in dir, which it creates if needed. TensorBoard shows the files of a directory as one run, so that a later
// attempt adds its own file. The file's name has the time and the host, as TensorBoard's own files do.
func Create(dir string, at time.Time, host string) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of TensorBoard events: %w", err)
	}
	host = strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '_'
		}
		return r
	}, host)
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d", at.Unix(), host, os.Getpid())
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a file of TensorBoard events: %w", err)
	}
	w := &Writer{file}
	if err := w.write(versionEvent(at)); err != nil {
		file.Close()
		return nil, err
	}
	return w, nil
}

// Scalars adds the numbers of a step. TensorBoard shows a name like "loss/train" in the group "loss".
func (w *Writer) Scalars(step int64, at time.Time, values map[string]float64) error {
	return w.write(scalarsEvent(step, at, values))
}

// write adds one record in one Write, so that concurrent readers see whole records.
func (w *Writer) write(event []byte) error {
	if _, err := w.file.Write(record(event)); err != nil {
		return fmt.Errorf("write TensorBoard events: %w", err)
	}
	return nil
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

// Protobuf's wire types, and the keys of the fields that are written: number<<3 | type.
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

// versionEvent returns the first event of every file.
func versionEvent(at time.Time) []byte {
	return appendText(appendTime(nil, at), eventFileVersion, "brain.Event:2")
}

// scalarsEvent returns an event with the numbers of one step, sorted by name.
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

// masked returns the checksum of data, rotated and offset, because a checksum of bytes that contain a checksum is weak.
func masked(data []byte) uint32 {
	sum := crc32c.Checksum(data)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

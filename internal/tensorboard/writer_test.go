package tensorboard

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// field is a field of a protobuf message.
type field struct {
	number, kind int
	value        uint64 // for numbers
	text         []byte // for bytes
}

// fields parses a message by protobuf's rules, and does not use the writer's code.
func fields(t *testing.T, b []byte) []field {
	t.Helper()
	var all []field
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			t.Fatalf("no key in % x", b)
		}
		b = b[n:]
		f := field{number: int(key >> 3), kind: int(key & 7)}
		switch f.kind {
		case 0:
			f.value, n = binary.Uvarint(b)
		case 1:
			f.value, n = binary.LittleEndian.Uint64(b), 8
		case 2:
			size, m := binary.Uvarint(b)
			f.text, n = b[m:m+int(size)], m+int(size)
		case 5:
			f.value, n = uint64(binary.LittleEndian.Uint32(b)), 4
		default:
			t.Fatalf("wire type %d", f.kind)
		}
		b = b[n:]
		all = append(all, f)
	}
	return all
}

// records splits a file into its records, and checks their checksums.
func records(t *testing.T, b []byte) [][]byte {
	t.Helper()
	unmask := func(b []byte) uint32 {
		rotated := binary.LittleEndian.Uint32(b) - 0xa282ead8
		return rotated>>17 | rotated<<15
	}
	var all [][]byte
	for len(b) > 0 {
		size := binary.LittleEndian.Uint64(b)
		data := b[12 : 12+size]
		if unmask(b[8:]) != crc32.Checksum(b[:8], crc32.MakeTable(crc32.Castagnoli)) ||
			unmask(b[12+size:]) != crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) {
			t.Fatalf("record %d has a wrong checksum", len(all))
		}
		all = append(all, data)
		b = b[16+size:]
	}
	return all
}

func write(t *testing.T) (path string) {
	t.Helper()
	dir := t.TempDir()
	at := time.Unix(1700000000, 250000000)
	w, err := Create(filepath.Join(dir, "tensorboard"), at, "node/1")
	if err != nil {
		t.Fatal(err)
	}
	for step, values := range map[int64]map[string]float64{300: {"loss/train": 0.5, "train/lr": 1e-3}} {
		if err := w.Scalars(step, at, values); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "tensorboard", "events.out.tfevents.1700000000.node_1.*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, error %v", files, err)
	}
	return files[0]
}

func TestEventsAreWhatTensorBoardReads(t *testing.T) {
	file, err := os.ReadFile(write(t))
	if err != nil {
		t.Fatal(err)
	}
	all := records(t, file)
	if len(all) != 2 {
		t.Fatalf("%d records, want the version and one step", len(all))
	}
	version := fields(t, all[0])
	if len(version) != 2 || version[1].number != 3 || string(version[1].text) != "brain.Event:2" {
		t.Errorf("first event %+v", version)
	}
	event := fields(t, all[1])
	if len(event) != 3 || event[0].number != 1 || math.Float64frombits(event[0].value) != 1700000000.25 ||
		event[1].number != 2 || event[1].value != 300 || event[2].number != 5 {
		t.Fatalf("event %+v", event)
	}
	var got []string
	for _, value := range fields(t, event[2].text) {
		parts := fields(t, value.text)
		if value.number != 1 || len(parts) != 2 || parts[0].number != 1 || parts[1].number != 2 || parts[1].kind != 5 {
			t.Fatalf("value %+v", parts)
		}
		got = append(got, fmt.Sprintf("%s=%v", parts[0].text, math.Float32frombits(uint32(parts[1].value))))
	}
	if want := []string{"loss/train=0.5", "train/lr=0.001"}; !slices.Equal(got, want) {
		t.Errorf("values %v, want %v", got, want)
	}
}

// Google's protobuf library reads the events, with the published field numbers of the messages.
func TestEventsAreProtobuf(t *testing.T) {
	if out, err := exec.Command("/usr/bin/python3", "-c", "import google.protobuf").CombinedOutput(); err != nil {
		t.Skipf("needs Python's protobuf: %v: %s", err, out)
	}
	out, err := exec.Command("/usr/bin/python3", "-c", `
import struct, sys
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
F = descriptor_pb2.FieldDescriptorProto
f = descriptor_pb2.FileDescriptorProto(name="e.proto", syntax="proto3")
def message(name, *fields):
    m = f.message_type.add(name=name)
    for n, num, typ, rep, ref in fields:
        m.field.add(name=n, number=num, type=typ, label=3 if rep else 1, type_name=ref)
message("Value", ("tag", 1, F.TYPE_STRING, False, None), ("simple_value", 2, F.TYPE_FLOAT, False, None))
message("Summary", ("value", 1, F.TYPE_MESSAGE, True, ".Value"))
message("Event", ("wall_time", 1, F.TYPE_DOUBLE, False, None), ("step", 2, F.TYPE_INT64, False, None),
        ("file_version", 3, F.TYPE_STRING, False, None), ("summary", 5, F.TYPE_MESSAGE, False, ".Summary"))
pool = descriptor_pool.DescriptorPool(); pool.Add(f)
d = pool.FindMessageTypeByName("Event")
Event = message_factory.GetMessageClass(d) if hasattr(message_factory, "GetMessageClass") else message_factory.MessageFactory(pool).GetPrototype(d)
b = open(sys.argv[1], "rb").read()
while b:
    n = struct.unpack("<Q", b[:8])[0]
    e = Event(); e.ParseFromString(b[12:12+n]); b = b[16+n:]
    print(e.step, e.file_version, ["%s %g" % (v.tag, v.simple_value) for v in e.summary.value])
`, write(t)).CombinedOutput()
	if want := "0 brain.Event:2 []\n300  ['loss/train 0.5', 'train/lr 0.001']\n"; err != nil || string(out) != want {
		t.Errorf("read %q, error %v; want %q", out, err, want)
	}
}

func TestCreateNamesThePathThatFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(file, time.Unix(0, 0), "h"); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v, want one that names the path", err)
	}
}

package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/checkpoint"
)

const fine = `{"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}`

var sixteen = make([]byte, 16)

// entryOf returns a header with one tensor, named w.
func entryOf(dtype, shape, offsets string) string {
	return fmt.Sprintf(`{"w":{"dtype":%q,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets)
}

// TestOpenReadsValidFiles opens files that the format's own reader accepts. Names that begin with test_ are those of its tests.
func TestOpenReadsValidFiles(t *testing.T) {
	for name, c := range map[string]struct {
		file []byte
		want string // names and shapes
	}{
		"test_deserialization":          {file(fine, sixteen...), "test[2 2]"},
		"test_empty_shapes_allowed":     {file(`{"test":{"dtype":"I32","shape":[],"data_offsets":[0,4]}}`, 0, 0, 0, 0), "test[]"},
		"test_zero_sized_tensor":        {file(entryOf("I32", "[2,0]", "[0,0]")), "w[2 0]"},
		"test_whitespace_padded_header": {file(fine+" \n\t\r ", sixteen...), "test[2 2]"},
		"empty":                         {file(`{}`), ""},
		"white space between": {file("{ \"w\" :\n{ \"dtype\" : \"U8\" , \"shape\" : [ ] ,\t\"data_offsets\":[ 0 , 1 ] } }", 7),
			"w[]"},
		"an odd header": {file(`{"abc":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}`+" ", 1, 2), "abc[1]"},
		"by offset, not by name": {
			file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1,
				2),
			"b[1] a[1]"},
		"empty ones between others": {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},`+
			`"b":{"dtype":"F32","shape":[0],"data_offsets":[1,1]},"c":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 1, 2),
			"a[1] b[0] c[1]"},
		"keys in another order": {file(`{"w":{"data_offsets":[0,1],"shape":[1],"dtype":"U8"}}`, 1), "w[1]"},
		"escapes": {file(`{"\u0041\"\\\/\b\f\n\r\t\uD83D\uDE00":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`),
			"A\"\\/\b\f\n\r\t\U0001f600[0]"},
		"half a byte twice":   {file(entryOf("F4", "[2]", "[0,1]"), 1), "w[2]"},
		"six bits four times": {file(entryOf("F6_E2M3", "[4]", "[0,3]"), 1, 2, 3), "w[4]"},
		"complex":             {file(entryOf("C64", "[1]", "[0,8]"), sixteen[:8]...), "w[1]"},
	} {
		t.Run(name, func(t *testing.T) {
			tensors, _, err := readAll(c.file)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, tensor := range tensors {
				got = append(got, fmt.Sprint(tensor.Name, tensor.Shape))
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("read %q, want %q", s, c.want)
			}
		})
	}
}

func TestOpenRefusesInvalidFiles(t *testing.T) {
	attack := "{"
	for i := range 10 {
		attack += fmt.Sprintf(`"weight_%d":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},`, i)
	}
	attack = attack[:len(attack)-1] + "}"
	var abuse strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&abuse, `,"weight_%d":{"dtype":"F32","shape":[200,200],"data_offsets":[0,160000]}`, i)
	}
	bogus := append(slices.Clone(sixteen), "extra_bogus_data_for_polyglot_file"...)
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"test_json_attack": {file(attack, sixteen...),
			"begins at byte 0 of the data, but the one before it ends at 16"},
		"safetensors_abuse_attempt_2 and _3": {file("{"+abuse.String()[1:]+"}", make([]byte, 160_000)...),
			"begins at byte 0 of the data, but the one before it ends at 160000"},
		"test_metadata_incomplete_buffer":            {file(fine, bogus...), "the tensors have 16 bytes, but the data has 50"},
		"test_metadata_incomplete_buffer, 2 missing": {file(fine, sixteen[:14]...), "the tensors have 16 bytes, but the data has 14"},
		"test_header_too_large":                      {append([]byte("<\x00\x00\x00\x00\xff\xff\xff"), fine...), "at most 100000000"},
		"a header of one byte too many":              {binary.LittleEndian.AppendUint64(nil, 100_000_001), "at most 100000000"},
		"test_header_too_small":                      {nil, "it has 0 bytes"},
		"test_invalid_header_length":                 {[]byte("<\x00\x00\x00\x00\x00\x00\x00"), "does not fit"},
		"safetensors_abuse_attempt_1":                {append([]byte("\xe8\x03\x00\x00\x00\x00\x00\x00"), fine...), "does not fit"},
		"of torch.save":                              {[]byte("PK\x03\x04\x00\x00\x08\x08"), "it looks like a file of torch.save"},
		"of an old torch.save":                       {[]byte("\x80\x02\x8a\nl\xfc\x9cF\xf9"), "it looks like a file of torch.save"},
		"of neither":                                 {[]byte("\x80\x06\x8a\nl\xfc\x9cF"), "it claims a header of"},
		"a header that begins like a pickle":         {file("x" + strings.Repeat(" ", 0x27f)), "does not begin with {"},
		"test_invalid_header_non_utf8":               {file("\xff"), "not UTF-8"},
		"test_invalid_header_not_json":               {file("{"), `'"' is missing`},
		"no header at all":                           {file(""), "does not begin with {"},
		"test_whitespace_start_padded_header":        {file(" "+fine, sixteen...), "does not begin with {"},
		"zeros after the object":                     {file(fine+"\x00", sixteen...), "of the header is zero"},
		"a second object":                            {file(fine+"{}", sixteen...), `after the end of the object`},
		"test_validation_overflow": {file(entryOf("U8", "[2,2,9223372036854775807]", "[0,16]"), sixteen...),
			"is too large"},
		"test_validation_overflow of elements by type": {file(entryOf("F64", "[4611686018427387904]", "[0,16]"), sixteen...),
			"is too large"},
		"test_validation_overflow before a 0": {file(entryOf("U8", "[9223372036854775807,4,0]", "[0,0]")), "is too large"},
		"a dimension of 2^64-1":               {file(entryOf("U8", "[18446744073709551615]", "[0,0]")), "a dimension of"},
		"a dimension of 2^64":                 {file(entryOf("U8", "[18446744073709551616]", "[0,0]")), "larger than 2^64-1"},
		"a dimension of 100 digits": {file(entryOf("U8", "["+strings.Repeat("9", 100)+"]", "[0,0]")),
			"larger than 2^64-1"},
		"65 dimensions": {file(entryOf("U8", "["+strings.Repeat("1,", 64)+"1]", "[0,1]"), 1),
			"more than 64 dimensions"},
		"half a byte":  {file(entryOf("F4", "[1]", "[0,1]"), 1), "ends within a byte"},
		"unknown type": {file(entryOf("Q4", "[1]", "[0,4]"), 1, 2, 3, 4), `dtype "Q4" is unknown`},
		"past the end": {file(entryOf("F32", "[2]", "[0,8]"), 1, 2, 3, 4),
			"the tensors have 8 bytes, but the data has 4"},
		"another shape": {file(entryOf("F32", "[2]", "[0,4]"), 1, 2, 3, 4),
			"do not hold shape [2] of F32"},
		"end before beginning": {file(entryOf("U8", "[1]", "[2,1]"), 1, 2), "do not hold"},
		"the last byte first": {file(entryOf("U8", "[1]", "[9223372036854775807,9223372036854775807]"), 1),
			"do not hold"},
		"an offset of 2^63": {file(entryOf("U8", "[0]", "[9223372036854775808,9223372036854775808]")),
			"two offsets in a file"},
		"negative offset":         {file(entryOf("U8", "[4]", "[-4,0]")), "a whole number from 0 is missing"},
		"negative shape":          {file(entryOf("U8", "[-1]", "[0,0]")), "a whole number from 0 is missing"},
		"a fraction":              {file(entryOf("U8", "[1.0]", "[0,1]"), 1), `',' is missing`},
		"an exponent":             {file(entryOf("U8", "[1e0]", "[0,1]"), 1), `',' is missing`},
		"a leading 0":             {file(entryOf("U8", "[01]", "[0,1]"), 1), "begins with 0"},
		"three offsets":           {file(entryOf("U8", "[1]", "[0,1,1]"), 1), "two offsets in a file"},
		"one offset":              {file(entryOf("U8", "[1]", "[0]"), 1), "does not have a dtype"},
		"a hole at the beginning": {file(entryOf("U8", "[1]", "[1,2]"), 1, 2), "begins at byte 1 of the data"},
		"a hole between": {
			file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 1, 2, 3),
			"begins at byte 2 of the data, but the one before it ends at 1"},
		"an overlap": {
			file(`{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}`, 1, 2, 3, 4),
			"begins at byte 2 of the data, but the one before it ends at 3"},
		"data without a tensor": {file(`{}`, 1), "the tensors have 0 bytes, but the data has 1"},
		"a tensor twice": {
			file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
			`"w" occurs twice`},
		"a tensor twice, once escaped": {
			file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0077":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}`, 1),
			`"w" occurs twice`},
		"a key of an entry twice": {file(`{"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
			`"dtype" occurs twice`},
		"an unknown key": {file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}}`, 1),
			`"strides" is not one of`},
		"no dtype":              {file(`{"w":{"shape":[1],"data_offsets":[0,1]}}`, 1), "does not have a dtype"},
		"an entry that is null": {file(`{"w":null}`), `'{' is missing`},
		"metadata twice": {file(`{"__metadata__":{},"__metadata__":{}}`),
			`"__metadata__" occurs twice`},
		"a metadatum twice":              {file(`{"__metadata__":{"a":"1","a":"2"}}`), `"a" occurs twice`},
		"a number as metadatum":          {file(`{"__metadata__":{"a":1}}`), `metadata "a"`},
		"an object as metadatum":         {file(`{"__metadata__":{"a":{}}}`), `metadata "a"`},
		"metadata null":                  {file(`{"__metadata__":null}`), `'{' is missing`},
		"a comma at the end":             {file(`{"__metadata__":{},}`), `'"' is missing`},
		"more metadata than anybody has": {file(`{"__metadata__":{` + fields(1<<16+1) + `}}`), "more than 65536 metadata"},
		"more tensors than a checkpoint has": {
			file("{" + strings.Repeat(`"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},`, 1<<20+1<<17+2) + "}"),
			"more than 1048576 tensors"},
		"a long name": {file(`{"` + strings.Repeat("x", 1<<20) + `":1}`),
			`xxx ... 1048496 bytes ... xxx`},
		"half a surrogate pair": {file(`{"\ud83d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`),
			"half a surrogate pair"},
		"the halves of a pair the wrong way": {file(`{"\ude00\ud83d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`),
			"half a surrogate pair"},
		"a bad escape":                                   {file(`{"\x":1}`), "is not an escape"},
		"hexadecimal that is not":                        {file(`{"\u00g0":1}`), "four hexadecimal digits"},
		"a string without an end":                        {file(`{"abc`), "has no end"},
		"a string without an end after an escape":        {file(`{"a\n`), "has no end"},
		"a string that ends in its escape":               {file(`{"\`), "has no end"},
		"a string that ends in its digits":               {file(`{"\u00`), "has no end"},
		"a control character in a name":                  {file("{\"a\nb\":1}"), "control character"},
		"a control character in a name behind an escape": {file("{\"\\n\nb\":1}"), "control character"},
	} {
		t.Run(name, func(t *testing.T) {
			path := put(t, c.file)
			_, _, err := ReadFile(path)
			if err != nil && len(err.Error()) > len(path)+500 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) || !errors.Is(err, ErrInvalid) {
				t.Errorf("error %v, want an ErrInvalid with %q and the path", err, c.want)
			}
		})
	}
}

// fields returns n fields of metadata with different keys.
func fields(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `,"%d":""`, i)
	}
	return all.String()[1:]
}

// The largest allowed number of metadata fields can be read and written, and one more cannot.
func TestMostMetadataIsReadAndWritten(t *testing.T) {
	_, metadata, err := readAll(file(`{"__metadata__":{` + fields(1<<16) + `}}`))
	if err != nil || len(metadata) != 1<<16 {
		t.Fatalf("%d metadata, error %v", len(metadata), err)
	}
	written(t, nil, metadata)
	if err := Write(filepath.Join(t.TempDir(), "x"), nil, append(metadata, Field{Key: "one more"})); err == nil ||
		!strings.Contains(err.Error(), "65537 metadata") {
		t.Errorf("error %v", err)
	}
}

func TestOpenRefusesOtherThanFiles(t *testing.T) {
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") || errors.Is(err, ErrInvalid) {
		t.Errorf("a folder: error %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "nosuch")); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrInvalid) {
		t.Errorf("no file: error %v", err)
	}
}

// Open lists tensors of types that a checkpoint does not have, and ReadFile refuses them by name.
func TestUnknownTypesAreListedAndRefused(t *testing.T) {
	for _, which := range dtypes {
		if which.ours != "" {
			continue
		}
		path := put(t, file(entryOf(which.name, "[8]", fmt.Sprintf("[0,%d]", which.bits)), make([]byte, which.bits)...))
		if _, _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), `"w" is of the type `+which.name) ||
			errors.Is(err, ErrInvalid) {
			t.Errorf("%s: error %v", which.name, err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if info := f.Tensors()[0]; info.Type != which.name || info.Bytes != int64(which.bits) {
			t.Errorf("%s is %+v", which.name, info)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestReadGivesPartOfATensor(t *testing.T) {
	f, err := Open(put(t, file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[3],"data_offsets":[2,5]}}`,
		1, 2, 3, 4, 5)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, dst := f.Tensors()[1], make([]byte, 2)
	if err := f.Read(b, 1, dst); err != nil || dst[0] != 4 || dst[1] != 5 {
		t.Errorf("read %v, error %v", dst, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("bytes behind the tensor were read")
		}
	}()
	f.Read(b, 2, dst)
}

// If another process cuts a file short while it is read, the error says so, and does not say that the format is invalid.
func TestFileThatShrinksIsAnError(t *testing.T) {
	path := put(t, file(fine, sixteen...))
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 70); err != nil {
		t.Fatal(err)
	}
	if err := f.Read(f.Tensors()[0], 0, make([]byte, 16)); err == nil || !strings.Contains(err.Error(), "became shorter") ||
		errors.Is(err, ErrInvalid) {
		t.Errorf("error %v", err)
	}
}

// A file that is changed while it is read is an error, since what was read may be of two states.
func TestFileThatIsRewrittenIsAnError(t *testing.T) {
	path := put(t, file(fine, sixteen...))
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.readAll(); err != nil {
		t.Fatal(err)
	}
	later := f.opened.ModTime().Add(time.Second)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	if _, err := f.readAll(); err == nil || !strings.Contains(err.Error(), "it was changed while it was read") {
		t.Errorf("error %v", err)
	}
}

// Reading a hostile file of about 1 KiB of data allocates at most 64 MiB.
func TestHostileKilobyteIsCheap(t *testing.T) {
	for name, data := range map[string][]byte{
		"a sparse header": append(binary.LittleEndian.AppendUint64(nil, 99_000_000), '{'),
		"a long header":   append(binary.LittleEndian.AppendUint64(nil, 99_999_999), make([]byte, 1016)...),
		"deep nesting":    file(`{"a":` + strings.Repeat("[", 1000)),
		"a huge tensor":   file(entryOf("U8", "[1099511627776]", "[0,1099511627776]")),
		"many dimensions": file(`{"w":{"shape":[` + strings.Repeat("0,", 480)),
	} {
		path := put(t, data)
		if strings.Contains(name, "sparse") {
			if err := os.Truncate(path, 100_000_000); err != nil {
				t.Fatal(err)
			}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := ReadFile(path)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > hostileLimit {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
	}
}

// hostileLimit is what a hostile file of 1 KiB may cost (issue D).
const hostileLimit = 64 << 20

// FuzzSafetensors checks that no file makes the reader panic, allocate much or return more bytes than the file has, and that tensors that
// are read and written again read back the same.
func FuzzSafetensors(f *testing.F) {
	f.Add(file(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 1, 2, 3, 4))
	f.Add(file(`{"__metadata__":{"a":"b"},"\u0041":{"dtype":"BF16","shape":[2,0],"data_offsets":[0,0]}}`))
	f.Add(file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"b":{"dtype":"I8","shape":[],"data_offsets":[0,1]}}  `, 1, 2))
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		tensors, metadata, err := readAll(data)
		runtime.ReadMemStats(&after)
		if cost := after.TotalAlloc - before.TotalAlloc; cost > hostileLimit {
			t.Fatalf("%d bytes cost %d bytes of allocations", len(data), cost)
		}
		if err != nil {
			return
		}
		total := 0
		var sources []Source
		for _, tensor := range tensors {
			total += len(tensor.Data)
			if tensor.DType == "" || tensor.Name == metadataKey {
				return // Write cannot write this tensor
			}
			sources = append(sources, Source{Name: tensor.Name, DType: tensor.DType, Shape: tensor.Shape})
		}
		if total > len(data) {
			t.Fatalf("%d bytes of tensors in a file of %d", total, len(data))
		}
		parts, err := inOrder(sources)
		if err != nil {
			t.Fatal(err)
		}
		again, err := encodeHeader(parts, metadata)
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]checkpoint.Tensor{}
		for _, tensor := range tensors {
			byName[tensor.Name] = tensor
		}
		for _, p := range parts {
			again = append(again, byName[p.Name].Data...)
		}
		second, _, err := readAll(again)
		if err != nil || len(second) != len(tensors) {
			t.Fatalf("%q does not read again: %v", again, err)
		}
		for _, tensor := range second {
			if !bytes.Equal(tensor.Data, byName[tensor.Name].Data) {
				t.Fatalf("tensor %q changed", tensor.Name)
			}
		}
	})
}

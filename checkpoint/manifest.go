package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"time"
)

const (
	formatName = "ddpbatch checkpoint"
	// formatVersion is the newest version this program reads, and the one it writes.
	formatVersion = 1
)

// castagnoli is CRC-32C (RFC 3720 appendix B.4), which CPUs compute by themselves.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// manifest is the content of MANIFEST.json, less its own checksum.
type manifest struct {
	Format  string                     `json:"format"`
	Version int64                      `json:"version"`
	Run     string                     `json:"run"`
	Attempt int                        `json:"attempt"`
	Step    int64                      `json:"step"`
	World   int                        `json:"world"`
	Created time.Time                  `json:"created"`
	Program string                     `json:"program"`
	Values  map[string]json.RawMessage `json:"values"`
	Tensors []tensorRecord             `json:"tensors"`
	Shards  []shardRecord              `json:"shards"`
}

// tensorRecord says what a tensor is and where: length bytes from offset of the raw data of a
// shard. The tensors of a shard follow each other in it without holes.
type tensorRecord struct {
	Name   string `json:"name"`
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	Shard  int    `json:"shard"`
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
}

// shardRecord is what a shard file must be: its whole size, the raw bytes in it, and the CRC-32C
// of the whole file.
type shardRecord struct {
	File string   `json:"file"`
	Size int64    `json:"size"`
	Raw  int64    `json:"raw"`
	CRC  checksum `json:"crc32c"`
}

// checksum is a CRC-32C, in JSON eight lower-case hexadecimal digits.
type checksum uint32

func (c checksum) String() string               { return fmt.Sprintf("%08x", uint32(c)) }
func (c checksum) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func (c *checksum) UnmarshalText(text []byte) error {
	var v uint32
	if len(text) != 8 {
		return fmt.Errorf("checksum %q is not 8 hexadecimal digits", text)
	}
	for _, digit := range text {
		switch {
		case digit >= '0' && digit <= '9':
			v = v<<4 | uint32(digit-'0')
		case digit >= 'a' && digit <= 'f':
			v = v<<4 | uint32(digit-'a'+10)
		default:
			return fmt.Errorf("checksum %q is not 8 lower-case hexadecimal digits", text)
		}
	}
	*c = checksum(v)
	return nil
}

// The manifest's own checksum is its last field, in exactly this form, and covers every byte
// before tailStart.
const (
	tailStart = ",\n  \"crc32c\": \""
	tailEnd   = "\"\n}\n"
	tailBytes = len(tailStart) + 8 + len(tailEnd)
)

// encode gives the manifest's bytes: a field to a line, a tensor to a line, for people who look.
func (m *manifest) encode() ([]byte, error) {
	e := manifestEncoder{}
	e.open("{")
	e.field("format", m.Format)
	e.field("version", m.Version)
	e.field("run", m.Run)
	e.field("attempt", m.Attempt)
	e.field("step", m.Step)
	e.field("world", m.World)
	e.field("created", m.Created)
	e.field("program", m.Program)
	e.key("values")
	e.open("{")
	for _, key := range slices.Sorted(maps.Keys(m.Values)) {
		e.field(key, m.Values[key])
	}
	e.close("}")
	e.key("tensors")
	e.open("[")
	for _, t := range m.Tensors {
		t.Shape = append([]int{}, t.Shape...) // a scalar's is [], not null
		e.item(t)
	}
	e.close("]")
	e.key("shards")
	e.open("[")
	for _, s := range m.Shards {
		e.item(s)
	}
	e.close("]")
	sum := crc32.Checksum(e.buf.Bytes(), castagnoli)
	e.buf.WriteString(tailStart + checksum(sum).String() + tailEnd)
	return e.buf.Bytes(), e.err
}

// manifestEncoder writes JSON with line breaks where encode wants them.
type manifestEncoder struct {
	buf   bytes.Buffer
	depth int
	some  bool // the open object or list has an item already
	err   error
}

func (e *manifestEncoder) open(bracket string) {
	e.buf.WriteString(bracket)
	e.depth++
	e.some = false
}

func (e *manifestEncoder) close(bracket string) {
	e.depth--
	if e.some {
		e.line()
	}
	e.buf.WriteString(bracket)
	e.some = true
}

func (e *manifestEncoder) line() {
	e.buf.WriteByte('\n')
	for range e.depth {
		e.buf.WriteString("  ")
	}
}

func (e *manifestEncoder) next() {
	if e.some {
		e.buf.WriteByte(',')
	}
	e.some = true
	e.line()
}

func (e *manifestEncoder) key(name string) {
	e.next()
	e.value(name)
	e.buf.WriteString(": ")
}

func (e *manifestEncoder) field(name string, v any) {
	e.key(name)
	e.value(v)
}

func (e *manifestEncoder) item(v any) {
	e.next()
	e.value(v)
}

func (e *manifestEncoder) value(v any) {
	enc := json.NewEncoder(&e.buf)
	enc.SetEscapeHTML(false) // values come back byte for byte
	if err := enc.Encode(v); err != nil && e.err == nil {
		e.err = err
		return
	}
	e.buf.Truncate(e.buf.Len() - 1) // Encode's line break
}

package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Parse parses the bytes of a MANIFEST.json. It checks first the checksum, then the version, then
// the rest, so that damage is never reported as a newer format, which is a *Newer. Every other
// error says what is wrong with the bytes.
func Parse(data []byte) (*Manifest, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("it is %d bytes long, at most %d are allowed", len(data), MaxBytes)
	}
	h, version, err := open(data, formatName, 1)
	if err != nil {
		return nil, err
	}
	if err := h.require(commonNames...); err != nil {
		return nil, err
	}
	var m *Manifest
	if version == 1 {
		m, err = parse1(data)
	} else {
		m, err = parse2(data, h)
	}
	if err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// commonNames are the fields that every manifest has.
var commonNames = []string{"run", "attempt", "step", "world", "created", "program", "values", "tensors", "shards"}

// open checks what all versions of a sealed object have in common, then that the version is at least oldest and not newer than Version, and
// then the rules for every object of a known version.
func open(data []byte, format string, oldest int64) (h head, version int64, err error) {
	if err := CheckSeal(data); err != nil {
		return head{}, 0, err
	}
	if h, err = scan(data); err != nil {
		return head{}, 0, err
	}
	if err := h.require("format", "version"); err != nil {
		return head{}, 0, err
	}
	var name string
	if err := unmarshal([]byte(h.fields["format"]), &name); err != nil || name != format {
		return head{}, 0, fmt.Errorf("format is %s, not %q", quote(h.fields["format"]), format)
	}
	version, err = strconv.ParseInt(h.fields["version"], 10, 64)
	switch {
	case err != nil:
		return head{}, 0, fmt.Errorf("version is %s, not an integer", quote(h.fields["version"]))
	case version > Version:
		return head{}, 0, &Newer{Version: version}
	case version < oldest:
		return head{}, 0, fmt.Errorf("version is %d", version)
	}
	return h, version, h.check()
}

func parse1(data []byte) (*Manifest, error) {
	var f fields1
	if err := unmarshal(data, &f); err != nil {
		return nil, err
	}
	m, err := f.manifest(1)
	if err != nil {
		return nil, err
	}
	m.Tensors = make([]Tensor, 0, len(f.Tensors))
	end := make(map[int]int64) // of the tensors so far, by shard
	for _, t := range f.Tensors {
		if t.Shard == nil || t.Offset == nil || t.Length == nil {
			return nil, fmt.Errorf("tensor %s: shard, offset or length is missing", quote(t.Name))
		}
		p := Piece{Shard: *t.Shard, Offset: *t.Offset, Length: *t.Length}
		if p.Offset < end[p.Shard] {
			return nil, fmt.Errorf("tensor %s begins at %d of shard %d, but the one before it ends at %d",
				quote(t.Name), p.Offset, p.Shard, end[p.Shard])
		}
		end[p.Shard] = p.Offset + p.Length
		m.Tensors = append(m.Tensors, Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Pieces: []Piece{p}})
	}
	return m, nil
}

func parse2(data []byte, h head) (*Manifest, error) {
	if err := h.require("metrics"); err != nil {
		return nil, err
	}
	var f fields2
	if err := unmarshal(data, &f); err != nil {
		return nil, err
	}
	m, err := f.manifest(2)
	if err != nil {
		return nil, err
	}
	if b := f.Base; b != nil {
		if b.Step == nil || b.CRC == nil {
			return nil, errors.New("the base's step or checksum is missing")
		}
		m.Base = &Base{Step: *b.Step, Folder: b.Folder, CRC: *b.CRC}
	}
	m.Metrics = make(map[string]float64, len(f.Metrics))
	for key, v := range f.Metrics {
		if v == nil {
			return nil, fmt.Errorf("metric %q is null", key) // the key is at most 64 bytes
		}
		m.Metrics[key] = *v
	}
	m.Tensors = make([]Tensor, 0, len(f.Tensors))
	for _, t := range f.Tensors {
		if t.Pieces == nil {
			return nil, fmt.Errorf("tensor %s: pieces is missing", quote(t.Name))
		}
		m.Tensors = append(m.Tensors, Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Pieces: t.Pieces})
	}
	return m, nil
}

func (f commonFields) manifest(version int64) (*Manifest, error) {
	shards := make([]Shard, len(f.Shards))
	for i, s := range f.Shards {
		if s.Raw == nil || s.CRC == nil {
			return nil, fmt.Errorf("shard %d: raw or crc32c is missing", i)
		}
		shards[i] = Shard{File: s.File, Size: s.Size, Raw: *s.Raw, CRC: *s.CRC}
	}
	return &Manifest{
		Version: version, Run: f.Run, Attempt: f.Attempt, Step: f.Step, World: f.World,
		Created: f.Created, Program: f.Program, Values: f.Values, Shards: shards,
	}, nil
}

// A field is a pointer if a missing or null one could otherwise be taken for a zero that is allowed. The fields of
// the manifest itself are checked before (head.require); for the other fields zero is refused.

// commonFields are the fields of the manifests of all versions.
type commonFields struct {
	Run     string                     `json:"run"`
	Attempt int                        `json:"attempt"`
	Step    int64                      `json:"step"`
	World   int                        `json:"world"`
	Created time.Time                  `json:"created"`
	Program string                     `json:"program"`
	Values  map[string]json.RawMessage `json:"values"`
	Shards  []shardFields              `json:"shards"`
}

type shardFields struct {
	File string    `json:"file"`
	Size int64     `json:"size"`
	Raw  *int64    `json:"raw"`
	CRC  *Checksum `json:"crc32c"`
}

// fields1 is a manifest of version 1, in which each tensor is in one shard.
type fields1 struct {
	commonFields
	Tensors []struct {
		Name   string `json:"name"`
		DType  string `json:"dtype"`
		Shape  shape  `json:"shape"`
		Shard  *int   `json:"shard"`
		Offset *int64 `json:"offset"`
		Length *int64 `json:"length"`
	} `json:"tensors"`
}

// fields2 is a manifest of version 2.
type fields2 struct {
	commonFields
	Base    *baseFields         `json:"base"`
	Metrics map[string]*float64 `json:"metrics"`
	Tensors []tensorFields      `json:"tensors"`
}

type baseFields struct {
	Step   *int64    `json:"step"`
	Folder string    `json:"folder"`
	CRC    *Checksum `json:"crc32c"`
}

type tensorFields struct {
	Name   string    `json:"name"`
	DType  string    `json:"dtype"`
	Shape  shape     `json:"shape"`
	Pieces pieceList `json:"pieces"`
}

// shape is a list of up to MaxDims integers.
type shape []int

// UnmarshalJSON checks the number of dimensions before it allocates them.
func (s *shape) UnmarshalJSON(data []byte) error {
	v, err := integers(data, MaxDims)
	if err != nil {
		return fmt.Errorf("shape: %w", err)
	}
	*s = make(shape, len(v))
	for i, n := range v {
		(*s)[i] = int(n)
	}
	return nil
}

type pieceList []Piece

// MarshalJSON encodes a piece as the list [shard, offset, start, length].
func (p Piece) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "[%d,%d,%d,%d]", p.Shard, p.Offset, p.Start, p.Length), nil
}

// UnmarshalJSON accepts what MarshalJSON returns.
func (p *Piece) UnmarshalJSON(data []byte) error {
	v, err := integers(data, 4)
	if err != nil {
		return fmt.Errorf("piece: %w", err)
	}
	if len(v) != 4 {
		return fmt.Errorf("a piece has %d numbers, not shard, offset, start and length", len(v))
	}
	*p = Piece{Shard: int(v[0]), Offset: v[1], Start: v[2], Length: v[3]}
	return nil
}

// integers parses a JSON list of at most limit integers. Unlike encoding/json it refuses null,
// both for the list and for a number in it.
func integers(data []byte, limit int) ([]int64, error) {
	text, ok1 := strings.CutPrefix(string(data), "[")
	text, ok2 := strings.CutSuffix(text, "]")
	if !ok1 || !ok2 {
		return nil, errors.New("not a list")
	}
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	count := strings.Count(text, ",") + 1
	if count > limit {
		return nil, fmt.Errorf("it has %d numbers, at most %d are allowed", count, limit)
	}
	v := make([]int64, 0, count)
	for item := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(item), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is not a 64-bit integer", quote(item))
		}
		v = append(v, n)
	}
	return v, nil
}

package manifest

import (
	"errors"
	"fmt"
	"strconv"
)

// Parse reads the bytes of a MANIFEST.json. It checks first the checksum, then the version, then
// all the rest, so that damage is never taken for a newer format, which is a *Newer. Every other
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

// open checks of a sealed object all that is the same in every version, then the version, which is oldest at least, then
// what every object of a version that is known must keep.
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
			return nil, fmt.Errorf("tensor %s begins at %d of shard %d, the one before ends at %d",
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
			return nil, fmt.Errorf("metric %q is null", key) // which is at most 64 bytes
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

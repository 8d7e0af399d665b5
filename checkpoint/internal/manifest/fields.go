package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A pointer stands where a field that is missing, or null, would else be taken for a zero that is allowed. The fields of
// the manifest itself are looked for before (head.require), and elsewhere zero is refused.

// commonFields are what the manifests of all versions have.
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

// fields1 is a manifest of version 1, where a tensor lay in one shard.
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

// UnmarshalJSON looks at the number of dimensions before it allocates them.
func (s *shape) UnmarshalJSON(data []byte) error {
	v, err := integers(data, MaxDims)
	if err != nil {
		return fmt.Errorf("shape: %w", err)
	}
	*s = make(shape, len(v))
	for i, n := range v {
		if (*s)[i] = int(n); int64((*s)[i]) != n { // where an int has 32 bits
			return fmt.Errorf("shape: %d is too large for this machine", n)
		}
	}
	return nil
}

type pieceList []Piece

// MarshalJSON gives a piece as the list [shard, offset, start, length].
func (p Piece) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "[%d,%d,%d,%d]", p.Shard, p.Offset, p.Start, p.Length), nil
}

// UnmarshalJSON takes what MarshalJSON gives.
func (p *Piece) UnmarshalJSON(data []byte) error {
	v, err := integers(data, 4)
	if err != nil {
		return fmt.Errorf("piece: %w", err)
	}
	if len(v) != 4 {
		return fmt.Errorf("a piece has %d numbers, not shard, offset, start and length", len(v))
	}
	if v[0] < 0 || v[0] >= MaxShards { // or an int of 32 bits would make another number of it
		return fmt.Errorf("a piece is in shard %d", v[0])
	}
	*p = Piece{Shard: int(v[0]), Offset: v[1], Start: v[2], Length: v[3]}
	return nil
}

// integers reads a JSON list of at most limit integers. Unlike encoding/json it takes null
// neither for the list nor for a number in it.
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
		return nil, fmt.Errorf("%d numbers, at most %d are allowed", count, limit)
	}
	v := make([]int64, 0, count)
	for item := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(item), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is not an integer of 64 bits", quote(item))
		}
		v = append(v, n)
	}
	return v, nil
}

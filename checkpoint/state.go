package checkpoint

import (
	"encoding/json"
	"fmt"

	"ddpbatch/checkpoint/internal/manifest"
)

const (
	maxStep = manifest.MaxStep
	maxName = manifest.MaxName
)

// State is all that one checkpoint holds. What Latest and Load return belongs to the caller.
type State struct {
	Step    int64 // 0 to 999,999,999,999
	World   int   // ranks that trained, at least 1
	Tensors []Tensor
	// Values are small facts kept in the manifest itself: sampler position, random
	// state, learning rate. Keys are [a-z0-9_.]{1,64}. They come back without the white space
	// between their tokens, otherwise byte for byte.
	Values map[string]json.RawMessage
	// Metrics are finite numbers by which the best checkpoints are chosen (Policy.Best). Keys are
	// as those of Values.
	Metrics map[string]float64
	// Check, unless nil, is called once all of the state has been read, before the save counts. An
	// error ends the save, and there is no checkpoint of it. For tensors that somebody else could change under Save's hands (Tensor.From).
	Check func() error
}

// pieces lays the tensors of a state into one shard.
func (s *State) pieces() []Piece {
	var pieces []Piece
	for _, t := range s.Tensors {
		if n := t.size(); n > 0 {
			pieces = append(pieces, Piece{Tensor: t.Name, DType: t.DType, Shape: t.Shape, Data: t.Data, From: t.From, Length: n})
		}
	}
	return pieces
}

// commit is what is recorded of a state whose pieces are in shard 0 of 1.
func (s *State) commit() Commit {
	c := Commit{World: s.World, Values: s.Values, Metrics: s.Metrics, Tensors: make([]TensorPlan, len(s.Tensors))}
	offset := int64(0)
	for i, t := range s.Tensors {
		c.Tensors[i] = TensorPlan{Name: t.Name, DType: t.DType, Shape: t.Shape}
		if n := t.size(); n > 0 {
			c.Tensors[i].Extents = []Extent{{Offset: offset, Length: n}}
			offset += n
		}
	}
	return c
}

// validate refuses tensors and values that are not what they say. The rest is the manifest's to
// check.
func (s *State) validate() error {
	for _, t := range s.Tensors {
		size, err := manifest.ByteSize(t.DType, t.Shape)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if t.From != nil && t.Data != nil {
			return fmt.Errorf("tensor %q: its bytes are in Data and in From", t.Name)
		}
		if size != t.size() {
			return fmt.Errorf("tensor %q: shape %v of %s needs %d bytes, it has %d", t.Name, t.Shape, t.DType, size, len(t.Data))
		}
	}
	for key, value := range s.Values {
		if !json.Valid(value) { // encoding/json would take one that is nil
			return fmt.Errorf("value %q is not JSON", key)
		}
	}
	return nil
}

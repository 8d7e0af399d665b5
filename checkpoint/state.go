package checkpoint

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

const (
	maxStep    = 999_999_999_999 // what step-%012d holds
	maxWorld   = 1 << 20
	maxName    = 256
	maxTensors = 1 << 20
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
}

// validate refuses a state that could not be read back.
func (s *State) validate() error {
	if s.Step < 0 || s.Step > maxStep {
		return fmt.Errorf("step %d is not within 0 to %d", s.Step, int64(maxStep))
	}
	if s.World < 1 || s.World > maxWorld {
		return fmt.Errorf("world size %d is not within 1 to %d", s.World, maxWorld)
	}
	for _, t := range s.Tensors {
		if err := checkTensorName(t.Name); err != nil {
			return err // here too: JSON would mend what is not UTF-8
		}
		size, err := byteSize(t.DType, t.Shape)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if size != int64(len(t.Data)) {
			return fmt.Errorf("tensor %q: shape %v of %s needs %d bytes, it has %d", t.Name, t.Shape, t.DType, size, len(t.Data))
		}
	}
	for key, value := range s.Values {
		if !json.Valid(value) {
			return fmt.Errorf("value %q is not JSON", key)
		}
	}
	return nil // doubled names, keys and what is in the values are the manifest's to check
}

func checkTensorName(name string) error {
	if len(name) == 0 || len(name) > maxName || !utf8.ValidString(name) {
		return fmt.Errorf("tensor name %q is not 1 to %d bytes of UTF-8", name, maxName)
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f {
			return fmt.Errorf("tensor name %q has a control character", name)
		}
	}
	return nil
}

// validKey says whether a key is [a-z0-9_.]{1,64}, as every key of a manifest is.
func validKey(key string) bool {
	if len(key) == 0 || len(key) > 64 {
		return false
	}
	for _, c := range []byte(key) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

package checkpoint

import (
	"encoding/json"
	"fmt"
)

// A safetensors file (https://github.com/huggingface/safetensors, format section) is the length of the header, 8 bytes
// little-endian; the header, a JSON object; and the tensors' data, without gaps:
//
//	{"__metadata__": {"format": "pt"}, "0.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}

// maxSafetensorsHeader is the longest header that the format's own reader takes.
const maxSafetensorsHeader = 100 << 20

const safetensorsMetadata = "__metadata__"

// safetensor is the header's entry of one tensor.
type safetensor struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"` // of its first byte and past its last, from the end of the header
}

// safetensorsTypes are the format's names of our types.
var safetensorsTypes = map[string]string{
	"bool": "BOOL", "int8": "I8", "uint8": "U8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32",
	"int64": "I64", "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
}

// dtypeOf is the reverse.
func dtypeOf(name string) (string, error) {
	for ours, theirs := range safetensorsTypes {
		if theirs == name {
			return ours, nil
		}
	}
	return "", fmt.Errorf("type %q is unknown", name)
}

// parseSafetensorsHeader returns the entries of a header, whose data has size bytes.
func parseSafetensorsHeader(text []byte, size int64) (map[string]safetensor, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("its header is no JSON object: %w", err)
	}
	delete(raw, safetensorsMetadata)
	if len(raw) > maxTensors {
		return nil, fmt.Errorf("it has %d tensors, at most %d are read", len(raw), maxTensors)
	}
	entries := make(map[string]safetensor, len(raw))
	for name, text := range raw {
		var s safetensor
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		if err := s.check(name, size); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		entries[name] = s
	}
	return entries, nil
}

func (s *safetensor) check(name string, size int64) error {
	if err := checkTensorName(name); err != nil {
		return err
	}
	dtype, err := dtypeOf(s.DType)
	if err != nil {
		return err
	}
	want, err := byteSize(dtype, s.Shape)
	if err != nil {
		return err
	}
	if first, end := s.Offsets[0], s.Offsets[1]; first < 0 || end < first || end > size || end-first != want {
		return fmt.Errorf("bytes %d to %d of %d do not hold its shape %v", first, end, size, s.Shape)
	}
	return nil
}

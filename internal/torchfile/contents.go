package torchfile

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"ddpbatch/internal/text"
)

// dtypes maps the names of PyTorch's storages and types to element types.
var dtypes = map[string]string{
	"torch.FloatStorage": "float32", "torch.DoubleStorage": "float64", "torch.HalfStorage": "float16", "torch.BFloat16Storage": "bfloat16",
	"torch.LongStorage": "int64", "torch.IntStorage": "int32", "torch.ShortStorage": "int16", "torch.CharStorage": "int8",
	"torch.ByteStorage": "uint8", "torch.BoolStorage": "bool", "torch.ComplexFloatStorage": "complex64",
	"torch.ComplexDoubleStorage": "complex128",
	"torch.float8_e4m3fn":        "float8_e4m3fn", "torch.float8_e5m2": "float8_e5m2", "torch.uint16": "uint16", "torch.uint32": "uint32",
	"torch.uint64": "uint64",
}

// sizes are the sizes of elements in bytes.
var sizes = map[string]int64{
	"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
	"bool": 1, "complex64": 8,
	"complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1, "uint16": 2, "uint32": 4, "uint64": 8,
}

const (
	maxLeaves   = 1 << 20  // tensors and values of a file
	maxDepth    = 100      // levels of nested dicts and lists
	maxText     = 64 << 20 // bytes of all paths and values
	maxBits     = 1 << 16  // of an integer
	maxKey      = 1 << 10  // bytes of a key that consists of several values, after which the rest is left out
	maxKeyDepth = 2        // levels of such keys
)

// walker flattens the value of a pickle. Floats become tensors of one element, so that a tolerance applies to them.
type walker struct {
	f      *File
	leaves int
	bytes  int // of the paths and values so far
}

// walk adds v and everything in it. path is the path of v.
func (w *walker) walk(path string, v any, depth int) error {
	if depth > maxDepth {
		return errors.New("the file's values are nested too deeply")
	}
	switch v := v.(type) {
	case *mapping:
		for i, key := range v.keys {
			if err := w.walk(join(path, keyText(key, 0)), v.values[i], depth+1); err != nil {
				return err
			}
		}
		return w.empty(path, len(v.keys), "{}")
	case *sequence:
		for i, item := range v.items {
			if err := w.walk(join(path, strconv.Itoa(i)), item, depth+1); err != nil {
				return err
			}
		}
		return w.empty(path, len(v.items), "[]")
	case *object:
		return w.object(path, v, depth)
	case persist:
		return errors.New("the file has a storage outside of a tensor")
	case float64:
		return w.add(Tensor{Name: path, DType: "float64", Bytes: 8, value: binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))})
	}
	return w.value(path, v)
}

// empty records an empty container, which one file may have and the other not.
func (w *walker) empty(path string, n int, text string) error {
	if n > 0 {
		return w.count(0)
	}
	return w.set(path, json.RawMessage(text))
}

// object adds a tensor, a dict of another type, or the arguments of an unknown class.
func (w *walker) object(path string, o *object, depth int) error {
	args, _ := o.args.(*sequence)
	if args == nil {
		args = &sequence{}
	}
	class, _ := o.class.(global)
	switch class {
	case "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3":
		t, err := w.f.tensor(path, args.items)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", path, err)
		}
		return w.add(t)
	case "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state":
		if len(args.items) > 0 {
			return w.walk(path, args.items[0], depth+1)
		}
	case orderedDict:
		if items, ok := o.state.(*mapping); ok {
			return w.walk(path, items, depth+1)
		}
	}
	if err := w.value(path, string(class)); err != nil {
		return err
	}
	for i, arg := range args.items {
		if err := w.walk(join(path, "args."+strconv.Itoa(i)), arg, depth+1); err != nil {
			return err
		}
	}
	if o.state == nil {
		return nil
	}
	return w.walk(join(path, "state"), o.state, depth+1)
}

// value adds a small value, as JSON.
func (w *walker) value(path string, v any) error {
	switch x := v.(type) {
	case global:
		v = string(x)
	case *big.Int:
		if x.BitLen() > maxBits {
			return fmt.Errorf("%q is a number of %d bits", text.Shortened(path, 100), x.BitLen())
		}
		return w.set(path, json.RawMessage(x.Append(nil, 10)))
	case string:
		if len(x) > maxText-w.bytes {
			return errTooMuchText
		}
	case []byte:
		if len(x) > maxText-w.bytes {
			return errTooMuchText
		}
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.set(path, encoded)
}

func (w *walker) set(path string, text json.RawMessage) error {
	w.f.values[path] = text
	return w.count(len(path) + len(text))
}

func (w *walker) add(t Tensor) error {
	w.f.tensors = append(w.f.tensors, t)
	return w.count(len(t.Name))
}

var errTooMuchText = fmt.Errorf("the file's texts take more than %d MiB", maxText>>20)

// count limits the work and the memory by the number of bytes of text, because a pickle may hold one value in many places.
func (w *walker) count(text int) error {
	w.bytes += text
	if w.leaves++; w.leaves > maxLeaves {
		return fmt.Errorf("the file has more than %d values", maxLeaves)
	}
	if w.bytes > maxText {
		return errTooMuchText
	}
	return nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// keyText formats a key of a dict, for a path.
func keyText(key any, depth int) string {
	switch key := key.(type) {
	case string:
		return key
	case global:
		return string(key)
	case *big.Int:
		if key.BitLen() > maxBits {
			return fmt.Sprintf("a number of %d bits", key.BitLen())
		}
		return key.String()
	case *sequence:
		shown := "("
		for i, item := range key.items {
			if depth == maxKeyDepth || len(shown) > maxKey {
				shown += "..."
				break
			}
			if i > 0 {
				shown += ","
			}
			shown += keyText(item, depth+1)
		}
		return shown + ")"
	case nil, bool, float64, []byte:
		return fmt.Sprint(key)
	}
	return fmt.Sprintf("%T", key)
}

// tensor interprets the arguments of _rebuild_tensor_v2 and similar functions: storage, offset, size, stride and, in v3, the type as the
// seventh.
func (f *File) tensor(name string, args []any) (Tensor, error) {
	if len(args) < 4 {
		return Tensor{}, errors.New("it lacks its storage, size or stride")
	}
	stored, _ := args[0].(persist)
	id, _ := stored.id.(*sequence)
	if id == nil || len(id.items) < 3 {
		return Tensor{}, errors.New("it has no storage")
	}
	class, _ := id.items[1].(global)
	key, _ := id.items[2].(string)
	dtype := dtypes[string(class)]
	if class == "torch.storage.UntypedStorage" || class == "torch.UntypedStorage" {
		if len(args) < 7 {
			return Tensor{}, errors.New("it has no type")
		}
		named, _ := args[6].(global)
		dtype = dtypes[string(named)]
	}
	if dtype == "" {
		return Tensor{}, fmt.Errorf("its type is not supported (%q)", class)
	}
	offset, err := dimension(args[1])
	if err != nil {
		return Tensor{}, err
	}
	shape, err := dimensions(args[2])
	if err != nil {
		return Tensor{}, err
	}
	stride, err := dimensions(args[3])
	if err != nil || len(stride) != len(shape) {
		return Tensor{}, errors.New("its strides do not fit its shape")
	}
	return f.place(Tensor{Name: name, DType: dtype, shape: shape, stride: stride}, key, offset)
}

func dimensions(v any) (list []int64, err error) {
	s, ok := v.(*sequence)
	if !ok {
		return nil, errors.New("its shape is invalid")
	}
	for _, item := range s.items {
		n, err := dimension(item)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

func dimension(v any) (int64, error) {
	n, ok := v.(*big.Int)
	if !ok || !n.IsInt64() || n.Sign() < 0 || n.Int64() > maxElements {
		return 0, errors.New("its shape is invalid")
	}
	return n.Int64(), nil
}

package safetensors

// dtype is a type of elements. The format's own writer sorts by the place in its list, which is ours.
type dtype struct {
	name string // in the file
	bits uint64 // of an element
	ours string // a checkpoint's name for it; empty: it has none
}

// dtypes are the format's, by rising alignment (enum Dtype of safetensors/src/tensor.rs).
var dtypes = [...]dtype{
	{"BOOL", 8, "bool"},
	{"F4", 4, ""},
	{"F6_E2M3", 6, ""},
	{"F6_E3M2", 6, ""},
	{"U8", 8, "uint8"},
	{"I8", 8, "int8"},
	{"F8_E5M2", 8, "float8_e5m2"},
	{"F8_E4M3", 8, "float8_e4m3fn"},
	{"F8_E8M0", 8, ""},
	{"F8_E4M3FNUZ", 8, ""},
	{"F8_E5M2FNUZ", 8, ""},
	{"I16", 16, "int16"},
	{"U16", 16, "uint16"},
	{"F16", 16, "float16"},
	{"BF16", 16, "bfloat16"},
	{"I32", 32, "int32"},
	{"U32", 32, "uint32"},
	{"F32", 32, "float32"},
	{"C64", 64, "complex64"},
	{"F64", 64, "float64"},
	{"I64", 64, "int64"},
	{"U64", 64, "uint64"},
}

// typeNamed is the place in dtypes of the file's name for a type; -1: there is none.
func typeNamed(name string) int {
	for i, t := range dtypes {
		if t.name == name {
			return i
		}
	}
	return -1
}

// typeOf is the place in dtypes of a checkpoint's name for a type; -1: the format has none.
func typeOf(ours string) int {
	for i, t := range dtypes {
		if t.ours == ours && ours != "" {
			return i
		}
	}
	return -1
}

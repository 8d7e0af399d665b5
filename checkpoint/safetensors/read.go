package safetensors

import (
	"fmt"

	"ddpbatch/checkpoint"
)

// ReadFile reads all tensors of a file, in the order of their data, and its metadata. It refuses a file with a type that
// a checkpoint does not have, before it reads any data, and one that is written to meanwhile (see [File.Unchanged]).
func ReadFile(path string) ([]checkpoint.Tensor, Metadata, error) {
	f, err := Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	tensors, err := f.readAll()
	return tensors, f.metadata, err
}

func (f *File) readAll() ([]checkpoint.Tensor, error) {
	for _, t := range f.infos {
		if err := t.Known(); err != nil {
			return nil, readError(f.path, err)
		}
	}
	var tensors []checkpoint.Tensor
	for _, t := range f.infos {
		data := make([]byte, t.Bytes)
		if err := f.Read(t, 0, data); err != nil {
			return nil, err
		}
		tensors = append(tensors, checkpoint.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: data})
	}
	return tensors, f.Unchanged()
}

// Known says by an error that a checkpoint cannot hold the tensor's type.
func (t Info) Known() error {
	if t.DType == "" {
		return fmt.Errorf("tensor %s is of the type %s, which checkpoints do not have; convert it to F32, F16 or BF16 first", quoted(t.Name), t.Type)
	}
	return nil
}

package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ddpbatch/internal/vfs"
)

// WriteSafetensors puts tensors into a file, in their order, with facts about them as its metadata. The file is there whole and durably
// when this returns nil, or else as it was before.
func WriteSafetensors(path string, tensors []Tensor, metadata map[string]string) error {
	if err := (&State{World: 1, Tensors: tensors}).validate(); err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	header, err := safetensorsHeader(tensors, metadata)
	if err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	err = replaceFile(vfs.OS{}, path, func(w io.Writer) error {
		if _, err := w.Write(header); err != nil {
			return err
		}
		for _, t := range tensors {
			if _, err := w.Write(t.Data); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return classify(fmt.Errorf("write safetensors: %w", err))
	}
	return nil
}

// safetensorsHeader is a file up to its data, which begins at a multiple of 8 bytes.
func safetensorsHeader(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	entries := map[string]any{}
	if len(metadata) > 0 {
		entries[safetensorsMetadata] = metadata
	}
	at := int64(0)
	for _, t := range tensors {
		if _, twice := entries[t.Name]; twice {
			return nil, fmt.Errorf("two tensors are named %q", t.Name)
		}
		end := at + int64(len(t.Data))
		entries[t.Name] = safetensor{DType: safetensorsTypes[t.DType], Shape: append([]int{}, t.Shape...), Offsets: [2]int64{at, end}}
		at = end
	}
	text, err := json.Marshal(entries)
	if err != nil {
		return nil, err
	}
	text = append(text, bytes.Repeat([]byte{' '}, -len(text)&7)...)
	if len(text) > maxSafetensorsHeader {
		return nil, fmt.Errorf("%d tensors need a header of %d bytes, at most %d are read", len(tensors), len(text), maxSafetensorsHeader)
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

// replaceFile puts a file in place of path's, whole and durably, by a temporary one beside it.
func replaceFile(fs vfs.FS, path string, fill func(io.Writer) error) error {
	tmp := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	f, err := fs.Create(tmp)
	if err != nil {
		return err
	}
	if err = fillFile(f, tmp, fill); err == nil {
		err = fs.Rename(tmp, path)
	}
	if err != nil {
		_ = fs.Remove(tmp) // the first error is the one to tell
		return err
	}
	return fs.SyncDir(filepath.Dir(path))
}

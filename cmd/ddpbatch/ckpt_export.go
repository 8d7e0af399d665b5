package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/npy"
	"ddpbatch/checkpoint/safetensors"
)

// What an export writes.
const (
	exportTensors = "safetensors file"
	exportArray   = ".npy file"
	exportArrays  = "folder of .npy files"
)

// otherEndings are those of files that an export is not, whatever the user hopes.
var otherEndings = []string{".pt", ".pth", ".bin", ".ckpt", ".npz", ".h5", ".onnx"}

// exportKind is what to write, by what was asked for and by the file's ending. It refuses what could not be written there before anything is read.
func exportKind(e *env, file, format, tensor string) (string, error) {
	ending := filepath.Ext(file)
	kind := exportTensors
	switch {
	case format != "" && format != "safetensors" && format != "npy":
		return "", usagef("there is no format %q; it is safetensors or npy", format)
	case format == "npy" && tensor == "":
		return exportArrays, needPlaceOfFolder(e, e.abs(file))
	case format == "npy", format == "" && ending == ".npy":
		kind = exportArray
	case format == "" && slices.Contains(otherEndings, ending):
		return "", usagef("%s would be a safetensors file, and its ending says otherwise; name it %s, or say --format safetensors",
			e.named(file), e.named(strings.TrimSuffix(file, ending)+".safetensors"))
	}
	return kind, needPlaceOfFile(e, file)
}

// needPlaceOfFile refuses a path where no file can be put. An export takes the place of what is there, which must not be a device: as root that could be done.
func needPlaceOfFile(e *env, file string) error {
	path := e.abs(file)
	info, err := os.Stat(path)
	switch {
	case strings.HasSuffix(file, "/"), err == nil && info.IsDir():
		return usagef("export: %s is a folder; name a file in it, or write a .npy file of each tensor there: --format npy", e.named(file))
	case err == nil && !info.Mode().IsRegular():
		return usagef("export: %s is no regular file, and an export takes the place of what is there; name another", e.named(file))
	}
	return needFolderOf(e, "export", path)
}

func needPlaceOfFolder(e *env, path string) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return usagef("export: %s is no folder, and --format npy without --tensor writes one", e.named(path))
	}
	return needFolderOf(e, "export", path)
}

// needFolderOf refuses a path whose folder is not there: it may be mistyped.
func needFolderOf(e *env, doing, path string) error {
	if isDir(filepath.Dir(path)) {
		return nil
	}
	return &usageError{message: fmt.Sprintf("%s: the folder of %s is not there", doing, e.named(path)), hint: "make it first, or name another"}
}

// exportPiece is how much of a tensor is in memory while it is exported.
const exportPiece = 4 << 20

// exporter writes tensors of a checkpoint to files, piece by piece.
type exporter struct {
	checkpoint *checkpoint.Checkpoint
	tensors    []exportTensor
	buf        []byte
}

// exportTensor is a tensor with the name it gets.
type exportTensor struct {
	checkpoint.TensorInfo
	as string
}

// choose picks what to export: the model, by the names that PyTorch has for its parts, or all; of that, the one named.
func (x *exporter) choose(tensor string, all bool) error {
	names := map[string]bool{}
	for _, t := range x.checkpoint.Tensors() {
		name, model := strings.CutPrefix(t.Name, modelPrefix)
		switch {
		case all:
			name = t.Name
		case !model && tensor != t.Name:
			continue
		}
		if tensor == "" || tensor == t.Name || tensor == name {
			x.tensors = append(x.tensors, exportTensor{t, name})
			names[name] = true
		}
	}
	switch {
	case tensor != "" && len(x.tensors) == 0:
		return usagef("the checkpoint of step %d has no tensor %q; its names: ddpbatch ckpt show", x.checkpoint.Step(), tensor)
	case len(x.tensors) == 0:
		return fmt.Errorf("export: the checkpoint of step %d holds no model: its tensors are not named %q; export them with --all", x.checkpoint.Step(), modelPrefix+"*")
	case len(names) < len(x.tensors):
		return fmt.Errorf("export: several tensors are named %q, with and without %q", tensor, modelPrefix)
	}
	return nil
}

// safetensors writes a file with all that was chosen.
func (x *exporter) safetensors(ctx context.Context, path string) error {
	metadata, err := x.metadata()
	if err != nil {
		return err
	}
	var sources []safetensors.Source
	for _, t := range x.tensors {
		sources = append(sources, safetensors.Source{
			Name: t.as, DType: t.DType, Shape: t.Shape,
			Data: func(w io.Writer) error { return x.copy(ctx, t, w) },
		})
	}
	if err := safetensors.WriteSources(ctx, path, sources, metadata); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}

// fileMetadataKey is the value of a checkpoint that keeps the metadata of the safetensors file it was imported from: an array of keys and values, since their order counts.
const fileMetadataKey = "safetensors.metadata"

// metadata are those of the file that was imported, or else what transformers asks for ("format") and the step.
func (x *exporter) metadata() (safetensors.Metadata, error) {
	text, imported := x.checkpoint.Values()[fileMetadataKey]
	if !imported {
		return safetensors.Metadata{{Key: "format", Value: "pt"}, {Key: "step", Value: fmt.Sprint(x.checkpoint.Step())}}, nil
	}
	var pairs [][2]string
	if err := json.Unmarshal(text, &pairs); err != nil {
		return nil, fmt.Errorf("export: the checkpoint's value %s is no list of metadata: %w", fileMetadataKey, err)
	}
	if pairs == nil {
		return nil, nil
	}
	metadata := safetensors.Metadata{}
	for _, p := range pairs {
		metadata = append(metadata, safetensors.Field{Key: p[0], Value: p[1]})
	}
	return metadata, nil
}

// npy writes the only tensor to a file.
func (x *exporter) npy(ctx context.Context, path string) error {
	if len(x.tensors) != 1 {
		return usagef("a .npy file holds one tensor: name it with --tensor, or write a folder with --format npy")
	}
	t := x.tensors[0]
	return npy.WriteFile(ctx, path, t.DType, t.Shape, func(w io.Writer) error { return x.copy(ctx, t, w) })
}

// folder writes each tensor to a file of its name in a folder. Where one fails, the files that were not there before are gone again.
func (x *exporter) folder(ctx context.Context, path string) (err error) {
	names := map[string]string{}
	for _, t := range x.tensors {
		name, err := arrayFile(t.as)
		if err != nil {
			return err
		}
		names[t.Name] = name
	}
	made, err := makeFolder(path)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	var written []string
	defer func() {
		if err != nil {
			discard(path, made, written)
		}
	}()
	for _, t := range x.tensors {
		file := filepath.Join(path, names[t.Name])
		_, missing := os.Lstat(file)
		err := npy.WriteFile(ctx, file, t.DType, t.Shape, func(w io.Writer) error { return x.copy(ctx, t, w) })
		if err != nil {
			return fmt.Errorf("export: tensor %q: %w", t.Name, err)
		}
		if errors.Is(missing, fs.ErrNotExist) {
			written = append(written, file)
		}
	}
	return nil
}

// discard removes what an export has made.
func discard(folder string, made bool, files []string) {
	for _, file := range files {
		_ = os.Remove(file)
	}
	if made {
		_ = os.Remove(folder) // not empty: somebody else has put something there
	}
}

// arrayFile is the name of a tensor's file: its own, with every byte that a file's name should not have as %XX. No two tensors get the same.
func arrayFile(name string) (string, error) {
	var out strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.' && i > 0:
			out.WriteByte(c)
		default:
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	out.WriteString(".npy")
	if out.Len() > 255 {
		return "", fmt.Errorf("tensor %q has a name too long for a file's; export it alone: --tensor NAME FILE.npy", name)
	}
	return out.String(), nil
}

// copy writes the bytes of a tensor.
func (x *exporter) copy(ctx context.Context, t exportTensor, w io.Writer) error {
	for at := int64(0); at < t.Bytes; {
		piece := x.buf[:min(int64(len(x.buf)), t.Bytes-at)]
		if err := x.checkpoint.Read(ctx, []checkpoint.Target{{Name: t.Name, Start: at, Data: piece}}); err != nil {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
		at += int64(len(piece))
	}
	return nil
}

// makeFolder makes a folder whose parent is there, unless it is there itself.
func makeFolder(path string) (made bool, err error) {
	err = os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrExist) && isDir(path) {
		return false, nil
	}
	return err == nil, err
}

// modelPrefix is what the trainer puts before the names of a model's tensors.
const modelPrefix = "model."

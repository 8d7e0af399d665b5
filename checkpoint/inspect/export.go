package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/npy"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/internal/vfs"
)

// Kind is the kind of file that an export writes.
type Kind int

// The kinds of exports.
const (
	SafetensorsFile Kind = iota
	ArrayFile            // a .npy file, of one tensor
	ArrayFolder          // a folder of .npy files
)

// ExportKind returns what to write, from the requested format and the file's ending.
// It refuses what could not be written there, before anything is read.
func ExportKind(from text.Dir, file, format, tensor string) (Kind, error) {
	kind := SafetensorsFile
	switch {
	case format != "" && format != "safetensors" && format != "npy":
		return 0, usage.Errorf("unknown format %q: it is safetensors or npy", format)
	case format == "npy" && tensor == "":
		path := from.Abs(file)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return 0, usage.Errorf("export: %s is not a folder, and --format npy without --tensor writes a folder", from.Named(path))
		}
		return ArrayFolder, checkParent(from, "export", path)
	case format == "npy", format == "" && filepath.Ext(file) == ".npy":
		kind = ArrayFile
	case format == "":
		if err := safetensors.CheckName(file, from.Named); err != nil {
			return 0, usage.Errorf("%v, or give --format safetensors", err)
		}
	}
	return kind, checkFileTarget(from, file)
}

// checkFileTarget refuses a path at which no file can be written. An export replaces what is there, which must not be a device:
// root could do that.
func checkFileTarget(from text.Dir, file string) error {
	path := from.Abs(file)
	info, err := os.Stat(path)
	switch {
	case strings.HasSuffix(file, "/"), err == nil && info.IsDir():
		return usage.Errorf("export: %s is a folder; name a file in it, or write a .npy file of each tensor there: --format npy",
			from.Named(file))
	case err == nil && !info.Mode().IsRegular():
		return usage.Errorf("export: %s is not a regular file, and an export replaces what is there; name another file", from.Named(file))
	}
	return checkParent(from, "export", path)
}

// checkParent refuses a path whose folder does not exist: it may be mistyped.
func checkParent(from text.Dir, doing, path string) error {
	if vfs.IsDir(filepath.Dir(path)) {
		return nil
	}
	return &usage.Error{Message: fmt.Sprintf("%s: the folder of %s does not exist", doing, from.Named(path)),
		Hint: "create it first, or name another"}
}

// exportPiece is how much of a tensor is in memory at a time while it is exported.
const exportPiece = 4 << 20

// Export writes tensors of a checkpoint to files, piece by piece.
type Export struct {
	checkpoint *checkpoint.Checkpoint
	tensors    []exportTensor
	buf        []byte
}

// exportTensor is a tensor and its name in the export.
type exportTensor struct {
	checkpoint.TensorInfo
	as string
}

// NewExport prepares an export: of all tensors, or, unless all, of the model's, under PyTorch's names. If tensor is not empty, only the
// tensor of that name is exported.
func NewExport(c *checkpoint.Checkpoint, tensor string, all bool) (*Export, error) {
	x := &Export{checkpoint: c, buf: make([]byte, exportPiece)}
	names := map[string]bool{}
	for _, t := range c.Tensors() {
		name, model := strings.CutPrefix(t.Name, ModelPrefix)
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
		return nil, usage.Errorf("the checkpoint of step %d has no tensor %q; ddpbatch ckpt show lists its tensors", c.Step(), tensor)
	case len(x.tensors) == 0:
		return nil, fmt.Errorf("export: the checkpoint of step %d holds no model: it has no tensors named %q; export all with --all",
			c.Step(), ModelPrefix+"*")
	case len(names) < len(x.tensors):
		return nil, fmt.Errorf("export: two tensors are named %q, with and without %q before the name; give the full name and --all",
			tensor, ModelPrefix)
	}
	return x, nil
}

// Tensors returns how many tensors are exported.
func (x *Export) Tensors() int { return len(x.tensors) }

// Write writes the tensors to path, as the given kind.
func (x *Export) Write(ctx context.Context, kind Kind, path string) error {
	switch kind {
	case ArrayFile:
		return x.npy(ctx, path)
	case ArrayFolder:
		return x.folder(ctx, path)
	}
	return x.safetensors(ctx, path)
}

// safetensors writes a file with all tensors of the export.
func (x *Export) safetensors(ctx context.Context, path string) error {
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

// fileMetadataKey is the value of a checkpoint that keeps the metadata of the safetensors file it was imported from: an array of keys and
// values, because their order matters.
const fileMetadataKey = "safetensors.metadata"

// settingsKey is the value of a trainer's checkpoint with the settings of its job: an object of texts.
const settingsKey = "job"

// modelSettings returns the settings of the model (model.kind, model.heads and so on) that the checkpoint has, sorted. A list is written as
// JSON writes it.
func (x *Export) modelSettings() safetensors.Metadata {
	var settings map[string]string
	if json.Unmarshal(x.checkpoint.Values()[settingsKey], &settings) != nil { // another program's, or none
		return nil
	}
	var all safetensors.Metadata
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		value := settings[key]
		if !strings.HasPrefix(key, "model.") {
			continue
		}
		if strings.HasPrefix(value, "[") { // the trainer writes [64 32]
			value = strings.ReplaceAll(value, " ", ", ")
		}
		all = append(all, safetensors.Field{Key: key, Value: value})
	}
	return all
}

// metadata returns the metadata of the imported file, or else what transformers requires ("format"), the step, and the model's settings.
func (x *Export) metadata() (safetensors.Metadata, error) {
	metadataText, imported := x.checkpoint.Values()[fileMetadataKey]
	if !imported {
		own := safetensors.Metadata{{Key: "format", Value: "pt"}, {Key: "step", Value: fmt.Sprint(x.checkpoint.Step())}}
		return append(own, x.modelSettings()...), nil
	}
	var pairs [][2]string
	if err := json.Unmarshal(metadataText, &pairs); err != nil {
		return nil, fmt.Errorf("export: the checkpoint's value %s is not a list of metadata: %w", fileMetadataKey, err)
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
func (x *Export) npy(ctx context.Context, path string) error {
	if len(x.tensors) != 1 {
		return usage.Errorf("a .npy file holds one tensor: name it with --tensor, or write a folder with --format npy")
	}
	t := x.tensors[0]
	return npy.WriteFile(ctx, path, t.DType, t.Shape, func(w io.Writer) error { return x.copy(ctx, t, w) })
}

// folder writes each tensor to a file of its name in a folder. If one fails, it removes the files that did not exist before.
func (x *Export) folder(ctx context.Context, path string) (err error) {
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

// discard removes what an export has created.
func discard(folder string, made bool, files []string) {
	for _, file := range files {
		_ = os.Remove(file)
	}
	if made {
		_ = os.Remove(folder) // fails if somebody else has put something there
	}
}

// arrayFile returns the name of a tensor's file: its own name, with %XX for every byte that a file's name should not have.
// Different tensors get different names.
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
func (x *Export) copy(ctx context.Context, t exportTensor, w io.Writer) error {
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

// makeFolder creates a folder whose parent exists, unless the folder exists already.
func makeFolder(path string) (made bool, err error) {
	err = os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrExist) && vfs.IsDir(path) {
		return false, nil
	}
	return err == nil, err
}

// ModelPrefix is what the trainer puts before the names of a model's tensors.
const ModelPrefix = "model."

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
)

// modelPrefix is what the trainer puts before the names of a model's tensors.
const modelPrefix = "model."

// fileMetadataKey is the value of a checkpoint that keeps the metadata of the safetensors file it was imported from: an array of keys and values, since their order counts.
const fileMetadataKey = "safetensors.metadata"

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

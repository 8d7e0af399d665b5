package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"

	"github.com/urfave/cli/v2"
)

// side is one of the two that diff compares.
type side struct {
	tensors []sideTensor
	values  map[string]json.RawMessage // nil: a file, which has none
	check   func() error               // after the reading: it did not change meanwhile
	close   func() error
}

// sideTensor is a tensor with a way to its bytes.
type sideTensor struct {
	name, dtype string
	shape       []int
	bytes       int64
	read        func(ctx context.Context, start int64, dst []byte) error
}

// openSide opens a safetensors file, or the checkpoint that name and word say.
func openSide(c *cli.Context, e *env, name, word string) (*side, error) {
	info, missing := os.Stat(e.abs(name))
	if missing == nil && !info.IsDir() {
		if word != "" {
			return nil, usagef("%s is a file and has no steps; compare it with one checkpoint: ddpbatch ckpt diff %s CKPT", name, name)
		}
		return openFileSide(e.abs(name))
	}
	if errors.Is(missing, fs.ErrNotExist) && strings.HasSuffix(name, ".safetensors") {
		return nil, &codeError{code: exitNoCheckpoint, err: fmt.Errorf("there is no file %s", e.named(name))}
	}
	place, err := findCheckpoints(e, c, name)
	if err != nil {
		if usage, ok := errors.AsType[*usageError](err); ok && errors.Is(missing, fs.ErrNotExist) {
			return nil, noSide(e, name, usage)
		}
		return nil, err
	}
	dir, err := place.open(e)
	if err != nil {
		return nil, err
	}
	found, err := place.choose(c.Context, e, dir, word)
	if err != nil {
		return nil, err
	}
	return checkpointSide(found), nil
}

// noSide is the error where name is neither a file nor what findCheckpoints takes, which says why.
func noSide(e *env, name string, why *usageError) error {
	if strings.ContainsRune(name, filepath.Separator) {
		return usagef("there is no %s; name a safetensors file, %s", e.named(name), whatRun)
	}
	err := &usageError{message: why.message}
	if _, step := parseStep(name); step == nil {
		err.hint = "to compare two steps of a run: ddpbatch ckpt diff RUN STEP1 STEP2"
	}
	return err
}

func openFileSide(path string) (*side, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	s := &side{check: f.Unchanged, close: f.Close}
	for _, t := range f.Tensors() {
		dtype := t.DType
		if dtype == "" {
			dtype = t.Type
		}
		s.tensors = append(s.tensors, sideTensor{t.Name, dtype, t.Shape, t.Bytes, func(ctx context.Context, start int64, dst []byte) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return f.Read(t, start, dst)
		}})
	}
	return s, nil
}

func checkpointSide(c *checkpoint.Checkpoint) *side {
	s := &side{check: func() error { return nil }, close: c.Close, values: c.Values()} // it has checksums
	if s.values == nil {
		s.values = map[string]json.RawMessage{}
	}
	for _, t := range c.Tensors() {
		s.tensors = append(s.tensors, sideTensor{t.Name, t.DType, t.Shape, t.Bytes, func(ctx context.Context, start int64, dst []byte) error {
			return c.Read(ctx, []checkpoint.Target{{Name: t.Name, Start: start, Data: dst}})
		}})
	}
	return s
}

// asExported leaves of a checkpoint what an export of it has: the model, by PyTorch's names. One without a model stays as it is.
func (s *side) asExported() {
	var model []sideTensor
	for _, t := range s.tensors {
		if name, ok := strings.CutPrefix(t.name, modelPrefix); ok {
			t.name = name
			model = append(model, t)
		}
	}
	if len(model) > 0 {
		s.tensors = model
	}
}

// align makes a checkpoint comparable with a file: by what an export of it would have.
func align(a, b *side) {
	switch {
	case a.values == nil && b.values != nil:
		b.asExported()
	case a.values != nil && b.values == nil:
		a.asExported()
	}
	for _, s := range []*side{a, b} {
		slices.SortFunc(s.tensors, func(x, y sideTensor) int { return strings.Compare(x.name, y.name) })
	}
}

package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/vfs"
)

// The hard tests are those that use the helpers below. Their author did not write the package, and used only its documentation and its
// exported API.

const hardPath = "/run/checkpoints"

func need(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func hardOpen(t testing.TB, o checkpoint.Options) *checkpoint.Dir {
	t.Helper()
	d, err := checkpoint.Open(hardPath, o)
	need(t, err)
	return d
}

// hardState returns the state of a step in one history (variant) of a run. At the same step, every tensor with data differs between
// any two histories of the run.
func hardState(step int64, variant int) *checkpoint.State {
	rng := rand.New(rand.NewPCG(uint64(step), uint64(variant)))
	weights := make([]float32, 500)
	for i := range weights {
		weights[i] = float32(rng.NormFloat64())
	}
	noise := make([]byte, 600)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	sparse := make([]byte, 2*700) // bfloat16, mostly zeros
	for i := 0; i < len(sparse); i += 64 {
		binary.LittleEndian.PutUint16(sparse[i:], uint16(rng.Uint32()))
	}
	stamp := binary.LittleEndian.AppendUint64(nil, uint64(step)<<8|uint64(variant))
	return &checkpoint.State{
		Step: step, World: 3,
		Tensors: []checkpoint.Tensor{
			checkpoint.Float32Tensor("weights", []int{50, 10}, weights),
			{Name: "noise", DType: "uint8", Shape: []int{600}, Data: noise},
			{Name: "empty", DType: "int16", Shape: []int{4, 0}, Data: []byte{}},
			{Name: "sparse", DType: "bfloat16", Shape: []int{7, 100}, Data: sparse},
			{Name: "stamp", DType: "int64", Shape: []int{}, Data: stamp},
		},
		Values:  map[string]json.RawMessage{"step": json.RawMessage(fmt.Sprint(step)), "variant": json.RawMessage(fmt.Sprint(variant))},
		Metrics: map[string]float64{"loss": 1 / float64(step+1)},
	}
}

func hardSame(got, want *checkpoint.State) error {
	if got.Step != want.Step || got.World != want.World || len(got.Tensors) != len(want.Tensors) {
		return fmt.Errorf("step %d, world %d, %d tensors; want %d, %d, %d",
			got.Step, got.World, len(got.Tensors), want.Step, want.World, len(want.Tensors))
	}
	for i, w := range want.Tensors {
		g := got.Tensors[i]
		if g.Name != w.Name || g.DType != w.DType || fmt.Sprint(g.Shape) != fmt.Sprint(w.Shape) || !bytes.Equal(g.Data, w.Data) {
			return fmt.Errorf("step %d: tensor %q is not what was saved as %q", want.Step, g.Name, w.Name)
		}
	}
	for key, w := range want.Values {
		if !bytes.Equal(got.Values[key], w) {
			return fmt.Errorf("step %d: value %q is %s, want %s", want.Step, key, got.Values[key], w)
		}
	}
	return nil
}

// hardVariant returns the history that a state belongs to. It compares all bytes of the state with that history.
func hardVariant(s *checkpoint.State) (int, error) {
	for _, tensor := range s.Tensors {
		if tensor.Name == "stamp" && len(tensor.Data) == 8 {
			variant := int(tensor.Data[0])
			return variant, hardSame(s, hardState(s.Step, variant))
		}
	}
	return 0, errors.New("the state has no stamp")
}

// draftSave saves a state through a draft with the given number of writers. Each writer writes an equal part of every tensor. If base is
// nil, the checkpoint is full. Otherwise base is a checkpoint whose tensors were split in the same way, and baseState is its state.
func draftSave(d *checkpoint.Dir, s *checkpoint.State, shards int, base *checkpoint.Checkpoint, baseState *checkpoint.State) error {
	ctx := context.Background()
	draft, err := d.NewDraft(ctx, s.Step)
	if err != nil {
		return err
	}
	commit := checkpoint.Commit{World: s.World, Values: s.Values, Metrics: s.Metrics, Base: base}
	for _, tensor := range s.Tensors {
		commit.Tensors = append(commit.Tensors, checkpoint.TensorPlan{Name: tensor.Name, DType: tensor.DType, Shape: tensor.Shape})
	}
	for i := range shards {
		var pieces []checkpoint.Piece
		offset := int64(0)
		for k, tensor := range s.Tensors {
			from, to := i*len(tensor.Data)/shards&^7, (i+1)*len(tensor.Data)/shards&^7
			if i == shards-1 {
				to = len(tensor.Data)
			}
			if from == to {
				continue
			}
			piece := checkpoint.Piece{Tensor: tensor.Name, DType: tensor.DType, Shape: tensor.Shape, Start: int64(from),
				Data: tensor.Data[from:to]}
			if base != nil {
				piece.Base = baseState.Tensors[k].Data[from:to]
			}
			pieces = append(pieces, piece)
			plan := &commit.Tensors[k]
			plan.Extents = append(plan.Extents, checkpoint.Extent{Shard: i, Offset: offset, Start: int64(from), Length: int64(to - from)})
			offset += int64(to - from)
		}
		writer := draft
		if i > 0 {
			if writer, err = d.JoinDraft(draft.Ticket()); err != nil {
				return err
			}
		}
		info, err := writer.WriteShard(ctx, i, shards, pieces)
		if err != nil {
			draft.Abort()
			return err
		}
		commit.Shards = append(commit.Shards, info)
	}
	c, err := draft.Commit(ctx, commit)
	if err != nil {
		draft.Abort()
		return err
	}
	return c.Close()
}

// hardFiles returns the paths of all files and folders below dir. The path of a folder ends with a slash.
func hardFiles(t testing.TB, fsys vfs.FS, dir string) []string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	need(t, err)
	var files []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !e.IsDir() {
			files = append(files, path)
			continue
		}
		files = append(files, path+"/")
		files = append(files, hardFiles(t, fsys, path)...)
	}
	return files
}

package ddp

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// CompareDigests returns nil if all ranks call it with the same digest, and otherwise an
// error, on every rank, that names the first rank that differs from rank 0. what says what the digest
// is of. It costs one all-reduce of 8 bytes for each rank.
func CompareDigests(ctx context.Context, comm *mpi.Comm, what string, digest [sha256.Size]byte) error {
	rank, err := firstToDiffer(ctx, comm, digest)
	if err != nil {
		return fmt.Errorf("compare the %s over ranks: %w", what, err)
	}
	if rank > 0 {
		return fmt.Errorf("rank %d and rank 0 differ in their %s; start all ranks with the same program and job file", rank, what)
	}
	return nil
}

// firstToDiffer returns, on every rank, the first rank whose digest differs from rank 0's, or 0 if all are equal.
func firstToDiffer(ctx context.Context, comm *mpi.Comm, digest [sha256.Size]byte) (int, error) {
	// Each rank fills its own element and leaves the others zero, so that the sum gathers all.
	// 64 bits are enough to detect accidents; ranks have authenticated before.
	all := make([]int64, comm.Size())
	all[comm.Rank()] = int64(binary.LittleEndian.Uint64(digest[:]))
	if err := mpi.AllReduce(ctx, comm, all, mpi.Sum); err != nil {
		return 0, err
	}
	for rank, d := range all {
		if d != all[0] {
			return rank, nil
		}
	}
	return 0, nil
}

// modelDescription is what must be the same on all ranks before they can average gradients. It is sent as JSON.
type modelDescription struct {
	Settings string
	Tensors  []tensorInfo
}

type tensorInfo struct {
	What  string // "parameter" or "buffer"
	Name  string
	Shape []int
}

func (t tensorInfo) String() string { return fmt.Sprintf("%s %s %v", t.What, t.Name, t.Shape) }

func describe(params []*nn.Param, buffers []*nn.Buffer, cfg Config) modelDescription {
	r := modelDescription{Settings: cfg.String()}
	for _, p := range params {
		r.Tensors = append(r.Tensors, tensorInfo{"parameter", p.Name, p.Shape})
	}
	for _, b := range buffers {
		r.Tensors = append(r.Tensors, tensorInfo{"buffer", b.Name, b.Shape})
	}
	return r
}

// checkTensors returns an error if two parameters or buffers have the same name, which must be unique in checkpoints and Hooks, or if
// the number of values of one does not match its shape. One that is listed several times counts once.
func checkTensors(params []*nn.Param, buffers []*nn.Buffer) error {
	named := map[string]any{}
	check := func(tensor any, d tensorInfo, values int) error {
		if other, ok := named[d.Name]; ok && other != tensor {
			return fmt.Errorf("%v has the name of another parameter or buffer: give each its own", d)
		}
		named[d.Name] = tensor
		n := 1
		for _, size := range d.Shape {
			n *= size
		}
		if n != values || slices.ContainsFunc(d.Shape, func(size int) bool { return size < 0 }) {
			return fmt.Errorf("%v has %d values, which do not fit its shape", d, values)
		}
		return nil
	}
	for _, p := range params {
		if err := check(p, tensorInfo{"parameter", p.Name, p.Shape}, len(p.Value)); err != nil {
			return err
		}
	}
	for _, b := range buffers {
		if err := check(b, tensorInfo{"buffer", b.Name, b.Shape}, len(b.Value)); err != nil {
			return err
		}
	}
	return nil
}

// agreeOn returns nil if all ranks have the same model, and otherwise an error, the same on every rank, that names the first rank
// that differs from rank 0, and the first difference.
func agreeOn(ctx context.Context, comm *mpi.Comm, mine modelDescription) error {
	text, err := json.Marshal(mine)
	if err != nil {
		return fmt.Errorf("describe the model: %w", err)
	}
	rank, err := firstToDiffer(ctx, comm, sha256.Sum256(text))
	if err != nil {
		return fmt.Errorf("compare the model over ranks: %w", err)
	}
	if rank == 0 {
		return nil
	}
	// Models are sent only if the digests differ.
	first, err := mpi.BroadcastObject(ctx, comm, mine, 0)
	if err != nil {
		return fmt.Errorf("compare the model over ranks: %w", err)
	}
	difference, err := mpi.BroadcastObject(ctx, comm, mine.differs(first, comm.Rank()), rank)
	if err != nil {
		return fmt.Errorf("compare the model over ranks: %w", err)
	}
	return fmt.Errorf("rank %d and rank 0 differ in their model: %s; start all ranks with the same program and job file",
		rank, difference)
}

// differs describes the first difference between r, which is rank's, and rank 0's.
func (r modelDescription) differs(first modelDescription, rank int) string {
	for i := range min(len(r.Tensors), len(first.Tensors)) {
		here, there := r.Tensors[i], first.Tensors[i]
		switch {
		case here.What != there.What || here.Name != there.Name:
			return fmt.Sprintf("number %d of its tensors is %v on rank %d and %v on rank 0", i, here, rank, there)
		case !slices.Equal(here.Shape, there.Shape):
			return fmt.Sprintf("%s %s has shape %v on rank %d and %v on rank 0", here.What, here.Name, here.Shape, rank, there.Shape)
		}
	}
	switch n, m := len(r.Tensors), len(first.Tensors); {
	case n > m:
		return fmt.Sprintf("rank %d has %v, which rank 0 has not", rank, r.Tensors[m])
	case n < m:
		return fmt.Sprintf("rank 0 has %v, which rank %d has not", first.Tensors[n], rank)
	}
	return fmt.Sprintf("rank %d has %s; rank 0 has %s", rank, r.Settings, first.Settings)
}

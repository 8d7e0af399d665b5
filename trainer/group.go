package trainer

import (
	"bytes"
	"context"
	"fmt"

	"ddpbatch/mpi"
)

// group is what a checkpoint.distributed Saver meets over: a communicator of its own, so that a save in the background
// and the training's collectives do not get into each other's way. It is closed with the one that it was made of.
type group struct{ comm *mpi.Comm }

// newGroup is collective.
func newGroup(ctx context.Context, comm *mpi.Comm) (group, error) {
	own, err := comm.Dup(ctx)
	return group{own}, err
}

func (g group) Rank() int { return g.comm.Rank() }
func (g group) Size() int { return g.comm.Size() }

// maxPayload bounds what a length that comes over the network has this rank allocate.
const maxPayload = 1 << 30

func (g group) Gather(ctx context.Context, payload []byte) ([][]byte, error) {
	lengths := make([]int64, g.Size())
	if err := mpi.AllGather(ctx, g.comm, lengths, []int64{int64(len(payload))}); err != nil {
		return nil, err
	}
	counts, total := make([]int, len(lengths)), int64(0)
	for rank, n := range lengths {
		if n < 0 || n > maxPayload-total {
			return nil, fmt.Errorf("gather: the messages up to rank %d's of %d bytes are longer than %d together", rank, n, maxPayload)
		}
		counts[rank] = int(n)
		total += n
	}
	if g.Rank() != 0 {
		return nil, mpi.GatherV(ctx, g.comm, nil, payload, nil, 0)
	}
	all, parts := make([]byte, total), make([][]byte, len(counts))
	if err := mpi.GatherV(ctx, g.comm, all, payload, counts, 0); err != nil {
		return nil, err
	}
	for rank, n := range counts {
		parts[rank], all = all[:n:n], all[n:]
	}
	return parts, nil
}

func (g group) Broadcast(ctx context.Context, payload []byte) ([]byte, error) {
	length := []int64{int64(len(payload))}
	if err := mpi.Broadcast(ctx, g.comm, length, 0); err != nil {
		return nil, err
	}
	if length[0] < 0 || length[0] > maxPayload {
		return nil, fmt.Errorf("broadcast: a message of %d bytes, at most %d are allowed", length[0], maxPayload)
	}
	got := bytes.Clone(payload)
	if g.Rank() != 0 {
		got = make([]byte, length[0])
	}
	return got, mpi.Broadcast(ctx, g.comm, got, 0)
}

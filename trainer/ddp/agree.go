package ddp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"ddpbatch/mpi"
)

// Agree returns nil if all ranks call it with the same digest, and otherwise an
// error, on every rank, that says which rank is the first to differ from rank 0 in
// what. One all-reduce of 8 bytes for each rank.
func Agree(ctx context.Context, comm *mpi.Comm, what string, digest [sha256.Size]byte) error {
	rank, err := firstToDiffer(ctx, comm, digest)
	if err != nil {
		return fmt.Errorf("compare the %s over ranks: %w", what, err)
	}
	if rank > 0 {
		return fmt.Errorf("rank %d and rank 0 differ in their %s; start all ranks with the same program and job file", rank, what)
	}
	return nil
}

// together returns nil if err is nil on all ranks, and otherwise an error, on every rank: its own, or that of the first rank that has
// one. So no rank waits in a collective for one that has given up.
func together(ctx context.Context, comm *mpi.Comm, err error) error {
	first := []int32{int32(comm.Size())}
	text := ""
	if err != nil {
		first[0], text = int32(comm.Rank()), err.Error()
	}
	if e := mpi.AllReduce(ctx, comm, first, mpi.Min); e != nil {
		return cmp.Or(err, e)
	}
	rank := int(first[0])
	if rank == comm.Size() {
		return nil
	}
	text, e := mpi.BroadcastObject(ctx, comm, text, rank)
	if e == nil {
		e = fmt.Errorf("rank %d: %s", rank, text)
	}
	return cmp.Or(err, e)
}

// firstToDiffer returns, on every rank, the first rank whose digest is not rank 0's; 0: all are equal.
func firstToDiffer(ctx context.Context, comm *mpi.Comm, digest [sha256.Size]byte) (int, error) {
	// Each rank fills its own place and the rest is zero, so that the sum gathers all.
	// 64 bits are plenty against accidents; ranks have proved who they are before.
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

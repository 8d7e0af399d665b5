package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"ddpbatch/mpi/internal/element"
	"ddpbatch/mpi/internal/shm"
)

// meet is the first that the ranks of a world do together: they tell each other on which machine they are, and measure what
// messages cost.
func (k *core) meet(ctx context.Context, near []int) error {
	w, rank := k.world, k.group.Rank()
	leader := rank
	if len(near) > 0 {
		leader = min(rank, slices.Min(near))
	}
	all, err := k.collect(ctx, binary.LittleEndian.AppendUint32(nil, uint32(leader)))
	if err != nil {
		return err
	}
	w.machines = make([]int, len(all))
	for i, block := range all {
		w.machines[i] = int(binary.LittleEndian.Uint32(block))
	}
	return k.measure(ctx)
}

// share lays memory under a group of the same ranks, if they are all on one machine and all manage to.
func (k *core) share(ctx context.Context, target *core) error {
	machines := k.world.machines
	first := machines[k.members[0]]
	target.spread = slices.ContainsFunc(k.members, func(rank int) bool { return machines[rank] != first })
	if target.spread {
		return k.shareMachines(ctx, target)
	}
	if len(k.members) < 2 || len(k.members) > shm.MaxRanks {
		return nil
	}
	areas, err := k.shareSegments(ctx, shm.AreaSize, 0, len(k.members))
	if err != nil || areas == nil {
		return err
	}
	target.memory = append(target.memory, areas...)
	target.node, err = shm.NewNode(k.group.Rank(), areas)
	return err
}

// shareSegments makes a segment of size bytes and opens those of the other ranks from first to before last, whose sizes may
// differ. It returns nil on all ranks of the group if one of them could not.
func (k *core) shareSegments(ctx context.Context, size, first, last int) ([]*shm.Segment, error) {
	own, err := shm.Create(size)
	var handle [shm.HandleSize]byte
	if err == nil {
		handle = own.Handle().Encode()
	} else {
		k.world.log.Warn("no shared memory", "err", err)
	}
	all, err := k.collect(ctx, handle[:])
	if err != nil {
		closeSegments(own)
		return nil, err
	}
	segments, err := openSegments(all[first:last], k.group.Rank()-first, own)
	ok := byte(1)
	if err != nil {
		k.world.log.Debug("ranks of one machine do not share memory", "err", err)
		ok = 0
	}
	votes, err := k.collect(ctx, []byte{ok})
	if err == nil && !slices.ContainsFunc(votes, func(vote []byte) bool { return vote[0] == 0 }) {
		return segments, own.Shut() // all have opened it
	}
	closeSegments(segments...)
	if err == nil && k.world.config.Transport == "shm" {
		err = errors.New("the ranks are to share memory, and some of them cannot: is there enough of it, and room for open files?")
	}
	return nil, err
}

// openSegments opens what the handles stand for; the rank's own is there. On an error it closes all.
func openSegments(handles [][]byte, rank int, own *shm.Segment) ([]*shm.Segment, error) {
	segments := make([]*shm.Segment, len(handles))
	segments[rank] = own
	for i, encoded := range handles {
		if i == rank && own != nil {
			continue
		}
		h, err := shm.DecodeHandle(encoded)
		if err == nil {
			segments[i], err = shm.Open(h)
		}
		if err != nil {
			closeSegments(segments...)
			return nil, err
		}
	}
	return segments, nil
}

func closeSegments(segments ...*shm.Segment) {
	for _, s := range segments {
		if s != nil {
			s.Close()
		}
	}
}

// collect gathers a few bytes of every rank, the same number of each.
func (k *core) collect(ctx context.Context, own []byte) ([][]byte, error) {
	size, rank := k.port.Size(), k.port.Rank()
	out := make([]byte, size*len(own))
	copy(out[rank*len(own):], own)
	o := operation{
		kind: setupCall, data: element.Uint8, count: uint64(len(out)), out: out, outBlocks: blocks{even: len(own)},
	}
	if err := k.execute(ctx, &o); err != nil {
		return nil, err
	}
	all := make([][]byte, size)
	for i := range all {
		all[i] = out[i*len(own):][:len(own)]
	}
	return all, nil
}

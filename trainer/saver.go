package trainer

import (
	"context"
	"fmt"

	"ddpbatch/checkpoint/distributed"
	"ddpbatch/mpi"
)

func (t *trainer) newSaver(ctx context.Context) error {
	own, err := newSaveGroup(ctx, t.env.Comm)
	if err != nil {
		return err
	}
	dir := t.env.Checkpoints
	if own.Rank() != 0 {
		dir = nil
	}
	arrays := t.savedArrays()
	bytes, err := t.totalBytes(ctx, arrays)
	if err != nil {
		return err
	}
	t.guessedSaveTime, t.cost.since = guessSave(bytes), t.now()
	memory := t.env.MaxMemory
	if memory > 0 {
		memory = max(1, memory-t.hookBytes())
	}
	o := distributed.Options{
		Async: t.policy.Async, Delta: t.policy.Delta, MaxMemory: memory, Workers: max(1, t.env.Threads),
		Local: t.env.Local, Node: t.env.Node,
		Check: t.checkSaved, Errors: []error{ErrDiverged, ErrMismatch}, FS: t.env.FS, Log: t.log,
	}
	if t.env.Replicate {
		if o.Peers, err = newShardPeers(ctx, t.env.Comm); err != nil {
			return err
		}
	}
	if t.policy.Encode {
		if o.Workers, err = t.encoders(o); err != nil {
			err = fmt.Errorf("encode: %w", err)
		}
		if err := mpi.Agree(ctx, t.env.Comm, err, classes...); err != nil {
			return err
		}
	}
	if dir != nil {
		dir.SetWorkers(o.Workers)
	}
	t.saver, err = distributed.New(ctx, own, dir, arrays, o)
	return err
}

// LeastMemory returns the smallest Env.MaxMemory, in bytes, that is enough to encode checkpoints. What a hook of
// ddp.compress keeps is not included. replicate is Env.Replicate.
func LeastMemory(replicate bool) int64 {
	return distributed.LeastMemory(replicate)
}

// encoders returns how many threads of this rank may encode.
func (t *trainer) encoders(o distributed.Options) (int, error) {
	n, least := o.Encoders()
	if n > 0 {
		return n, nil
	}
	const mega = 1 << 20
	least += t.hookBytes()
	return 0, fmt.Errorf("%.1fM of memory may be used, but one thread needs %.1fM, including what ddp.compress keeps: "+
		"raise checkpoint.memory to %dM or more, or leave it out",
		float64(t.env.MaxMemory)/mega, float64(least)/mega, (least+mega-1)/mega)
}

// closeSaver waits for a save in the background. Its error is only logged: if there is no worse error, it has been returned already.
func (t *trainer) closeSaver() {
	if t.saver == nil {
		return
	}
	if err := t.saver.Close(); err != nil {
		t.log.Warn("a checkpoint was not saved", "error", err)
	}
}

// saveGroup is the Group of a checkpoint/distributed Saver: a communicator of its own, so that a save in the background
// and the training's collectives do not interfere. It is closed with the communicator that it was duplicated from.
type saveGroup struct{ comm *mpi.Comm }

// newSaveGroup is collective.
func newSaveGroup(ctx context.Context, comm *mpi.Comm) (saveGroup, error) {
	own, err := comm.Dup(ctx)
	return saveGroup{own}, err
}

func (g saveGroup) Rank() int { return g.comm.Rank() }

func (g saveGroup) Size() int { return g.comm.Size() }

func (g saveGroup) Gather(ctx context.Context, payload []byte) ([][]byte, error) {
	return mpi.GatherBytes(ctx, g.comm, payload, 0)
}

func (g saveGroup) Broadcast(ctx context.Context, payload []byte) ([]byte, error) {
	return mpi.BroadcastBytes(ctx, g.comm, payload, 0)
}

// shardPeers are the Peers by which a checkpoint/distributed Saver copies shards to other nodes: a communicator of its own, so that its
// failure does not affect others. It is closed with the communicator that it was duplicated from.
//
// The sender waits until the receiver has taken the message. Otherwise a whole shard could be in the memory of a node with a slow disk, and
// when there is no room for more, training's messages, which use the same connection, would wait for that disk, too.
type shardPeers struct{ comm *mpi.Comm }

// The tags of a message, and of its empty reply.
const (
	payloadTag = iota
	takenTag
)

// newShardPeers is collective.
func newShardPeers(ctx context.Context, comm *mpi.Comm) (shardPeers, error) {
	own, err := comm.Dup(ctx)
	return shardPeers{own}, err
}

func (p shardPeers) Send(ctx context.Context, to int, payload []byte) error {
	if err := mpi.Send(ctx, p.comm, payload, to, payloadTag); err != nil {
		return err
	}
	_, err := mpi.Recv(ctx, p.comm, []byte{}, to, takenTag)
	return err
}

func (p shardPeers) Recv(ctx context.Context, from int, buf []byte) (int, error) {
	status, err := mpi.Recv(ctx, p.comm, buf, from, payloadTag)
	if err != nil {
		return 0, err
	}
	return status.Count, mpi.Send(ctx, p.comm, []byte{}, from, takenTag)
}

package trainer

import (
	"context"

	"ddpbatch/mpi"
)

// peers is what a checkpoint.distributed Saver copies shards to other nodes by: a communicator of its own, so that one that breaks ends
// nothing else. It is closed with the one that it was made of.
//
// Who sends waits until the receiver has taken the message. Else all of a shard could lie in the memory of a node with a slow disk, and once
// there is no room for more, training's messages, which come by the same connection, would wait for that disk, too.
type peers struct{ comm *mpi.Comm }

// The tags of a message, and of the empty answer to it.
const (
	payloadTag = iota
	takenTag
)

// newPeers is collective.
func newPeers(ctx context.Context, comm *mpi.Comm) (peers, error) {
	own, err := comm.Dup(ctx)
	return peers{own}, err
}

func (p peers) Send(ctx context.Context, to int, payload []byte) error {
	if err := mpi.Send(ctx, p.comm, payload, to, payloadTag); err != nil {
		return err
	}
	_, err := mpi.Recv(ctx, p.comm, []byte{}, to, takenTag)
	return err
}

func (p peers) Recv(ctx context.Context, from int, buf []byte) (int, error) {
	status, err := mpi.Recv(ctx, p.comm, buf, from, payloadTag)
	if err != nil {
		return 0, err
	}
	return status.Count, mpi.Send(ctx, p.comm, []byte{}, from, takenTag)
}

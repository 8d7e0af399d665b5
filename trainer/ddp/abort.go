package ddp

import (
	"context"

	"ddpbatch/mpi"
)

// breakComm has the calls of all ranks on comm fail for the given reason, which the others are told. Where comm is broken already, it does
// nothing.
func breakComm(comm *mpi.Comm, reason error) {
	comm.Barrier(gaveUp{context.Background(), reason}) // its error is the reason
}

// gaveUp is a context that has ended for a reason.
type gaveUp struct {
	context.Context
	reason error
}

func (g gaveUp) Done() <-chan struct{} { return ended }
func (g gaveUp) Err() error            { return g.reason }

// ended is closed.
var ended = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

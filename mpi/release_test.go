package mpi

import (
	"context"
	"errors"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// lender is a mesh that keeps the books of what Send was given and Sent has not returned.
type lender struct {
	transport.Mesh
	lent map[int]bool // by rank
}

func (l *lender) Send(ctx context.Context, to int, payload []byte) error {
	l.lent[to] = true
	return l.Mesh.Send(ctx, to, payload)
}

func (l *lender) Sent(ctx context.Context, to int) error {
	delete(l.lent, to)
	return l.Mesh.Sent(ctx, to)
}

// A collective lets go of the caller's buffer also when it fails while frames are on the way.
func TestFailureReleasesTheBuffer(t *testing.T) {
	for name, collective := range map[string]func(context.Context, *Comm, []float32) error{
		"all_reduce": func(ctx context.Context, c *Comm, buf []float32) error { return AllReduce(ctx, c, buf, Sum) },
		"broadcast":  func(ctx context.Context, c *Comm, buf []float32) error { return Broadcast(ctx, c, buf, 0) },
		"barrier":    func(ctx context.Context, c *Comm, _ []float32) error { return c.Barrier(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, nil)
			l := &lender{Mesh: w[0].mesh, lent: map[int]bool{}}
			w[0].mesh = l
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- collective(ctx, w[0], make([]float32, 1<<20)) }() // nobody else comes
			testkit.Eventually(t, "it has begun", w[0].busy.Load)
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if len(l.lent) > 0 {
				t.Errorf("the mesh still reads what it was given for ranks %v", l.lent)
			}
		})
	}
}

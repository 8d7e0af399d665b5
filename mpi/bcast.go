package mpi

import (
	"context"
	"fmt"

	"ddpbatch/mpi/transport"
)

// Broadcast copies root's buf into that of every other rank. buf has the same
// length on all of them, and may be empty.
//
// It is a binomial tree. For p ranks and n bytes, with a latency of a and b seconds a byte:
//
//	ceil(log2 p) (a + n b)
//
// or less where n is more than a frame, as ranks pass frames on while more
// arrive. Each rank also tells its parent at once which call it makes, and no
// rank returns before its children have told it: so two ranks that both take
// themselves for the root find out.
//
// When it fails the content of buf is undefined on all ranks but root.
func Broadcast[T Number](ctx context.Context, c *Comm, buf []T, root int) error {
	call := transport.Call{
		Collective: uint8(broadcastCall), Element: uint8(elementOf[T]()), Root: int32(root), Count: uint64(len(buf)),
	}
	var wrong error
	if root < 0 || root >= c.Size() {
		wrong = fmt.Errorf("there is no rank %d to be the root: ranks go from 0 to %d", root, c.Size()-1)
	}
	if err := c.begin(ctx, &call, wrong); err != nil {
		return err
	}
	return c.end(call, binomial(ctx, c, buf, root))
}

// binomial numbers the ranks from root. The parent of rank v has v's lowest bit
// cleared; its children have one of the bits below that set.
func binomial[T Number](ctx context.Context, c *Comm, buf []T, root int) error {
	p := c.Size()
	v := (c.Rank() - root + p) % p
	parent := (v&(v-1) + root) % p
	if v > 0 {
		if err := c.mesh.Send(ctx, parent, nil); err != nil {
			return err
		}
	}
	for i := range frames[T](len(buf)) {
		part := bytesOf(frame(buf, i))
		if v > 0 {
			if err := c.mesh.Recv(ctx, parent, part); err != nil {
				return err
			}
		}
		for bit := topChild(v, p); bit > 0; bit >>= 1 { // the largest subtree first
			if v+bit < p {
				if err := c.mesh.Send(ctx, (v+bit+root)%p, part); err != nil {
					return err
				}
			}
		}
	}
	if v > 0 {
		if err := c.mesh.Sent(ctx, parent); err != nil {
			return err
		}
	}
	for bit := topChild(v, p); bit > 0; bit >>= 1 {
		if v+bit < p {
			if err := settle(ctx, c, (v+bit+root)%p); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle waits until a child's frames are sent, and hears which call it makes.
func settle(ctx context.Context, c *Comm, child int) error {
	if err := c.mesh.Sent(ctx, child); err != nil {
		return err
	}
	return c.mesh.Recv(ctx, child, nil)
}

// topChild is the largest bit that a child of v may add, in a tree of p.
func topChild(v, p int) int {
	bit := 1
	for bit < p && v&bit == 0 {
		bit <<= 1
	}
	return bit >> 1
}
